"""Exchange with a server, such as a request and its answer, with one deadline for the whole.

The timeout of a socket restarts with every byte, so a slow server could block the caller forever. Here a
thread watches the exchange and closes the connection at the deadline, or when the process must end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from lemming.kernel.base.blocking_deadline import Deadline, wait_slices
from lemming.kernel.base.errors import TimedOut

_CUT_AGAIN_S = 0.1

Connection = Callable[[], socket.socket | None]


class Exchange:
    """Exchange in progress, with watched connections."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._connections: list[Connection] = []

    def watch(self, connection: Connection) -> None:
        """Register a connection for closing. The socket is looked up at the end, because TLS replaces the socket."""
        self._connections.append(connection)

    def cut(self) -> None:
        """Close the connections, so reads and writes fail at once."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                if current_socket := connection():
                    socket.socket.shutdown(
                        current_socket, socket.SHUT_RDWR
                    )  # not the close of TLS, which would send a goodbye


@contextlib.contextmanager
def open_exchange(peer: str, deadline: Deadline, stop: threading.Event | None = None) -> Iterator[Exchange]:
    """Watch an exchange during the block. Raises: TimedOut with the peer's name, at the deadline."""
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
            raise TimedOut(f"{peer} did not answer completely within {deadline.seconds:.3g} s") from error
        raise
    finally:
        over.set()
