"""The HTTP server of `lemming serve`: routes, limits and JSON responses.

`lemming.capabilities.channels.http_channel` does the rest.

POST /hooks/AGENT, POST /ask, GET /requests/ID. Reference: docs/channels.md.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

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
from lemming.kernel.inboxes.answer_payload import parse_answer
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.libraries.concurrency.connection_limits import BoundedHandler, BoundedServer, bind_server, run_server
from lemming.obligations.current_requests import load_requests
from lemming.obligations.request_view import RequestView

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


class MetricsSource(NamedTuple):
    """The source of GET /metrics: a function for the text, and the content type."""

    content_type: str
    render: Callable[[Organisation], str]


class ChannelEndpoint(NamedTuple):
    """An HTTP channel in its current state, with its context in the organisation."""

    agent: Agent
    channel: HttpChannel
    context: ChannelContext


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

    With `metrics`, GET /metrics returns this text. Raises `UsageError` if the port is not available.
    """
    server = bind_server(lambda address: _HttpServer(address, _RequestHandler), host, port)
    server.configure(base, clock, stop, report, metrics)
    with run_server(server, base, "lemming-http") as actual_port:
        yield actual_port


class _HttpServer(BoundedServer):
    """The state shared by all requests. A lock ensures only one request reads the organisation's files at a time."""

    def configure(
        self, base: Path, clock: Clock, stop: threading.Event, report: ReportProblem, metrics: MetricsSource | None
    ) -> None:
        self.org, self.clock, self.stop, self.report = Organisation(base), clock, stop, report
        self.metrics = metrics
        self._files_lock = threading.Lock()

    def list_endpoints(self) -> list[ChannelEndpoint]:
        """Return the HTTP channels by the current resumes and settings."""
        with self._files_lock:
            config, survey = load_config(self.org), survey_agents(self.org)
            endpoints = []
            for agent in sorted(survey.agents.values(), key=lambda agent: agent.name):
                entry = config.models.get(agent.model.key)
                if entry is None or entry.provider != "http":
                    continue
                channel = make_channel(entry.provider, entry.options, self.org.base, config)
                assert isinstance(channel, HttpChannel), "its provider is http"
                is_durable = config.org.durability != "off"
                context = ChannelContext(self.org, agent, "http", self._current_tick, self.clock.now, is_durable)
                endpoints.append(ChannelEndpoint(agent, channel, context))
        return endpoints

    def _current_tick(self) -> int:
        return load_tick(self.org.base)

    def find_request(self, reference: str, agents: set[str]) -> RequestView | None:
        """Return a request of one of these agents, or None."""
        with self._files_lock:
            matches = [
                request
                for request in load_requests(self.org).requests.find_matches(reference)
                if request.asker in agents
            ]
        return matches[0] if len(matches) == 1 else None

    def render_metrics(self) -> tuple[str, bytes] | None:
        """Return type and text for GET /metrics, or None without metrics."""
        if self.metrics is None:
            return None
        with self._files_lock:
            return self.metrics.content_type, self.metrics.render(self.org).encode()

    def handle_error(self, *_: Any) -> None:
        """Ignore a disconnected caller. Errors of the server itself were reported with the response."""


class _RequestHandler(BoundedHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lemming", ""
    _is_answered = False

    def do_GET(self) -> None:  # noqa: N802
        """Answer `GET /requests/ID` and `GET /metrics`."""
        self._handle_errors(self._handle_get)

    def do_POST(self) -> None:  # noqa: N802
        """Answer `POST /ask` and `POST /hooks/AGENT`."""
        self._handle_errors(self._handle_post)

    def _handle_errors(self, route: Any) -> None:
        self._is_answered = False
        try:
            route()
        except HttpError as http_error:
            self._send_error(http_error.status, http_error.message, http_error.hint)
        except LemmingError as error:
            status = next((code for kind, code in _ERROR_STATUS.items() if isinstance(error, kind)), None)
            headers = {}
            if isinstance(error, RateLimited):
                headers["Retry-After"] = str(int(error.retry_after_s or 60) + 1)
            if status is None:
                self.server.report(Problem(error.message, error.where, hint=error.hint, code=error.code))
                self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, "it cannot be taken now: try again")
                return
            self._send_error(status, error.message, error.hint, headers)
        except OSError:  # the caller went away, most likely
            raise
        except Exception as error:  # told here: `handle_error` says nothing
            message = redacted_excerpt(describe_exception(error))
            hint = redact(f"raised at {locate_error(error)}")
            self.server.report(Problem(message, self.path.partition("?")[0], hint=hint, code=LemmingError.code))
            raise
        finally:
            if not self._is_answered:
                self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "something is wrong here: try again")

    def _handle_get(self) -> None:
        self.mark_received()
        address = urlsplit(self.path)
        resource, _, reference = address.path.removeprefix("/").partition("/")
        if resource == "metrics" and not reference and self.server.metrics:
            self._send_metrics()
            return
        if resource != "requests" or not reference:
            self._raise_not_found()
        endpoint = self._find_endpoint_by_token()
        deadline = Deadline(_parse_wait(address.query))
        while True:
            request = self.server.find_request(unquote(reference), {endpoint.agent.name})
            if request is None:
                raise HttpError(HTTPStatus.NOT_FOUND, "the request does not exist")
            if request.end is not None or deadline.has_passed or self.server.stop.wait(POLL_S):
                break
        self._send_json(HTTPStatus.OK, _request_status(request))

    def _send_metrics(self) -> None:
        """Send the metrics to a caller with the token, or without a configured token to local callers only.

        A web page can make another name resolve to this machine, but not one of the local names.
        """
        if token := os.environ.get(METRICS_TOKEN_ENV):
            authorization = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(authorization, f"Bearer {token}".encode()):
                hint = f"send the header Authorization: Bearer with the value of {METRICS_TOKEN_ENV}"
                raise PermissionDenied("the token is wrong" if authorization else "the token is missing", hint=hint)
        elif urlsplit(f"//{self.headers.get('Host', '')}").hostname not in LOCAL_NAMES:
            raise HttpError(HTTPStatus.FORBIDDEN, "the host must be 127.0.0.1 or localhost")
        content_type, body = self.server.render_metrics() or ("", b"")
        self._send_response(HTTPStatus.OK, body, {"Content-Type": content_type})

    def _handle_post(self) -> None:
        resource, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        sender = str(self.client_address[0])
        if resource == "ask" and not name:
            endpoint = self._find_endpoint_by_token()
            key = self.headers.get("Idempotency-Key", "") or secrets.token_hex(12)
            receipt = endpoint.channel.receive_question(
                endpoint.context, key, self._read_body(endpoint.channel), sender
            )
            facts = {"id": receipt.id, "status": "open", "href": f"/requests/{receipt.identity}"}
            self._send_json(HTTPStatus.ACCEPTED, facts)
            return
        matches = [
            candidate
            for candidate in self.server.list_endpoints()
            if resource == "hooks" and candidate.agent.name == name
        ]
        if not matches:
            self._raise_not_found()
        headers = {key.lower(): value for key, value in self.headers.items()}
        receipt = matches[0].channel.receive_hook(
            matches[0].context, headers, self._read_body(matches[0].channel), sender
        )
        self._send_json(HTTPStatus.ACCEPTED, {"id": receipt.id, "status": "accepted"})

    def _find_endpoint_by_token(self) -> ChannelEndpoint:
        authorization = self.headers.get("Authorization", "")
        for endpoint in self.server.list_endpoints():
            if endpoint.channel.is_authorized(authorization):
                return endpoint
        message = "the token is wrong" if authorization else "the token is missing"
        raise PermissionDenied(message, hint="send the header Authorization: Bearer TOKEN")

    def _read_body(self, channel: HttpChannel) -> bytes:
        """Return the request's body. A body of excessive size is not read."""
        header = self.headers.get("Content-Length", "")
        if not (header.isascii() and header.isdigit()):
            raise HttpError(HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing")
        length = parse_int(header, le=channel.max_body_bytes)
        if length is None:
            raise HttpError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must have at most {channel.max_body_bytes:,} bytes"
            )
        body = self.rfile.read(length)
        self.mark_received()
        if len(body) < length:
            raise HttpError(HTTPStatus.BAD_REQUEST, "the body ended early")
        return body

    def _raise_not_found(self) -> NoReturn:
        hint = "use POST /hooks/AGENT, POST /ask or GET /requests/ID"
        raise HttpError(HTTPStatus.NOT_FOUND, "the address does not exist", hint)

    def _send_error(
        self, status: HTTPStatus, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self.close_connection = True  # its body may not have been read
        error_fields = {"message": message, "hint": hint} if hint else {"message": message}
        self._send_json(status, {"error": error_fields}, headers)

    def _send_json(
        self, status: HTTPStatus, facts: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        body = dump_compact(redact_json(dict(facts))) + b"\n"
        self._send_response(status, body, {"Content-Type": "application/json", **(headers or {})})

    def _send_response(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        self._is_answered = True
        self.mark_answered()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a JSON error for an unknown kind of request."""
        status = HTTPStatus(code)
        self._send_error(status, message or status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the channel's log contains the arrivals."""


def _parse_wait(query: str) -> float:
    """Return the number of seconds for which the caller waits for an answer."""
    wait_text = parse_qs(query, keep_blank_values=True).get("wait", ["0"])[-1]
    with contextlib.suppress(ValueError):
        if 0.0 <= (seconds := float(wait_text)) <= MAX_WAIT_S:  # which "nan" is not
            return seconds
    hint = "write ?wait=30 to wait 30 seconds, or leave it out to answer immediately"
    message = f'"wait" must be a number of seconds from 0 to {MAX_WAIT_S:g}, got "{wait_text[:40]}"'
    raise HttpError(HTTPStatus.BAD_REQUEST, message, hint)


def _request_status(request: RequestView) -> dict[str, Any]:
    """Return the status of a request for the asker."""
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
