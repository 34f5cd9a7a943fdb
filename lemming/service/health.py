"""`GET /healthz` on this machine's own address: is all well with the organisation that an engine runs?

Who asks must be on this machine, by its address and by the name in the request: a page in a browser that
reaches it under another name is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from lemming.capabilities.background.connections import BoundedHandler, BoundedServer, answering, bound
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.org.organisation import OrgPath

HOST, PATH = "127.0.0.1", "/healthz"
_OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Health(NamedTuple):
    """What a look at the organisation came to, as JSON values."""

    is_well: bool
    facts: dict[str, Any]


Look = Callable[[dict[str, str]], Health]
"""Looks at the organisation; it is given the words after "?" in the address."""


@contextlib.contextmanager
def health_server(port: int, look: Look, base: OrgPath) -> Iterator[int]:
    """Answer on a port of the loopback address for the length of the block (0: any); give the port.

    200 when all is well, 503 when it is not, either with the facts. Raises `UsageError` where the port cannot
    be had.
    """
    server = bound(lambda address: _Server(address, _Handler), HOST, port)
    server.look = look
    with answering(server, base, "lemming-health") as found:
        yield found


class _Server(BoundedServer):
    """Looks for one caller at a time, whatever many ask at once."""

    look: Look

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._looking = threading.Lock()

    def answer(self, query: str) -> tuple[HTTPStatus, dict[str, Any]]:
        words = {key: values[-1] for key, values in parse_qs(query).items()}
        with self._looking:
            try:
                health = self.look(words)
            except UsageError as error:
                return HTTPStatus.BAD_REQUEST, error.as_json()
            except LemmingError as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, error.as_json()
        return HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE, health.facts


class _Handler(BoundedHandler):
    """Answers GET and HEAD of one path."""

    server: _Server
    server_version, sys_version = "lemming", ""

    def do_GET(self) -> None:  # noqa: N802
        """Answer."""
        self.heard()
        self._answer(*self._response())

    do_HEAD = do_GET  # noqa: N815

    def _response(self) -> tuple[HTTPStatus, dict[str, Any]]:
        place = urlsplit(self.path)
        host = self.headers.get("Host", HOST)
        if host.rpartition(":")[0] not in _OWN_NAMES and host not in _OWN_NAMES:
            return HTTPStatus.MISDIRECTED_REQUEST, {"message": "ask for it by this machine's own name"}
        if place.path != PATH:
            return HTTPStatus.NOT_FOUND, {"message": f"there is only {PATH}"}
        return self.server.answer(place.query)

    def _answer(self, status: HTTPStatus, facts: dict[str, Any]) -> None:
        raw = compact({"v": 1, **facts})
        if redact_bytes(raw) != raw:
            raw = compact(redact_json({"v": 1, **facts}))
        with contextlib.suppress(OSError):  # the caller is gone
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw) + 1))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw + b"\n")

    def log_message(self, *_: Any) -> None:
        """Say nothing: a monitor asks all day."""
