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

from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.optional_packages import require_server

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
    or the server's packages are not available.
    """
    require_server("/healthz")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from lemming.libraries.concurrency.http_server import bind_port, serve_in_thread

    check_lock = threading.Lock()  # a single check at a time

    async def answer(request: Request) -> Response:
        host = request.headers.get("Host", HOST)
        if host.rpartition(":")[0] not in _LOOPBACK_NAMES and host not in _LOOPBACK_NAMES:
            facts: dict[str, Any] = {"message": "ask for it by this machine's own name"}
            return to_response(HTTPStatus.MISDIRECTED_REQUEST, facts)
        if request.url.path != PATH:
            return to_response(HTTPStatus.NOT_FOUND, {"message": f"there is only {PATH}"})
        return to_response(*await run_in_threadpool(_run_check, check, check_lock, dict(request.query_params)))

    async def refuse_method(request: Request, _: Exception) -> Response:
        return to_response(HTTPStatus.NOT_IMPLEMENTED, {"message": f"ask with GET, not {request.method}"})

    def to_response(status: HTTPStatus, facts: dict[str, Any]) -> Response:
        raw = dump_compact({"v": 1, **facts})
        if redact_bytes(raw) != raw:
            raw = dump_compact(redact_json({"v": 1, **facts}))
        return Response(raw + b"\n", status, {"Cache-Control": "no-store"}, "application/json")

    app = Starlette(routes=[Route("/{path:path}", answer)], exception_handlers={HTTPException: refuse_method})
    with serve_in_thread(app, bind_port(HOST, port), name="lemming-health", base=base) as bound_port:
        yield bound_port


def _run_check(
    check: HealthCheck, check_lock: threading.Lock, parameters: dict[str, str]
) -> tuple[HTTPStatus, dict[str, Any]]:
    with check_lock:
        try:
            health = check(parameters)
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, error.as_json()
        except LemmingError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, error.as_json()
    return HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE, health.facts
