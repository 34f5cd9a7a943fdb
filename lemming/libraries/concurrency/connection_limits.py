"""HTTP servers with a bound on connections and a deadline for each request.

A caller that only connects, or sends very slowly, makes room for real requests: the connection silent for
longest is closed. The remaining file descriptors are left to the engine. Servers of the standard library
answer on threads.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread

if TYPE_CHECKING:
    import asyncio

    import uvicorn

MAX_CONNECTIONS, MIN_CONNECTIONS = 64, 4
REQUEST_TIMEOUT_S, RESPONSE_TIMEOUT_S = 20.0, 120.0
"""Maximum seconds for a request to arrive or an answer to be fetched, and for an answer to be computed."""
_ROOM_TIMEOUT_S, _RETRY_PAUSE_S = 1.0, 0.1
_BUSY_RESPONSE = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_POLL_INTERVAL_S = 0.1  # maximum delay until the end of a block is noticed


def max_connections() -> int:
    """Return the maximum number of connections: 64, or a quarter of the process's file limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        MAX_CONNECTIONS if limit == resource.RLIM_INFINITY else max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, limit // 4))
    )


class _ConnectionDeadline:
    def __init__(self) -> None:
        self.deadline, self.has_full_request = Deadline(REQUEST_TIMEOUT_S), False


class BoundedServer(ThreadingHTTPServer):
    """A threaded server with a bound on connections and a deadline for each whole request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._connections: dict[socket.socket, _ConnectionDeadline] = {}
        self._changed = threading.Condition()
        self._max_connections = max_connections()
        super().__init__(*args)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. A process without free descriptors pauses before the next attempt."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_RETRY_PAUSE_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return True if there is room. Connections without a full request make room."""
        with self._changed:
            if len(self._connections) >= self._max_connections:
                self._drop_oldest()
                self._changed.wait_for(lambda: len(self._connections) < self._max_connections, _ROOM_TIMEOUT_S)
            has_room = len(self._connections) < self._max_connections
            if has_room:
                self._connections[request] = _ConnectionDeadline()
        if not has_room:
            with contextlib.suppress(OSError):
                request.settimeout(0.0)  # rejected connections are not waited for
                request.send(_BUSY_RESPONSE)
        return has_room

    def _drop_oldest(self) -> None:
        silent = {request: caller for request, caller in self._connections.items() if not caller.has_full_request}
        if silent:
            _close_connection(min(silent, key=lambda request: silent[request].deadline.remaining()))

    def service_actions(self) -> None:
        """Close every connection past the deadline."""
        with self._changed:
            for request, caller in self._connections.items():
                if caller.deadline.has_passed:
                    _close_connection(request)

    def extend_deadline(self, request: Any, seconds: float, *, has_full_request: bool) -> None:
        """Extend a connection's deadline. A connection with a full request is never dropped to make room."""
        with self._changed:
            if caller := self._connections.get(request):
                caller.deadline, caller.has_full_request = Deadline(seconds), has_full_request

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a caller that disconnected."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and free the slot."""
        super().shutdown_request(request)
        with self._changed:
            self._connections.pop(request, None)
            self._changed.notify()


class BoundedHandler(BaseHTTPRequestHandler):
    """A request to a `BoundedServer`. Call `mark_received` once the whole request has arrived."""

    timeout = REQUEST_TIMEOUT_S

    def handle_one_request(self) -> None:
        """Answer one request, with a deadline for the arrival."""
        self._extend_deadline(REQUEST_TIMEOUT_S, has_full_request=False)
        super().handle_one_request()

    def mark_received(self) -> None:
        """Record that the whole request has arrived, and set the deadline for the response."""
        self._extend_deadline(RESPONSE_TIMEOUT_S, has_full_request=True)

    def mark_answered(self) -> None:
        """Record that the response is ready to be fetched."""
        self._extend_deadline(REQUEST_TIMEOUT_S, has_full_request=True)

    def _extend_deadline(self, seconds: float, *, has_full_request: bool) -> None:
        assert isinstance(self.server, BoundedServer)
        self.server.extend_deadline(self.connection, seconds, has_full_request=has_full_request)


def _close_connection(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its thread, which reads or writes, ends it
        request.shutdown(socket.SHUT_RDWR)


def make_server_config(app: Any, **options: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an application, with these bounds and a non-blocking log.

    Waiting connections are accepted together before any of them counts, so the backlog is smaller than the
    maximum of open connections.
    """
    import uvicorn

    max_count, log = max_connections(), logging.getLogger("uvicorn.error")
    log.handlers, log.propagate = [_StderrLogHandler()], False
    return uvicorn.Config(
        app,
        http=make_bounded_protocol(max_count),
        backlog=max(1, max_count // 4),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        **options,
    )


async def serve_socket(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve requests on a socket until the server ends."""
    import asyncio

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


def make_bounded_protocol(
    max_count: int | None = None, request_timeout_s: float = REQUEST_TIMEOUT_S
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with the same bounds: `Config(http=...)`."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    limit = max_connections() if max_count is None else max_count

    class Bounded(H11Protocol):  # type: ignore[misc,unused-ignore] # uvicorn is not always there
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.came = self.loop.time()
            self.loop.call_later(request_timeout_s, self._check_deadline)
            open_connections = [
                connection
                for connection in self.connections
                if isinstance(connection, Bounded) and not connection.transport.is_closing()
            ]
            if len(open_connections) > limit:  # a released connection stays in the set until the loop removes it
                silent = [
                    connection
                    for connection in open_connections
                    if connection is not self and not connection.has_full_request
                ]
                (min(silent, key=lambda connection: connection.came) if silent else self).transport.abort()

        @property
        def has_full_request(self) -> bool:
            """True while a complete request is being answered."""
            cycle = self.cycle
            return cycle is not None and not cycle.more_body and not cycle.response_complete

        def _check_deadline(self) -> None:
            if self.transport.is_closing():
                return
            cycle = self.cycle
            if cycle is None or (cycle.more_body and not cycle.response_complete):
                self.transport.abort()

    return Bounded


Server = TypeVar("Server", bound=BoundedServer)


def bind_server(make: Callable[[tuple[str, int]], Server], host: str, port: int) -> Server:
    """Return a server bound to the port (0: any free port).

    Raises `UsageError` if the port is unavailable.
    """
    try:
        return make((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "choose another port, or 0 for a free port"
        raise UsageError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error


@contextlib.contextmanager
def run_server(server: BoundedServer, base: OrgPath, name: str) -> Iterator[int]:
    """Run a server on a thread of this name for the block, and yield the port."""
    stop = threading.Event()
    start_supervised_thread(partial(server.serve_forever, _POLL_INTERVAL_S), name=name, base=base, stopped=stop)
    try:
        yield int(server.server_address[1])
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
