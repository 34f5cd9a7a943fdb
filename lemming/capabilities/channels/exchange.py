"""One exchange with a server, such as a request and its answer, that is over as a whole at its deadline.

The timeout of a socket counts from byte to byte, so a server that drips would hold its caller for ever. Here
a thread watches the exchange and cuts its connection when the deadline has passed, or the process is to end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from lemming.kernel.base.deadlines import Deadline, wait_slices
from lemming.kernel.base.errors import TimedOut

_CUT_AGAIN_S = 0.1

Connection = Callable[[], socket.socket | None]


class Exchange:
    """An exchange that is under way; what speaks to the server has its connection watched."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._connections: list[Connection] = []
        self._is_cut = False

    def watch(self, connection: Connection) -> None:
        """Have a connection cut at the end; it is asked for then, because TLS replaces it."""
        self._connections.append(connection)

    def require_whole(self) -> None:
        """Raise unless the answer has come whole: to HTTP, the end of a connection is the end of headers."""
        if self._is_cut:
            raise ConnectionAbortedError("cut before its end")

    def cut(self) -> None:
        """Have whoever reads from the connections, or writes to them, fail at once."""
        self._is_cut = True
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                if found := connection():
                    socket.socket.shutdown(
                        found, socket.SHUT_RDWR
                    )  # not that of TLS, which would say goodbye


@contextlib.contextmanager
def open_exchange(peer: str, deadline: Deadline, stop: threading.Event | None = None) -> Iterator[Exchange]:
    """Watch an exchange for the length of the block; raise `TimedOut`, naming the peer, at the deadline."""
    exchange, over = Exchange(deadline), threading.Event()

    def watch() -> None:
        if any(over.wait(seconds) for seconds in wait_slices(deadline, stop, grace_s=0)):
            return
        while not over.is_set():
            exchange.cut()
            over.wait(_CUT_AGAIN_S)  # a connection may be made only now

    threading.Thread(target=watch, name="lemming-exchange", daemon=True).start()
    try:
        yield exchange
    except Exception as error:
        if deadline.has_passed:
            raise TimedOut(f"{peer} gave no whole answer within {deadline.seconds:.3g} s") from error
        raise
    finally:
        over.set()
