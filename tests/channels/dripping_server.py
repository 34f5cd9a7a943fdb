"""A server that never comes to an end of what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from patience import PATIENCE_S


@contextmanager
def dripping(letter: bytes, every_s: float = 0.02) -> Iterator[int]:
    """Run a server that sends each caller a letter now and then, and never comes to an end; give its port."""
    over, callers = threading.Event(), list[threading.Thread]()

    def drip(caller: socket.socket) -> None:
        with caller:
            try:
                while not over.wait(every_s):
                    caller.sendall(letter)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            callers.append(threading.Thread(target=drip, args=(caller,), daemon=True))
            callers[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
            for each in callers:
                each.join(PATIENCE_S)
