"""The model gateway: the only server that a worker reaches. It holds the key, counts tokens and enforces the limits.

It listens on a Unix socket, which the sandbox brings in, or on loopback for a worker without a sandbox. A worker shows
a token of its run; the key of the model's server is put in its place, and never appears in the sandbox. Usage of an
answer is written durably before the answer's end is passed on, so that a kill cannot make it free.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import secrets
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.capabilities.workers.harnesses.harness_types import HarnessRun, RunTokens
from lemming.capabilities.workers.running import api_shapes
from lemming.capabilities.workers.running.api_shapes import Operation, UsageCounter
from lemming.capabilities.workers.running.worker_sandbox import RELAY_PORT
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.integers import parse_int
from lemming.kernel.files.fs import AppendFile
from lemming.libraries.concurrency.connection_limits import BoundedHandler, BoundedServer

if TYPE_CHECKING:
    import httpx2


class RefusedRequest(Exception):
    """Raised for a request that is not passed on, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GatewayRequest(BoundedHandler):
    """One connection of a worker, which carries one request.

    `answer`: function that answers it. `has_begun`: a part of the answer was sent. `max_bytes`: limit for a request, and
    for an answer that is not streamed.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60.0
    answer: Callable[[GatewayRequest], None]
    has_begun = False
    max_bytes = 64 << 20

    def _answer(self) -> None:
        self._extend_deadline(math.inf, has_full_request=True)  # the run has deadlines of its own
        with contextlib.suppress(ConnectionError, TimeoutError):  # the worker may go away at any moment
            type(self).answer(self)

    do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

    def do_HEAD(self) -> None:  # noqa: N802
        """Tell that a server is there, as some harnesses ask first."""
        self.send_head(200, {"content-length": "0"})

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: a request line may hold a key."""

    def read_object(self) -> dict[str, Any]:
        """Return the body. Raises `RefusedRequest` for anything but a JSON object of bounded length."""
        length = parse_int(self.headers.get("content-length") or "")
        if length is None or self.headers.get("content-encoding", "identity") != "identity":
            raise RefusedRequest(411, "a request must have a content-length and no content-encoding")
        if length > self.max_bytes:
            raise RefusedRequest(413, f"a request must have at most {self.max_bytes} bytes, got {length}")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "a request must be JSON") from error
        if not isinstance(body, dict):
            raise RefusedRequest(400, f"a request must be a JSON object, got {type(body).__name__}")
        return body

    def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer, without a length: chunks follow."""
        self.has_begun = self.close_connection = True
        self.send_response_only(status)
        length = {} if "content-length" in headers else {"transfer-encoding": "chunked"}
        for name, value in {**headers, **length, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_chunk(self, chunk: bytes) -> None:
        """Send a chunk; an empty one is the end of the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))


class _GatewayServer(BoundedServer):
    def __init__(self, path: Path | None, handler: type[GatewayRequest]) -> None:
        self.address_family = socket.AF_UNIX if path else socket.AF_INET
        super().__init__(str(path) if path else ("127.0.0.1", 0), handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # a Unix socket has no port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the errors of a connection are its worker's."""


@contextlib.contextmanager
def serve_requests(answer: Callable[[GatewayRequest], None], path: Path | None) -> Iterator[int]:
    """Answer requests on a Unix socket, or on a port of loopback, which is yielded (0 for a Unix socket)."""
    handler = type("BoundRequest", (GatewayRequest,), {"answer": answer})
    server = _GatewayServer(path, handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), name="model-gateway", daemon=True).start()
    try:
        yield 0 if path else server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


USAGE_FILE = "usage.jsonl"
_MAX_FOLDER_CHARS = 60  # the kernel takes 107 for the path of a socket
_READ_MARGIN_S = 5.0  # the run ends for its silence first, which tells more
_CONNECT_TIMEOUT_S, _WRITE_TIMEOUT_S, _CLOSE_TIMEOUT_S = 30.0, 60.0, 5.0
_SENT_HEADERS = ("accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
_RETURNED_HEADERS = ("content-type", "retry-after", "request-id", "x-request-id", "x-should-retry")
_RETURNED_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")


class ModelGateway:
    """The gateway of one run, a context manager. It listens while it is entered.

    `url`: address for the harness. `socket`: the Unix socket, None without a sandbox. `token`: the key that the harness
    shows. `tokens`, `cost_usd`, `requests`: counted so far; `cost_usd` is None if a price is unknown. `is_exhausted`: a
    request was refused because of the cost limit.

    Raises: `Unusable` for a cost limit on a model without a price, and without a server.
    """

    def __init__(self, run: HarnessRun, on_activity: Callable[[], object]) -> None:
        self._find_cost = run.usd_cost or (lambda _: None)
        if run.max_cost_usd is not None and self._find_cost(RunTokens(input=1, output=1)) is None:
            raise Unusable(
                f"a run with a cost limit must have a known price, got model {run.model!r} without one",
                where=run.harness.name, hint="add the model's prices to config/models.json, or remove max_cost_usd",
            )  # fmt: skip
        if not run.base_url:
            raise Unusable("a model must have a server, got none", where=run.harness.name, hint="set options.base_url")
        self._run, self._api, self._on_activity, self._clock = run, run.harness.api, on_activity, SystemClock()
        self.url, self.token = "", f"lemming-{secrets.token_hex(16)}"
        self.tokens, self.requests, self.is_exhausted = RunTokens(), 0, False
        self.cost_usd: float | None = 0.0
        self.socket: Path | None = None
        self._state, self._in_flight, self._is_closed = threading.Condition(), 0, False
        self._upstream_sockets: list[socket.socket] = []
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> ModelGateway:
        import httpx2  # a tenth of a second: only where a worker runs

        run = self._run
        with contextlib.ExitStack() as stack:
            self._usage_file = stack.enter_context(AppendFile(run.folder, USAGE_FILE))
            self._usage_file.sync_name()
            timeout = httpx2.Timeout(
                connect=_CONNECT_TIMEOUT_S, read=run.silence_s + _READ_MARGIN_S, write=_WRITE_TIMEOUT_S, pool=None
            )
            self._client = stack.enter_context(httpx2.Client(timeout=timeout, follow_redirects=False))
            self._transport_error = httpx2.HTTPError
            if run.is_confined:
                parent = None if len(tempfile.gettempdir()) <= _MAX_FOLDER_CHARS else "/tmp"  # noqa: S108
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lmg-", dir=parent))
                self.socket = Path(folder) / "gateway.sock"
            port = stack.enter_context(serve_requests(self._answer, self.socket))
            self.url = f"http://127.0.0.1:{port or RELAY_PORT}"
            stack.callback(self._end_requests)
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the requests under way, count them, and stop listening. Repeatable."""
        self._resources.close()

    def _answer(self, request: GatewayRequest) -> None:
        """Pass a request on, and its answer back, or refuse it in the API's own shape."""
        self._on_activity()
        try:
            operation, model, body = self._check_request(request)
            with self._begin_request(operation):
                self._forward(request, operation, model, body)
            return
        except RefusedRequest as refusal:
            status, message = refusal.status, str(refusal)
        except self._transport_error as error:
            # Its text may hold the address with a password.
            status, message = 502, f"the model's server cannot be reached: {type(error).__name__}"
        if not request.has_begun:  # else the end of the connection tells it
            content = api_shapes.format_error(self._api, status, message)
            request.send_head(status, {"content-type": "application/json", "content-length": f"{len(content)}"})
            request.wfile.write(content)

    def _check_request(self, request: GatewayRequest) -> tuple[Operation, str, dict[str, Any]]:
        """Return purpose, model and body of a request. Raises `RefusedRequest`."""
        run, headers = self._run, request.headers
        token = headers.get("x-api-key") or headers.get("x-goog-api-key") or headers.get("authorization") or ""
        if not hmac.compare_digest(token.removeprefix("Bearer ").encode(), self.token.encode()):
            raise RefusedRequest(401, "the key must be the one of this run")
        body = request.read_object() if request.command == "POST" else {}
        operation, model = api_shapes.parse_request(self._api, request.command, request.path, body)
        if not operation:
            target = f"{request.command} {request.path.partition('?')[0]}"
            raise RefusedRequest(404, f"request must be one of the {self._api} API, got {target}")
        if run.max_cost_usd is not None and operation == "generate" and not _is_same_model(model, run.model):
            raise RefusedRequest(
                400, f"model must be {run.model}, whose price counts for the cost limit, got {model!r}"
            )
        if self._api == "openai-chat" and body.get("stream"):
            # Otherwise the stream tells no usage.
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return operation, model, body

    @contextlib.contextmanager
    def _begin_request(self, operation: Operation) -> Iterator[None]:
        """Wait for a request's turn, and refuse it beyond the cost limit.

        With a limit, requests that cost money pass one at a time: the cost of the one before is known by then.
        """
        limit = self._run.max_cost_usd if operation == "generate" else None
        with self._state:
            while limit is not None and self._in_flight and not self._is_closed:
                self._state.wait()
            if self._is_closed:
                raise RefusedRequest(503, "the run has ended")
            spent_usd = self._run.spent_usd + (self.cost_usd or 0.0)
            if limit is not None and (self.cost_usd is None or spent_usd >= limit):
                self.is_exhausted = True
                raise RefusedRequest(400, f"the run must cost at most ${limit:g}, got ${spent_usd:.4f}")
            self._in_flight += 1
        try:
            yield
        finally:
            with self._state:
                self._in_flight -= 1
                self._state.notify_all()

    def _forward(self, request: GatewayRequest, operation: Operation, model: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode() if request.command == "POST" else b""
        headers = {name: request.headers[name] for name in _SENT_HEADERS if request.headers.get(name)}
        headers |= {"accept-encoding": "identity", **api_shapes.build_key_headers(self._api, self._run.key)}
        url, trace = api_shapes.build_url(self._api, self._run.base_url, request.path), {"trace": self._remember_socket}
        with self._client.stream(request.command, url, content=content, headers=headers, extensions=trace) as response:
            self._on_activity()
            if response.is_redirect:  # the key must not follow it
                message = f"the model's server must answer itself, got a redirect ({response.status_code})"
                raise RefusedRequest(502, message)
            usage = UsageCounter(self._api, len(content))
            is_recorded = operation != "generate" or not response.is_success
            try:
                for chunk in self._iter_answer(response, usage):
                    if usage.is_final and not is_recorded:  # before it is passed on: its end may be in it
                        is_recorded = True
                        self._record_usage(request.path, model, usage)
                    if not request.has_begun:
                        request.send_head(response.status_code, _select_headers(response))
                    if chunk:
                        request.send_chunk(chunk)
            finally:
                if not is_recorded:
                    self._record_usage(request.path, model, usage)
            request.send_chunk(b"")

    def _iter_answer(self, response: httpx2.Response, usage: UsageCounter) -> Iterator[bytes]:
        """Yield the pieces of a stream, or any other answer as a whole, once their usage is read."""
        is_stream, content = response.headers.get("content-type", "").startswith("text/event-stream"), bytearray()
        if is_stream:
            yield b""  # the head may go out
        for chunk in response.iter_bytes():
            self._on_activity()
            if is_stream:
                usage.feed(chunk)
                yield chunk
            content += b"" if is_stream else chunk
            if len(content) > GatewayRequest.max_bytes:
                raise RefusedRequest(502, f"an answer must have at most {GatewayRequest.max_bytes} bytes")
        if not is_stream:
            usage.read_body(bytes(content))
            secret = self._run.secret_key.encode()  # which a server may repeat in its error
            yield bytes(content).replace(secret, b"[redacted key]") if secret else bytes(content)

    def _record_usage(self, target: str, model: str, usage: UsageCounter) -> None:
        """Count the tokens of an answer, and append them to `usage.jsonl` durably."""
        tokens = usage.count_tokens()
        cost_usd = self._find_cost(tokens)
        entry = {
            "at": self._clock.now().isoformat(), "model": model,
            "path": target.partition("?")[0], **asdict(tokens), "cost_usd": cost_usd, "is_estimate": not usage.is_final,
        }  # fmt: skip
        with self._state:
            self.requests += 1
            self.tokens += tokens
            self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd
            self._usage_file.append(json.dumps(entry).encode() + b"\n")
            self._usage_file.sync()

    def _remember_socket(self, event: str, details: dict[str, Any]) -> None:
        """Note a connection to the model's server: only its socket can wake a thread that waits for an answer."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._state:
                self._upstream_sockets.append(details["return_value"].get_extra_info("socket"))
            if self._is_closed:  # while it connected
                self._cut_connections()

    def _cut_connections(self) -> None:
        for upstream in self._upstream_sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(upstream, socket.SHUT_RDWR)

    def _end_requests(self) -> None:
        """Refuse new requests, cut those under way, and wait until their usage is written."""
        with self._state:
            self._is_closed = True
            self._state.notify_all()
            self._cut_connections()
            self._state.wait_for(lambda: self._in_flight == 0, _CLOSE_TIMEOUT_S)


def _select_headers(response: httpx2.Response) -> dict[str, str]:
    return {
        name: value
        for name, value in response.headers.items()
        if name in _RETURNED_HEADERS or name.startswith(_RETURNED_PREFIXES)
    }


def _is_same_model(model: str, priced_model: str) -> bool:
    """Return True for the model itself, and for the same one with its date."""
    return model == priced_model or model.removeprefix(f"{priced_model}-").isdigit()
