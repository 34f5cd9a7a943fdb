"""Health endpoint `GET /healthz` on the loopback address, for the organisation of a running engine.

A client must be on this machine, by address and by the host name in the request. A web page that uses another
host name is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.concurrency.connection_limits import BoundedHandler, BoundedServer, bind_server, run_server

HOST, PATH = "127.0.0.1", "/healthz"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Health(NamedTuple):
    """Result of a health check, with facts as JSON values."""

    is_well: bool
    facts: dict[str, Any]


HealthCheck = Callable[[dict[str, str]], Health]
"""Looks at the organisation; it is given the words after "?" in the address."""


@contextlib.contextmanager
def serve_health(port: int, check: HealthCheck, base: OrgPath) -> Iterator[int]:
    """Serve /healthz on a loopback port for the length of the block (0: any free port), and yield the port.

    The status is 200 for a healthy organisation and 503 otherwise, both with the facts. Raises: UsageError if the port
    is not available.
    """
    server = bind_server(lambda address: _HealthServer(address, _HealthHandler), HOST, port)
    server.check = check
    with run_server(server, base, "lemming-health") as bound_port:
        yield bound_port


class _HealthServer(BoundedServer):
    """HTTP server that runs a single health check at a time."""

    check: HealthCheck

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._check_lock = threading.Lock()

    def handle_query(self, query: str) -> tuple[HTTPStatus, dict[str, Any]]:
        parameters = {key: values[-1] for key, values in parse_qs(query).items()}
        with self._check_lock:
            try:
                health = self.check(parameters)
            except UsageError as error:
                return HTTPStatus.BAD_REQUEST, error.as_json()
            except LemmingError as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, error.as_json()
        return HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE, health.facts


class _HealthHandler(BoundedHandler):
    """Handler of GET and HEAD for a single path."""

    server: _HealthServer
    server_version, sys_version = "lemming", ""

    def do_GET(self) -> None:  # noqa: N802
        """Send the health response."""
        self.mark_received()
        self._send_response(*self._build_response())

    do_HEAD = do_GET  # noqa: N815

    def _build_response(self) -> tuple[HTTPStatus, dict[str, Any]]:
        address = urlsplit(self.path)
        host = self.headers.get("Host", HOST)
        if host.rpartition(":")[0] not in _LOOPBACK_NAMES and host not in _LOOPBACK_NAMES:
            return HTTPStatus.MISDIRECTED_REQUEST, {"message": "ask for it by this machine's own name"}
        if address.path != PATH:
            return HTTPStatus.NOT_FOUND, {"message": f"there is only {PATH}"}
        return self.server.handle_query(address.query)

    def _send_response(self, status: HTTPStatus, facts: dict[str, Any]) -> None:
        raw = dump_compact({"v": 1, **facts})
        if redact_bytes(raw) != raw:
            raw = dump_compact(redact_json({"v": 1, **facts}))
        with contextlib.suppress(OSError):  # the client has disconnected
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw) + 1))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw + b"\n")

    def log_message(self, *_: Any) -> None:
        """Suppress the log, because monitors poll all day."""
