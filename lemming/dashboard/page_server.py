"""The page's server on a dedicated thread for the length of a block, its routes, and access for the browser.

Every user of the machine can read the arguments of processes, so a token is never in an argument. The browser
opens a file readable by the owner only, and the file redirects to the page.
"""

from __future__ import annotations

import contextlib
import html
import math
import os
import secrets
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.dashboard.live_state import LiveState
from lemming.dashboard.request_guard import App, Guard
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.libraries.concurrency.http_server import ServerLimits, bind_port, serve_in_thread
from lemming.libraries.output_files import get_state_folder

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_REDIRECT_PAGE = """<!doctype html><meta charset="utf-8"><title>LeMMing</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Open the page</a></p>
"""


class StoredToken(NamedTuple):
    """Token and port with which open tabs reconnect after a restart. Port 0: no port was used yet."""

    token: str
    port: int = 0


def load_token(base: Path) -> StoredToken:
    """Return the stored token of the previous run, or a new token."""
    with contextlib.suppress(OSError, JsonProblem, KeyError, TypeError, ValueError):
        record = parse(fs.read_bytes(get_state_folder() / _make_file_name(base, "json"), 4096))
        token, port = str(record["token"]), int(record["port"])
        if len(token) >= 32:
            return StoredToken(token, port)
    return StoredToken(secrets.token_urlsafe(24))


def store_token(base: Path, stored: StoredToken) -> None:
    """Store a token for the next run in a file readable by the owner only."""
    fs.write_private(get_state_folder(), _make_file_name(base, "json"), dump_compact(stored._asdict()))


@contextlib.contextmanager
def serve_private_page(base: Path, address: str) -> Iterator[str]:
    """Yield the address of a private redirect file, for the length of the block."""
    name = _make_file_name(base, "html")
    fs.write_private(get_state_folder(), name, _REDIRECT_PAGE.format(address=html.escape(address, quote=True)).encode())
    try:
        yield (get_state_folder() / name).as_uri()
    finally:
        fs.remove(get_state_folder(), name)


def _make_file_name(base: Path, ending: str) -> str:
    return f"dash-{sha256(os.fsencode(os.path.realpath(base))).hexdigest()[:16]}.{ending}"


HOST = "127.0.0.1"
USUAL_PORT = 8421


@contextlib.contextmanager
def serve_page(
    base: Path,
    *,
    port: int | None = None,
    person: str | None = None,
    is_read_only: bool = False,
    token: str = "",
    default_port: int = USUAL_PORT,
    is_token_stored: bool = False,
) -> Iterator[str]:
    """Serve the page for the length of the block and yield the page's address with the token.

    With `port` 0 any free port is used; with None the port `default_port`, or any free port. `is_token_stored`: the
    token stays valid after a restart. Raises: UsageError if the port is not available.
    """
    token = token or secrets.token_urlsafe(24)
    try:
        listener = bind_port(HOST, default_port if port is None else port)
    except UsageError:
        if port is not None:
            raise
        listener = bind_port(HOST, 0)
    live = LiveState(base, {"is_read_only": is_read_only, "person": person or "", "is_kept": is_token_stored})
    app = make_app(live, token=token, person=person or None, is_read_only=is_read_only)
    limits = ServerLimits(answer_s=math.inf)  # the stream of a page lasts as long as its tab
    with serve_in_thread(app, listener, name="lemming-dash", base=base, limits=limits, close=live.close) as bound_port:
        yield f"http://{HOST}:{bound_port}/?token={token}"


STATIC = Path(__file__).parent / "static"


def make_app(live: LiveState, *, token: str, person: str | None = None, is_read_only: bool = False) -> App:
    """Return the page's server as an ASGI application protected by the token."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    page = _PageRoutes(live, person)
    routes = [
        Route("/", page.index),
        Route("/live", page.stream_events),
        Route("/api/{name}", page.get_view),
        Route("/do/{name}", page.post_action, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Starlette(routes=routes), token=token, is_read_only=is_read_only)


class _PageRoutes:
    def __init__(self, live: LiveState, person: str | None) -> None:
        self._live, self._person = live, person

    async def index(self, _: Request) -> Response:
        from starlette.responses import FileResponse

        return FileResponse(STATIC / "index.html")

    async def stream_events(self, request: Request) -> Response:
        """Stream the state with a view, named by the query parameter `view`; other parameters belong to the view."""
        from starlette.responses import StreamingResponse

        parameters = dict(request.query_params)
        stream = self._live.stream(parameters.pop("view", "header"), parameters)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def get_view(self, request: Request) -> Response:
        try:
            content = await self._live.load_view(request.path_params["name"], dict(request.query_params))
        except LemmingError as error:
            return _error_response(error)
        return _json_response(content)

    async def post_action(self, request: Request) -> Response:
        try:
            arguments = parse(await request.body())
        except JsonProblem as error:
            return _error_response(UsageError(f"the body is not valid JSON: {error}"))
        if not isinstance(arguments, dict):
            return _error_response(UsageError("the body must be a JSON object"))
        from lemming.dashboard.page_actions import TAKE_LONG, run_action  # only needed to change something

        name = request.path_params["name"]
        try:
            run = self._live.run_in_background if name in TAKE_LONG else self._live.apply_change
            return _json_response(await run(partial(run_action, name=name, arguments=arguments, person=self._person)))
        except LemmingError as error:
            return _error_response(error)


def _json_response(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(dump_compact(value), status, media_type="application/json")


def _error_response(error: LemmingError) -> Response:
    return _json_response(error.as_json(), 400 if isinstance(error, UsageError) else 409)
