"""The HTTP API of `lemming channels serve`: POST /hooks/AGENT, POST /ask, GET /requests/ID. Reference: docs/channels.md.

This module has the routes and their JSON responses; `http_channel` turns a request into a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from lemming.capabilities.channels.channel import ChannelContext
from lemming.capabilities.channels.channel_gateway import ReportProblem, make_channel
from lemming.capabilities.channels.http_channel import HttpChannel
from lemming.ext import LemmingError, Problem, load_tick
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import PermissionDenied, RateLimited, RequestRejected
from lemming.kernel.base.integers import parse_int
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact, redact_json, redacted_excerpt
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.libraries.concurrency.http_server import App, bind_port, serve_in_thread
from lemming.libraries.optional_packages import require_server
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_view import RequestView

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
Handler = Callable[["Request"], Awaitable["Response"]]
MAX_WAIT_S, POLL_S = 60.0, 0.5
METRICS_TOKEN_ENV = "LEMMING_METRICS_TOKEN"  # noqa: S105 - the name of it
LOCAL_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
_ERROR_STATUS: dict[type[LemmingError], HTTPStatus] = {
    PermissionDenied: HTTPStatus.UNAUTHORIZED,
    RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    RequestRejected: HTTPStatus.BAD_REQUEST,
}


class HttpError(Exception):
    """Raised for a request with an error as its response."""

    def __init__(self, status: HTTPStatus, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


_NOT_FOUND = HttpError(
    HTTPStatus.NOT_FOUND, "the address does not exist", "use POST /hooks/AGENT, POST /ask or GET /requests/ID"
)


class MetricsSource(NamedTuple):
    """The source of GET /metrics: a function for the text, and the content type."""

    content_type: str
    render: Callable[[Organisation], str]


@contextlib.contextmanager
def serve_http(
    base: Path,
    host: str,
    port: int,
    *,
    clock: Clock,
    stop: threading.Event,
    report: ReportProblem,
    metrics: MetricsSource | None = None,
) -> Iterator[int]:
    """Run the server for the duration of the block (port 0: any free port), and yield the port.

    With `metrics`, GET /metrics returns this text. Raises `UsageError` if the port or the server's packages are not
    available.
    """
    require_server("the HTTP server of channels")
    routes = _ChannelRoutes(base, clock, metrics, stop, report)
    listener, app = bind_port(host, port), routes.make_app()
    with serve_in_thread(app, listener, name="lemming-http", base=base, close=routes.close) as actual_port:
        yield actual_port


Endpoint = tuple[HttpChannel, ChannelContext]
"""An HTTP channel in its current state, with its context in the organisation."""


class _ChannelRoutes:
    """Answers requests. Files are read and written on threads, so that a slow disk delays no other caller.

    A lock ensures only one request reads the files at a time.
    """

    def __init__(
        self, base: Path, clock: Clock, metrics: MetricsSource | None, stop: threading.Event, report: ReportProblem
    ) -> None:
        self._org, self._clock, self._metrics = Organisation(base), clock, metrics
        self._stop, self._report, self._is_closed = stop, report, False
        self._files_lock = threading.Lock()

    def _list_endpoints(self) -> list[Endpoint]:
        """Return the HTTP channels by the current resumes and settings."""
        with self._files_lock:
            config, survey = load_config(self._org), survey_agents(self._org)
            endpoints: list[Endpoint] = []
            for agent in sorted(survey.agents.values(), key=lambda agent: agent.name):
                entry = config.models.get(agent.model.key)
                if entry is None or entry.provider != "http":
                    continue
                channel = make_channel(entry.provider, entry.options, self._org.base, config)
                assert isinstance(channel, HttpChannel), "only agents with the provider http have this route"
                is_durable = config.org.durability != "off"
                current_tick = partial(load_tick, self._org.base)
                context = ChannelContext(self._org, agent, "http", current_tick, self._clock.now, is_durable)
                endpoints.append((channel, context))
        return endpoints

    def _find_by_token(self, authorization: str) -> Endpoint:
        """Return the channel whose token an `Authorization` header has. Raises: PermissionDenied."""
        for channel, context in self._list_endpoints():
            if channel.is_authorized(authorization):
                return channel, context
        message = "the token is wrong" if authorization else "the token is missing"
        raise PermissionDenied(message, hint="send the header Authorization: Bearer TOKEN")

    def _find_by_agent(self, name: str) -> Endpoint:
        for channel, context in self._list_endpoints():
            if context.agent.name == name:
                return channel, context
        raise _NOT_FOUND

    def _find_request(self, reference: str, agent: str) -> RequestView:
        with self._files_lock:
            requests = load_requests(self._org).requests
            matches = [request for request in requests.find_matches(reference) if request.asker == agent]
        if len(matches) != 1:
            raise HttpError(HTTPStatus.NOT_FOUND, "the request does not exist")
        return matches[0]

    def _render_metrics(self, metrics: MetricsSource) -> bytes:
        with self._files_lock:
            return metrics.render(self._org).encode()

    def make_app(self) -> App:
        """Return the ASGI application."""
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route

        routes = [
            Route("/ask", self._catch_errors(self._post_question), methods=["POST"]),
            Route("/hooks/{agent}", self._catch_errors(self._post_webhook), methods=["POST"]),
            Route("/requests/{reference:path}", self._catch_errors(self._get_request)),
        ]
        if self._metrics:
            routes.append(Route("/metrics", self._catch_errors(self._get_metrics)))
        app = Starlette(routes=routes, exception_handlers={HTTPException: _answer_unknown})
        app.router.redirect_slashes = False
        return app

    async def close(self) -> None:
        """Let no caller wait any longer."""
        self._is_closed = True

    def _catch_errors(self, route: Handler) -> Handler:
        """Return a route whose errors are JSON responses; the operator is told about unexpected ones."""

        async def answer(request: Request) -> Response:
            try:
                return await route(request)
            except HttpError as error:
                return _error_response(error.status, error.message, error.hint)
            except LemmingError as error:
                status = next((code for kind, code in _ERROR_STATUS.items() if isinstance(error, kind)), None)
                if status is None:
                    self._report(Problem(error.message, error.where, hint=error.hint, code=error.code))
                    return _error_response(HTTPStatus.SERVICE_UNAVAILABLE, "it cannot be taken now: try again")
                retry_after_s = int(error.retry_after_s or 60) + 1 if isinstance(error, RateLimited) else None
                return _error_response(status, error.message, error.hint, retry_after_s)
            except Exception as error:  # noqa: BLE001 - the edge of a request: the operator is told
                message = redacted_excerpt(describe_exception(error))
                hint = redact(f"raised at {locate_error(error)}")
                self._report(Problem(message, request.url.path, hint=hint, code=LemmingError.code))
                return _error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "something is wrong here: try again")

        return answer

    async def _get_request(self, request: Request) -> Response:
        _, context = await _run_in_thread(self._find_by_token, request.headers.get("Authorization", ""))
        deadline, reference = Deadline(_parse_wait(request.url.query)), request.path_params["reference"]
        while True:
            view = await _run_in_thread(self._find_request, reference, context.agent.name)
            is_over = deadline.has_passed or self._stop.is_set() or self._is_closed
            if view.end is not None or is_over or await request.is_disconnected():
                return _json_response(HTTPStatus.OK, _request_status(view))
            await asyncio.sleep(POLL_S)

    async def _get_metrics(self, request: Request) -> Response:
        """Send the metrics to a caller with the token, or without a configured token to local callers only.

        A web page can make another name resolve to this machine, but not one of the local names.
        """
        from starlette.responses import Response

        if token := os.environ.get(METRICS_TOKEN_ENV):
            authorization = request.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(authorization, f"Bearer {token}".encode()):
                hint = f"send the header Authorization: Bearer with the value of {METRICS_TOKEN_ENV}"
                raise PermissionDenied("the token is wrong" if authorization else "the token is missing", hint=hint)
        elif urlsplit(f"//{request.headers.get('Host', '')}").hostname not in LOCAL_NAMES:
            raise HttpError(HTTPStatus.FORBIDDEN, "the host must be 127.0.0.1 or localhost")
        metrics = self._metrics
        assert metrics, "the route exists only with metrics"
        body = await _run_in_thread(self._render_metrics, metrics)
        return Response(body, headers={"Content-Type": metrics.content_type})

    async def _post_question(self, request: Request) -> Response:
        channel, context = await _run_in_thread(self._find_by_token, request.headers.get("Authorization", ""))
        key = request.headers.get("Idempotency-Key", "") or secrets.token_hex(12)
        body, sender = await _read_body(request, channel), _get_sender(request)
        receipt = await _run_in_thread(channel.receive_question, context, key, body, sender)
        facts = {"id": receipt.id, "status": "open", "href": f"/requests/{receipt.identity}"}
        return _json_response(HTTPStatus.ACCEPTED, facts)

    async def _post_webhook(self, request: Request) -> Response:
        channel, context = await _run_in_thread(self._find_by_agent, request.path_params["agent"])
        body, sender = await _read_body(request, channel), _get_sender(request)
        receipt = await _run_in_thread(channel.receive_hook, context, dict(request.headers), body, sender)
        return _json_response(HTTPStatus.ACCEPTED, {"id": receipt.id, "status": "accepted"})


async def _run_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(work, *arguments)


def _get_sender(request: Request) -> str:
    return request.client.host if request.client else ""


async def _read_body(request: Request, channel: HttpChannel) -> bytes:
    """Return the request's body. A body of excessive size is not read."""
    header = request.headers.get("Content-Length", "")
    if not (header.isascii() and header.isdigit()):
        raise HttpError(HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing")
    if parse_int(header, le=channel.max_body_bytes) is None:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must have at most {channel.max_body_bytes:,} bytes"
        )
    return await request.body()


async def _answer_unknown(request: Request, _: Exception) -> Response:
    if request.method not in ("GET", "HEAD", "POST"):
        return _error_response(HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method ({request.method!r})")
    return _error_response(_NOT_FOUND.status, _NOT_FOUND.message, _NOT_FOUND.hint)


def _error_response(status: HTTPStatus, message: str, hint: str = "", retry_after_s: int | None = None) -> Response:
    """Return an error, which ends the connection: the body of its request may not have been read."""
    headers = {"Connection": "close"} | ({} if retry_after_s is None else {"Retry-After": str(retry_after_s)})
    return _json_response(status, {"error": {"message": message, **({"hint": hint} if hint else {})}}, headers)


def _json_response(status: HTTPStatus, facts: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(dump_compact(redact_json(facts)) + b"\n", status, headers, "application/json")


def _parse_wait(query: str) -> float:
    wait_text = parse_qs(query, keep_blank_values=True).get("wait", ["0"])[-1]
    with contextlib.suppress(ValueError):
        if 0.0 <= (seconds := float(wait_text)) <= MAX_WAIT_S:  # which "nan" is not
            return seconds
    hint = "write ?wait=30 to wait 30 seconds, or leave it out to answer immediately"
    message = f'"wait" must be a number of seconds from 0 to {MAX_WAIT_S:g}, got "{wait_text[:40]}"'
    raise HttpError(HTTPStatus.BAD_REQUEST, message, hint)


def _request_status(request: RequestView) -> dict[str, Any]:
    return {
        "id": request.id,
        "status": request.end or "open",
        "text": request.text,
        "conversation": request.conversation,
        "tick": request.tick,
        "holders": list(request.assignees),
        "answers": [
            {"agent": answer.agent, "tick": answer.tick, "answer": parse_answer(answer.payload, request.schema)}
            for answer in request.answers
        ],
        "default": request.default_answer if request.end == "expired" else None,
    }
