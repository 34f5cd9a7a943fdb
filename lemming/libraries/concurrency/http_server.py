"""The HTTP server of this program: uvicorn with bounds on connections and on the time of a request.

Pages, channels, /healthz, MCP and the gateway of workers are ASGI applications that it serves, on a thread or in the
foreground. A caller that only connects, or sends or reads very slowly, makes room for real requests. The remaining file
descriptors are left to the engine. Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import resource
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread

if TYPE_CHECKING:
    import uvicorn

App = Callable[[Any, Any, Any], Awaitable[None]]
Close = Callable[[], Coroutine[Any, Any, None]]
MAX_CONNECTIONS, MIN_CONNECTIONS = 64, 4
REQUEST_TIMEOUT_S, ANSWER_TIMEOUT_S = 20.0, 120.0
_QUEUE_LENGTH = 128  # callers that wait to be accepted
_CHECK_INTERVAL_S, _GRACE_S, _JOIN_S = 0.5, 2, 10.0
_BUSY_RESPONSE = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Maximum seconds for a request to arrive, for its answer, and for the caller to read the answer."""

    arrive_s: float = REQUEST_TIMEOUT_S
    answer_s: float = ANSWER_TIMEOUT_S
    read_s: float = REQUEST_TIMEOUT_S


def max_connections() -> int:
    """Return the maximum number of connections: 64, or a quarter of the process's file limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        MAX_CONNECTIONS if limit == resource.RLIM_INFINITY else max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, limit // 4))
    )


def bind_port(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port (0: any free port). Raises `UsageError` if the port is unavailable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_QUEUE_LENGTH)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "choose another port, or 0 for a free port"
        raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error


@contextlib.contextmanager
def serve_in_thread(
    app: App,
    listener: socket.socket,
    *,
    name: str,
    base: OrgPath | None = None,
    limits: ServerLimits | None = None,
    close: Close | None = None,
) -> Iterator[int]:
    """Serve an application on a thread for the length of the block, and yield the port.

    The port of a Unix socket is 0. `base`: the organisation whose log tells of a failure of the thread, which then starts
    again. `close`: ends the application's own streams; it runs on the server's loop when the block ends.
    """
    server, stopped = _ThreadServer(app, listener, limits or ServerLimits(), close), threading.Event()
    address = listener.getsockname()
    if base is None:
        thread = threading.Thread(target=server.run, name=name, daemon=True)
        thread.start()
    else:
        thread = start_supervised_thread(server.run, name=name, base=base, stopped=stopped)
    try:
        yield address[1] if isinstance(address, tuple) else 0
    finally:
        stopped.set()
        server.stop()
        thread.join(_JOIN_S)
        listener.close()


def serve_in_foreground(app: App, listener: socket.socket, limits: ServerLimits | None = None) -> None:
    """Serve an application, which may start and stop with the server, until a signal ends it."""
    asyncio.run(_serve_socket(_make_server(app, limits or ServerLimits(), lifespan="on"), listener))


class _ThreadServer:
    """A server that its thread can start again, on a copy of the socket."""

    def __init__(self, app: App, listener: socket.socket, limits: ServerLimits, close: Close | None) -> None:
        self._app, self._listener, self._limits, self._close = app, listener, limits, close
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None  # kept, as a loop forgets its tasks
        self._is_stopped = False

    def run(self) -> None:
        self._server = _make_server(self._app, self._limits)
        if not self._is_stopped:
            asyncio.run(self._serve(self._server))

    async def _serve(self, server: uvicorn.Server) -> None:
        self._loop = asyncio.get_running_loop()
        with self._listener.dup() as listener:
            await _serve_socket(server, listener)

    def stop(self) -> None:
        self._is_stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._begin_close)
        if self._server is not None:
            self._server.should_exit = True

    def _begin_close(self) -> None:
        if self._close is not None:
            self._closing = asyncio.ensure_future(self._close())


def _make_server(app: App, limits: ServerLimits, lifespan: Literal["on", "off"] = "off") -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):  # type: ignore[misc,unused-ignore] # uvicorn is not always there
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Begin to accept. The loop accepts one caller at a time, so that each counts; the others queue."""
            await super().startup(sockets)
            for listener in sockets or []:
                listener.listen(_QUEUE_LENGTH)

    log = logging.getLogger("uvicorn.error")
    log.handlers, log.propagate = [_StderrLogHandler()], False
    config = uvicorn.Config(
        app,
        http=make_bounded_protocol(limits, max_connections()),
        ws="none",
        lifespan=lifespan,
        backlog=1,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # a caller would choose the address that is recorded
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return Server(config)


async def _serve_socket(server: uvicorn.Server, listener: socket.socket) -> None:
    def complain(_: object, context: dict[str, Any]) -> None:
        logging.getLogger("uvicorn.error").error(context["message"], exc_info=context.get("exception"))

    asyncio.get_running_loop().set_exception_handler(complain)
    await server.serve(sockets=[listener])


class _StderrLogHandler(logging.Handler):
    """Writes to standard error from a separate thread, without Python's lock on the stream.

    If nobody reads the stream, surplus lines are dropped and the server continues.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: queue.Queue[str] = queue.Queue(maxsize=100)
        self._is_started = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._write, name="lemming-complaints", daemon=True).start()
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            with contextlib.suppress(OSError):
                os.write(2, f"{line}\n".encode("utf-8", "replace"))


def make_bounded_protocol(limits: ServerLimits, max_count: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with these bounds: `Config(http=...)`."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):  # type: ignore[misc,unused-ignore] # uvicorn is not always there
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # For an answer that cannot be finished.
            self.app_state = {**self.app_state, "close": transport.close}  # type: ignore[has-type]
            self._opened_at = self._since = self.loop.time()
            self._state: tuple[str, Any] = ("asks", None)
            self._timer = self.loop.call_later(_CHECK_INTERVAL_S, self._check_deadline)
            # A released connection stays in the set until the loop removes it.
            peers = [peer for peer in self.connections if peer is not self and peer._is_open]
            if len(peers) >= max_count:
                silent = [peer for peer in peers if not peer._has_full_request]
                if silent:
                    min(silent, key=lambda peer: peer._opened_at).transport.abort()
                else:
                    transport.write(_BUSY_RESPONSE)
                    transport.close()

        def _get_upgrade(self) -> bytes | None:
            return None  # no request is upgraded, and a caller must not fill the log with advice to install something

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        @property
        def _is_open(self) -> bool:
            return not self.transport.is_closing() or self.transport.get_write_buffer_size() > 0

        @property
        def _has_full_request(self) -> bool:
            """True while a complete request is being answered."""
            cycle = self.cycle
            return cycle is not None and not cycle.more_body and not cycle.response_complete

        def _check_deadline(self) -> None:
            """Close the connection if it has been in its present state for too long."""
            if self.transport.get_write_buffer_size():
                state, limit_s = "reads", limits.read_s
            elif self._has_full_request:
                state, limit_s = "waits", limits.answer_s
            else:
                state, limit_s = "asks", limits.arrive_s
            if self._state != (state, self.cycle):
                self._state, self._since = (state, self.cycle), self.loop.time()
            if self.loop.time() - self._since >= limit_s:
                self.transport.abort()
            else:
                self._timer = self.loop.call_later(_CHECK_INTERVAL_S, self._check_deadline)

    return Bounded
