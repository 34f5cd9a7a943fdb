"""Connections to a server, closed at a deadline whatever the server sends.

The timeout of a socket restarts with every byte, so a slow server could block the caller forever. Here a thread closes
the connections at the deadline, or when the process must end.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from lemming.kernel.base.blocking_deadline import Deadline, wait_slices
from lemming.kernel.base.errors import TimedOut

_CLOSE_AGAIN_S = 0.1

Connection = Callable[[], socket.socket | None]


class WatchedConnections:
    """Connections of one exchange with a server, such as a request and its answer."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []

    def add(self, connection: Connection) -> None:
        """Register a connection for closing. The socket is looked up at the end, because TLS replaces the socket."""
        self._connections.append(connection)

    def close(self) -> None:
        """Close the connections, so reads and writes fail at once."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                if current_socket := connection():
                    socket.socket.shutdown(
                        current_socket, socket.SHUT_RDWR
                    )  # not the close of TLS, which would send a goodbye


@contextlib.contextmanager
def watch_connections(
    peer: str, deadline: Deadline, stop: threading.Event | None = None
) -> Iterator[WatchedConnections]:
    """Close the connections of the block at the deadline. Raises: TimedOut with the peer's name, at the deadline."""
    connections, over = WatchedConnections(), threading.Event()

    def watch() -> None:
        if any(over.wait(seconds) for seconds in wait_slices(deadline, stop, grace_s=0)):
            return
        while not over.is_set():
            connections.close()
            over.wait(_CLOSE_AGAIN_S)  # a connection may be made only now

    threading.Thread(target=watch, name="lemming-connections", daemon=True).start()
    try:
        yield connections
    except Exception as error:
        if deadline.has_passed:
            raise TimedOut(f"{peer} did not answer completely within {deadline.seconds:.3g} s") from error
        raise
    finally:
        over.set()
