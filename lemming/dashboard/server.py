"""The routes of the page: files for the browser, views as JSON, the live stream, and what is posted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.dashboard.guard import App, Guard
from lemming.dashboard.live import Live
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

STATIC = Path(__file__).parent / "static"


def make_app(live: Live, *, token: str, person: str | None = None, is_read_only: bool = False) -> App:
    """Return the page's server as an ASGI application that only whoever has the token may ask."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    page = _Page(live, person)
    routes = [
        Route("/", page.index),
        Route("/live", page.live),
        Route("/api/{name}", page.view),
        Route("/do/{name}", page.do, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Guard(Starlette(routes=routes), token=token, is_read_only=is_read_only)


class _Page:
    def __init__(self, live: Live, person: str | None) -> None:
        self._live, self._person = live, person

    async def index(self, _: Request) -> Response:
        from starlette.responses import FileResponse

        return FileResponse(STATIC / "index.html")

    async def live(self, request: Request) -> Response:
        """Stream the state with one view, named `view`; what else the address says is that view's."""
        from starlette.responses import StreamingResponse

        parameters = dict(request.query_params)
        stream = self._live.stream(parameters.pop("view", "header"), parameters)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def view(self, request: Request) -> Response:
        try:
            shown = await self._live.view(request.path_params["name"], dict(request.query_params))
        except LemmingError as error:
            return _failed(error)
        return _json(shown)

    async def do(self, request: Request) -> Response:
        try:
            said = parse(await request.body())
        except JsonProblem as error:
            return _failed(UsageError(f"that is no JSON: {error}"))
        if not isinstance(said, dict):
            return _failed(UsageError("that is no JSON object"))
        from lemming.dashboard.actions import TAKE_LONG, act  # what only those need who change something

        name = request.path_params["name"]
        try:
            do = self._live.aside if name in TAKE_LONG else self._live.change
            return _json(await do(partial(act, name=name, said=said, person=self._person)))
        except LemmingError as error:
            return _failed(error)


def _json(plain: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(compact(plain), status, media_type="application/json")


def _failed(error: LemmingError) -> Response:
    return _json(error.as_json(), 400 if isinstance(error, UsageError) else 409)
