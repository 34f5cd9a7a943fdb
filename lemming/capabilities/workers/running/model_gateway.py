"""The model gateway: the only server within reach of a worker. Holds the key, counts tokens and enforces the limits.

Listens on a Unix socket, which the sandbox brings in, or on loopback for a worker without a sandbox. A worker shows the
token of the run; the gateway replaces the token by the key of the model's server, which never appears in the sandbox.
Usage of an answer is written durably before the answer's end is passed on, so a kill makes no answer free.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.capabilities.workers.harnesses.harness_types import HarnessRun
from lemming.capabilities.workers.harnesses.json_fields import RunTokens
from lemming.capabilities.workers.running.vendor_apis import Operation, UsageCounter, load_api
from lemming.capabilities.workers.running.worker_sandbox import RELAY_PORT
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.integers import parse_int
from lemming.kernel.files.fs import AppendFile
from lemming.libraries.concurrency.http_server import ServerLimits, bind_port, serve_in_thread
from lemming.libraries.optional_packages import can_serve, install_command

if TYPE_CHECKING:
    import httpx2

USAGE_FILE = "usage.jsonl"
_MAX_FOLDER_CHARS = 60  # the kernel takes 107 for the path of a socket
_READ_MARGIN_S = 5.0  # the run ends for its silence first, which tells more
_CONNECT_TIMEOUT_S, _WRITE_TIMEOUT_S = 30.0, 60.0
_SENT_HEADERS = ("accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
_RETURNED_HEADERS = ("content-type", "retry-after", "request-id", "x-request-id", "x-should-retry")
_RETURNED_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")

_LIMITS = ServerLimits(arrive_s=60.0, answer_s=math.inf, read_s=math.inf)
"""Only for requests: the run has deadlines of its own."""


class RefusedRequest(Exception):
    """Raised for a request that is not passed on, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GatewayRequest:
    """A request of a worker. Its connection carries no other.

    `target`: path and query as they were sent. `has_begun`: a part of the answer was sent. `max_bytes`: limit for a
    request, and for an answer that is not streamed.
    """

    max_bytes = 64 << 20

    def __init__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.method: str = scope["method"]
        query = scope["query_string"].decode("latin-1")
        self.target: str = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.has_begun = False
        self._scope, self._receive, self._send = scope, receive, send

    async def read_object(self) -> dict[str, Any]:
        """Return the body. Raises `RefusedRequest` for anything but a JSON object of bounded length."""
        length = parse_int(self.headers.get("content-length") or "")
        if length is None or self.headers.get("content-encoding", "identity") != "identity":
            raise RefusedRequest(411, "a request must have a content-length and no content-encoding")
        if length > self.max_bytes:
            raise RefusedRequest(413, f"a request must have at most {self.max_bytes} bytes, got {length}")
        content, message = bytearray(), {"more_body": True}
        while message.get("more_body"):
            message = await self._receive()
            content += message.get("body", b"")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "a request must be JSON") from error
        if not isinstance(body, dict):
            raise RefusedRequest(400, f"a request must be a JSON object, got {type(body).__name__}")
        return body

    async def wait_for_disconnect(self) -> None:
        """Wait until the worker has gone away. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer."""
        self.has_begun = True
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in {**headers, "connection": "close"}.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send_chunk(self, chunk: bytes, *, is_last: bool = False) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": not is_last})

    async def send_whole(self, status: int, content: bytes = b"") -> None:
        """Send a whole answer of the gateway."""
        await self.send_head(status, {"content-type": "application/json", "content-length": f"{len(content)}"})
        await self.send_chunk(content, is_last=True)

    async def cut(self) -> None:
        """End the connection in the middle of an answer, which tells the worker that it is not whole."""
        self._scope["state"]["close"]()
        await self.wait_for_disconnect()


class ModelGateway:
    """The gateway of one run, a context manager. It listens while it is entered.

    `url`: address for the harness. `socket`: the Unix socket, None without a sandbox. `token`: the key that the harness
    shows. `tokens`, `cost_usd`, `requests`: counted so far; `cost_usd` is None if a price is unknown. `is_exhausted`: a
    request was refused because of the cost limit.

    Raises: `Unusable` for a cost limit on a model without a price, and without a server.
    """

    def __init__(self, run: HarnessRun, on_activity: Callable[[], object]) -> None:
        if run.job.max_cost_usd is not None and not run.job.prices:
            raise Unusable(
                f"a run with a cost limit must have a known price, got model {run.job.model!r} without one",
                where=run.harness.name, hint="add the model's prices to config/models.json, or remove max_cost_usd",
            )  # fmt: skip
        if not run.base_url:
            raise Unusable("a model must have a server, got none", where=run.harness.name, hint="set options.base_url")
        self._run, self._api = run, load_api(run.harness.api)
        self._on_activity, self._clock = on_activity, SystemClock()
        self.url, self.token = "", f"lemming-{secrets.token_hex(16)}"
        self.tokens, self.requests, self.is_exhausted = RunTokens(), 0, False
        self.cost_usd: float | None = 0.0
        self.socket: Path | None = None
        self._paid_turn, self._is_closed = asyncio.Lock(), False
        self._deadlines: set[asyncio.Timeout] = set()
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> ModelGateway:
        import httpx2  # a tenth of a second: only where a worker runs

        run = self._run
        if not can_serve():
            message, hint = "the model gateway needs starlette and uvicorn", install_command("workers")
            raise Unusable(message, where=run.harness.name, hint=hint)
        with contextlib.ExitStack() as stack:
            self._usage_file = stack.enter_context(AppendFile(run.attempt.folder, USAGE_FILE))
            self._usage_file.sync_name()
            timeout = httpx2.Timeout(
                connect=_CONNECT_TIMEOUT_S, read=run.silence_s + _READ_MARGIN_S, write=_WRITE_TIMEOUT_S, pool=None
            )
            self._client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)
            self._transport_error = httpx2.HTTPError
            if run.job.is_confined:
                parent = None if len(tempfile.gettempdir()) <= _MAX_FOLDER_CHARS else "/tmp"  # noqa: S108
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lmg-", dir=parent))
                self.socket = Path(folder) / "gateway.sock"
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(self.socket))
                listener.listen()
            else:
                listener = bind_port("127.0.0.1", 0)
            server = serve_in_thread(self, listener, name="model-gateway", limits=_LIMITS, close=self._end_requests)
            port = stack.enter_context(server)  # 0 for a Unix socket
            self.url = f"http://127.0.0.1:{port or RELAY_PORT}"
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the requests under way, count them, and stop listening. Repeatable."""
        self._resources.close()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, and its answer back, or refuse it in the API's own shape."""
        request = GatewayRequest(scope, receive, send)
        if request.method == "HEAD":  # some harnesses ask first whether a server is there
            await request.send_whole(200)
            return
        self._on_activity()
        try:
            async with asyncio.timeout(None) as deadline:
                self._deadlines.add(deadline)
                operation, model, body = await self._check_request(request)
                watch = asyncio.create_task(self._watch_worker(request, deadline))
                try:
                    async with self._begin_request(operation):
                        await self._forward(request, operation, model, body)
                finally:
                    watch.cancel()
            await request.send_chunk(b"", is_last=True)
            return
        except RefusedRequest as refusal:
            status, message = refusal.status, str(refusal)
        except TimeoutError:
            status, message = 502, "the run has ended"
        except self._transport_error as error:
            # Its text may hold the address with a password.
            status, message = 502, f"the model's server cannot be reached: {type(error).__name__}"
        finally:
            self._deadlines.discard(deadline)
        if request.has_begun:
            await request.cut()
        else:
            await request.send_whole(status, self._api.format_error(status, message))

    async def _watch_worker(self, request: GatewayRequest, deadline: asyncio.Timeout) -> None:
        """End a request whose worker goes away: nobody would read its answer, which costs."""
        await request.wait_for_disconnect()
        if not deadline.expired():
            deadline.reschedule(0.0)

    async def _check_request(self, request: GatewayRequest) -> tuple[Operation, str, dict[str, Any]]:
        """Return purpose, model and body of a request. Raises `RefusedRequest`."""
        run, headers = self._run, request.headers
        token = headers.get("x-api-key") or headers.get("x-goog-api-key") or headers.get("authorization") or ""
        if not hmac.compare_digest(token.removeprefix("Bearer ").encode(), self.token.encode()):
            raise RefusedRequest(401, "the key must be the one of this run")
        body = await request.read_object() if request.method == "POST" else {}
        operation, model = self._api.parse_request(request.method, request.target, body)
        if not operation:
            target = f"{request.method} {request.target.partition('?')[0]}"
            raise RefusedRequest(404, f"request must be one of the {self._api.name} API, got {target}")
        limit_usd, priced = run.job.max_cost_usd, run.job.model
        if limit_usd is not None and operation == "generate" and not _is_same_model(model, priced):
            raise RefusedRequest(400, f"model must be {priced}, whose price counts for the cost limit, got {model!r}")
        if self._api.name == "openai-chat" and body.get("stream"):
            # Otherwise the stream tells no usage.
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return operation, model, body

    @contextlib.asynccontextmanager
    async def _begin_request(self, operation: Operation) -> AsyncIterator[None]:
        """Wait for a request's turn, and refuse it beyond the cost limit.

        With a limit, requests that cost money pass one at a time: the cost of the one before is known by then.
        """
        limit = self._run.job.max_cost_usd if operation == "generate" else None
        async with contextlib.nullcontext() if limit is None else self._paid_turn:
            if self._is_closed:
                raise RefusedRequest(503, "the run has ended")
            spent_usd = self._run.spent_usd + (self.cost_usd or 0.0)
            if limit is not None and (self.cost_usd is None or spent_usd >= limit):
                self.is_exhausted = True
                raise RefusedRequest(400, f"the run must cost at most ${limit:g}, got ${spent_usd:.4f}")
            yield

    async def _forward(self, request: GatewayRequest, operation: Operation, model: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode() if request.method == "POST" else b""
        headers = {name: request.headers[name] for name in _SENT_HEADERS if request.headers.get(name)}
        headers |= {"accept-encoding": "identity", **self._api.build_key_headers(self._run.key)}
        url = self._api.build_url(self._run.base_url, request.target)
        async with self._client.stream(request.method, url, content=content, headers=headers) as response:
            self._on_activity()
            if response.is_redirect:  # the key must not follow it
                message = f"the model's server must answer itself, got a redirect ({response.status_code})"
                raise RefusedRequest(502, message)
            usage = UsageCounter(self._api, len(content))
            is_recorded = operation != "generate" or not response.is_success
            try:
                async for chunk in self._iter_answer(response, usage):
                    if usage.is_final and not is_recorded:  # before it is passed on: its end may be in it
                        is_recorded = True
                        self._record_usage(request.target, model, usage)
                    if not request.has_begun:
                        returned = {
                            name: value
                            for name, value in response.headers.items()
                            if name in _RETURNED_HEADERS or name.startswith(_RETURNED_PREFIXES)
                        }
                        await request.send_head(response.status_code, returned)
                    await request.send_chunk(chunk)
            finally:
                if not is_recorded:
                    self._record_usage(request.target, model, usage)

    async def _iter_answer(self, response: httpx2.Response, usage: UsageCounter) -> AsyncIterator[bytes]:
        """Yield the pieces of a stream, or any other answer as a whole, once their usage is read."""
        is_stream, content = response.headers.get("content-type", "").startswith("text/event-stream"), bytearray()
        if is_stream:
            yield b""  # the head may go out
        async for chunk in response.aiter_bytes():
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
        cost_usd = self._run.find_cost(tokens)
        entry = {
            "at": self._clock.now().isoformat(), "model": model,
            "path": target.partition("?")[0], **asdict(tokens), "cost_usd": cost_usd, "is_estimate": not usage.is_final,
        }  # fmt: skip
        self.requests += 1
        self.tokens += tokens
        self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd
        self._usage_file.append(json.dumps(entry).encode() + b"\n")
        self._usage_file.sync()

    async def _end_requests(self) -> None:
        """Refuse new requests, and cut those under way: the server waits until their usage is written."""
        self._is_closed = True
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0.0)
        await self._client.aclose()


def _is_same_model(model: str, priced_model: str) -> bool:
    """Return True for the model itself, and for the same one with its date."""
    return model == priced_model or model.removeprefix(f"{priced_model}-").isdigit()
