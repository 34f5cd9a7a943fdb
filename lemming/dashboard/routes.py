"""Routes of the page: static files, views as JSON, the live stream, and posted actions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.dashboard.live_state import LiveState
from lemming.dashboard.request_guard import App, Guard
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

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
