"""The HTTP server of `lemming serve`: routes, limits, answers in JSON; `channels.http` does the rest.

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

from lemming.capabilities.background.connections import BoundedHandler, BoundedServer, answering, bound
from lemming.capabilities.channels.between import Tell, make_channel
from lemming.capabilities.channels.channel import ChannelContext
from lemming.capabilities.channels.http import HttpChannel
from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.view import RequestView
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import LemmingError, PermissionDenied, Problem, RateLimited, RequestRejected
from lemming.kernel.base.integers import read_int
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.redaction.secrets import excerpt, redact, redact_json
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.errors import place_of, words_of
from lemming.kernel.tick.counter import load_tick

LONGEST_WAIT_S, LOOK_S = 60.0, 0.5
METRICS_TOKEN_ENV = "LEMMING_METRICS_TOKEN"  # noqa: S105 - the name of it
OWN_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
LARGEST_BODY_BYTES = 240_000
_STATUS_OF: dict[type[LemmingError], HTTPStatus] = {
    PermissionDenied: HTTPStatus.UNAUTHORIZED,
    RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    RequestRejected: HTTPStatus.BAD_REQUEST,
}


class HttpRefusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


class Metrics(NamedTuple):
    """What GET /metrics answers: a text about the organisation, and its type."""

    content_type: str
    text_of: Callable[[Organisation], str]


class Endpoint(NamedTuple):
    """An http channel, as it is now, and its place in the organisation."""

    agent: Agent
    channel: HttpChannel
    context: ChannelContext


@contextlib.contextmanager
def listening(
    base: Path,
    host: str,
    port: int,
    *,
    clock: Clock,
    stop: threading.Event,
    tell: Tell,
    metrics: Metrics | None = None,
) -> Iterator[int]:
    """Listen for the length of the block (port 0: any that is free); give the port.

    With `metrics`, GET /metrics answers with what that says. Raises `UsageError` where the port cannot be
    had.
    """
    server = bound(lambda address: _Server(address, _Handler), host, port)
    server.open(base, clock, stop, tell, metrics)
    with answering(server, base, "lemming-http") as found:
        yield found


class _Server(BoundedServer):
    """What the requests share. The files of the organisation are looked at for one of them at a time."""

    def open(
        self, base: Path, clock: Clock, stop: threading.Event, tell: Tell, metrics: Metrics | None
    ) -> None:
        self.org, self.clock, self.stop, self.tell = Organisation(base), clock, stop, tell
        self.metrics = metrics
        self._looking = threading.Lock()

    def endpoints(self) -> list[Endpoint]:
        """Return the http channels, as resumes and settings are now."""
        with self._looking:
            config, survey = load_config(self.org), survey_agents(self.org)
            found = []
            for agent in sorted(survey.agents.values(), key=lambda agent: agent.name):
                entry = config.models.get(agent.model.key)
                if entry is None or entry.provider != "http":
                    continue
                channel = make_channel(entry.provider, entry.options, self.org.base, config)
                assert isinstance(channel, HttpChannel), "its provider is http"
                syncs = config.org.durability != "off"
                context = ChannelContext(self.org, agent, "http", self._tick, self.clock.now, syncs)
                found.append(Endpoint(agent, channel, context))
        return found

    def _tick(self) -> int:
        return load_tick(self.org.base)

    def request(self, reference: str, agents: set[str]) -> RequestView | None:
        """Return a request that one of these agents made; None for any other."""
        with self._looking:
            found = [it for it in requests_now(self.org).requests.find(reference) if it.asker in agents]
        return found[0] if len(found) == 1 else None

    def metrics_now(self) -> tuple[str, bytes] | None:
        """Return the type and the text of what GET /metrics answers; None where nobody wants that."""
        if self.metrics is None:
            return None
        with self._looking:
            return self.metrics.content_type, self.metrics.text_of(self.org).encode()

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a caller that went away; what went wrong here was told as it was answered."""


class _Handler(BoundedHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lemming", ""
    _is_answered = False

    def do_GET(self) -> None:  # noqa: N802
        """Answer `GET /requests/ID` and `GET /metrics`."""
        self._handle(self._get)

    def do_POST(self) -> None:  # noqa: N802
        """Answer `POST /ask` and `POST /hooks/AGENT`."""
        self._handle(self._post)

    def _handle(self, route: Any) -> None:
        self._is_answered = False
        try:
            route()
        except HttpRefusal as refused:
            self._refuse(refused.status, refused.message, refused.hint)
        except LemmingError as error:
            status = next((it for kind, it in _STATUS_OF.items() if isinstance(error, kind)), None)
            headers = {}
            if isinstance(error, RateLimited):
                headers["Retry-After"] = str(int(error.retry_after_s or 60) + 1)
            if status is None:
                self.server.tell(Problem(error.message, error.where, hint=error.hint, code=error.code))
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "it cannot be taken now: try again")
                return
            self._refuse(status, error.message, error.hint, headers)
        except OSError:  # the caller went away, most likely
            raise
        except Exception as error:  # told here: `handle_error` says nothing
            why = excerpt(words_of(error))
            hint = redact(f"raised at {place_of(error)}")
            self.server.tell(Problem(why, self.path.partition("?")[0], hint=hint, code=LemmingError.code))
            raise
        finally:
            if not self._is_answered:
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "something is wrong here: try again")

    def _get(self) -> None:
        self.heard()
        address = urlsplit(self.path)
        place, _, reference = address.path.removeprefix("/").partition("/")
        if place == "metrics" and not reference and self.server.metrics:
            self._answer_with_metrics()
            return
        if place != "requests" or not reference:
            self._no_such_place()
        endpoint = self._endpoint_by_token()
        deadline = Deadline(_wait_s(address.query))
        while True:
            request = self.server.request(unquote(reference), {endpoint.agent.name})
            if request is None:
                raise HttpRefusal(HTTPStatus.NOT_FOUND, "there is no such request of yours")
            if request.end is not None or deadline.has_passed or self.server.stop.wait(LOOK_S):
                break
        self._answer(HTTPStatus.OK, _facts(request))

    def _answer_with_metrics(self) -> None:
        """Answer whoever has the token; where there is none, whoever asks this machine for itself.

        A page in a browser can have another name lead here, but not one of these.
        """
        if token := os.environ.get(METRICS_TOKEN_ENV):
            given = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                hint = f"send the header Authorization: Bearer with what {METRICS_TOKEN_ENV} is"
                raise PermissionDenied("the token is wrong" if given else "there is no token", hint=hint)
        elif urlsplit(f"//{self.headers.get('Host', '')}").hostname not in OWN_NAMES:
            raise HttpRefusal(HTTPStatus.FORBIDDEN, "ask 127.0.0.1 or localhost")
        content_type, body = self.server.metrics_now() or ("", b"")
        self._send(HTTPStatus.OK, body, {"Content-Type": content_type})

    def _post(self) -> None:
        place, _, name = urlsplit(self.path).path.removeprefix("/").partition("/")
        sender = str(self.client_address[0])
        if place == "ask" and not name:
            endpoint = self._endpoint_by_token()
            key = self.headers.get("Idempotency-Key", "") or secrets.token_hex(12)
            receipt = endpoint.channel.receive_question(
                endpoint.context, key, self._body(endpoint.channel), sender
            )
            facts = {"id": receipt.id, "status": "open", "href": f"/requests/{receipt.identity}"}
            self._answer(HTTPStatus.ACCEPTED, facts)
            return
        found = [it for it in self.server.endpoints() if place == "hooks" and it.agent.name == name]
        if not found:
            self._no_such_place()
        headers = {key.lower(): value for key, value in self.headers.items()}
        receipt = found[0].channel.receive_hook(
            found[0].context, headers, self._body(found[0].channel), sender
        )
        self._answer(HTTPStatus.ACCEPTED, {"id": receipt.id, "status": "accepted"})

    def _endpoint_by_token(self) -> Endpoint:
        given = self.headers.get("Authorization", "")
        for endpoint in self.server.endpoints():
            if endpoint.channel.knows(given):
                return endpoint
        message = "the token is wrong" if given else "there is no token"
        raise PermissionDenied(message, hint="send the header Authorization: Bearer TOKEN")

    def _body(self, channel: HttpChannel) -> bytes:
        """Return the request's body; one that is too large is not read."""
        header = self.headers.get("Content-Length", "")
        if not (header.isascii() and header.isdigit()):
            raise HttpRefusal(HTTPStatus.LENGTH_REQUIRED, "send Content-Length")
        length = read_int(header, le=channel.max_body_bytes)
        if length is None:
            raise HttpRefusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {channel.max_body_bytes:,} bytes"
            )
        body = self.rfile.read(length)
        self.heard()
        if len(body) < length:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, "the body ended early")
        return body

    def _no_such_place(self) -> NoReturn:
        hint = "POST /hooks/AGENT, POST /ask, GET /requests/ID"
        raise HttpRefusal(HTTPStatus.NOT_FOUND, "there is nothing at this address", hint)

    def _refuse(
        self, status: HTTPStatus, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self.close_connection = True  # its body may not have been read
        said = {"message": message, "hint": hint} if hint else {"message": message}
        self._answer(status, {"error": said}, headers)

    def _answer(
        self, status: HTTPStatus, facts: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        body = compact(redact_json(dict(facts))) + b"\n"
        self._send(status, body, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        self._is_answered = True
        self.answered()
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
        """Answer what is no request we know in JSON too."""
        status = HTTPStatus(code)
        self._refuse(status, message or status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: what arrived is in the channel's log."""


def _wait_s(query: str) -> float:
    """Return for how long a caller waits for an answer."""
    asked = parse_qs(query, keep_blank_values=True).get("wait", ["0"])[-1]
    with contextlib.suppress(ValueError):
        if 0.0 <= (seconds := float(asked)) <= LONGEST_WAIT_S:  # which "nan" is not
            return seconds
    hint = "?wait=30 waits for 30 seconds; without it the answer comes at once"
    message = f'"wait" must be a number of seconds from 0 to {LONGEST_WAIT_S:g}, not "{asked[:40]}"'
    raise HttpRefusal(HTTPStatus.BAD_REQUEST, message, hint)


def _facts(request: RequestView) -> dict[str, Any]:
    """Return what the asker is told of a request."""
    return {
        "id": request.id,
        "status": request.end or "open",
        "text": request.text,
        "conversation": request.conversation,
        "tick": request.tick,
        "holders": list(request.holders),
        "answers": [
            {"agent": it.agent, "tick": it.tick, "answer": answer_in(it.payload, request.schema)}
            for it in request.answers
        ],
        "default": request.default if request.end == "expired" else None,
    }
