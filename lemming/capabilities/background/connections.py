"""How many callers a server has at once, how long each may take to say what it wants, and who answers them.

Who only connects, or says a letter a minute, makes room for who asks: the one that has been silent longest is
let go. The descriptors that are left are the engine's. A server of the standard library answers on a thread.
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

from lemming.capabilities.background.threads import keep_alive
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath

if TYPE_CHECKING:
    import asyncio

    import uvicorn

MOST, FEWEST = 64, 4
REQUEST_S, WORK_S = 20.0, 120.0
"""How long a request may take to arrive whole, or an answer to be fetched; how long answering may take."""
_MAKES_ROOM_S, _REST_S = 1.0, 0.1
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_LOOK_S = 0.1  # how long it may take until the end of a block is noticed


def most_connections() -> int:
    """Return how many connections a server has at once: 64, or a quarter of the files a process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if limit == resource.RLIM_INFINITY else max(FEWEST, min(MOST, limit // 4))


class _Caller:
    def __init__(self) -> None:
        self.until, self.is_heard = Deadline(REQUEST_S), False


class BoundedServer(ThreadingHTTPServer):
    """A server of threads with a bound on connections, and a deadline for each whole request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._callers: dict[socket.socket, _Caller] = {}
        self._changed = threading.Condition()
        self._most = most_connections()
        super().__init__(*args)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; a process without descriptors rests a moment rather than trying at once."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_REST_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room; who has not yet said what it wants makes some."""
        with self._changed:
            if len(self._callers) >= self._most:
                self._let_go_of_the_oldest()
                self._changed.wait_for(lambda: len(self._callers) < self._most, _MAKES_ROOM_S)
            has_room = len(self._callers) < self._most
            if has_room:
                self._callers[request] = _Caller()
        if not has_room:
            with contextlib.suppress(OSError):
                request.settimeout(0.0)  # nobody waits for whoever is turned away
                request.send(_BUSY)
        return has_room

    def _let_go_of_the_oldest(self) -> None:
        silent = {request: caller for request, caller in self._callers.items() if not caller.is_heard}
        if silent:
            _let_go(min(silent, key=lambda request: silent[request].until.remaining()))

    def service_actions(self) -> None:
        """Let go of everybody whose time is up."""
        with self._changed:
            for request, caller in self._callers.items():
                if caller.until.has_passed:
                    _let_go(request)

    def may_take(self, request: Any, seconds: float, *, is_heard: bool) -> None:
        """Give a connection so much time from now; one that is heard is not let go for another."""
        with self._changed:
            if caller := self._callers.get(request):
                caller.until, caller.is_heard = Deadline(seconds), is_heard

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and give its place to another."""
        super().shutdown_request(request)
        with self._changed:
            self._callers.pop(request, None)
            self._changed.notify()


class BoundedHandler(BaseHTTPRequestHandler):
    """A request to a `BoundedServer`. Call `heard` when it has arrived whole."""

    timeout = REQUEST_S

    def handle_one_request(self) -> None:
        """Answer one request, which has so long to arrive."""
        self._may_take(REQUEST_S, is_heard=False)
        super().handle_one_request()

    def heard(self) -> None:
        """Note that all of the request is here, and only the answer is to come."""
        self._may_take(WORK_S, is_heard=True)

    def answered(self) -> None:
        """Note that the answer is there to be fetched."""
        self._may_take(REQUEST_S, is_heard=True)

    def _may_take(self, seconds: float, *, is_heard: bool) -> None:
        assert isinstance(self.server, BoundedServer)
        self.server.may_take(self.connection, seconds, is_heard=is_heard)


def _let_go(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its thread, which reads or writes, ends it
        request.shutdown(socket.SHUT_RDWR)


def make_server_config(app: Any, **more: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an application: with these bounds, and complaints that hold nobody up.

    As many connections as wait to be accepted are accepted at once, before one of them counts. So fewer wait
    than may be open.
    """
    import uvicorn

    most, log = most_connections(), logging.getLogger("uvicorn.error")
    log.handlers, log.propagate = [_Complaints()], False
    return uvicorn.Config(
        app,
        http=bounded_protocol(most),
        backlog=max(1, most // 4),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        **more,
    )


async def serve_socket(server: uvicorn.Server, listening: socket.socket) -> None:
    """Answer what comes in on a socket, until the server is to end."""
    import asyncio

    def complain(_: object, context: dict[str, Any]) -> None:
        logging.getLogger("uvicorn.error").error(context["message"], exc_info=context.get("exception"))

    asyncio.get_running_loop().set_exception_handler(complain)
    await server.serve(sockets=[listening])


class _Complaints(logging.Handler):
    """Writes to the standard error stream, from a thread of its own and without Python's lock on the stream.

    Nobody may read the stream: then what it has no room for is dropped, and the server goes on.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: queue.Queue[str] = queue.Queue(maxsize=100)
        self._is_read = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_read:
            self._is_read = True
            threading.Thread(target=self._write, name="lemming-complaints", daemon=True).start()
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            with contextlib.suppress(OSError):
                os.write(2, f"{line}\n".encode("utf-8", "replace"))


def bounded_protocol(most: int | None = None, request_s: float = REQUEST_S) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with the same bounds: `Config(http=...)`."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    limit = most_connections() if most is None else most

    class Bounded(H11Protocol):  # type: ignore[misc,unused-ignore] # uvicorn is not always there
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.came = self.loop.time()
            self.loop.call_later(request_s, self._look)
            here = [
                it for it in self.connections if isinstance(it, Bounded) and not it.transport.is_closing()
            ]
            if len(here) > limit:  # one that was let go is in the set until the loop comes to it
                silent = [it for it in here if it is not self and not it.is_heard]
                (min(silent, key=lambda it: it.came) if silent else self).transport.abort()

        @property
        def is_heard(self) -> bool:
            """Whether a whole request has come that is being answered, or was and the connection is kept."""
            cycle = self.cycle
            return cycle is not None and not cycle.more_body and not cycle.response_complete

        def _look(self) -> None:
            if self.transport.is_closing():
                return
            cycle = self.cycle
            if cycle is None or (cycle.more_body and not cycle.response_complete):
                self.transport.abort()

    return Bounded


Server = TypeVar("Server", bound=BoundedServer)


def bound(make: Callable[[tuple[str, int]], Server], host: str, port: int) -> Server:
    """Return a server that has its port (0: any that is free); raise `UsageError` where it cannot be had."""
    try:
        return make((host, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "name another port, or 0 for any that is free"
        raise UsageError(f"cannot listen on {host}:{port}: {why}", hint=hint) from error


@contextlib.contextmanager
def answering(server: BoundedServer, base: OrgPath, name: str) -> Iterator[int]:
    """Answer for the length of the block, on a thread of this name; give the port."""
    over = threading.Event()
    keep_alive(partial(server.serve_forever, _LOOK_S), name=name, base=base, over=over)
    try:
        yield int(server.server_address[1])
    finally:
        over.set()
        server.shutdown()
        server.server_close()
