"""A socket where a test listens as systemd does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE_S


class Listening:
    """What was told so far, a datagram each."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def next(self) -> str:
        """Wait for a datagram and return it."""
        return self._listener.recv(4096).decode()

    def until(self, word: str) -> list[str]:
        """Return everything up to the datagram that holds this word."""
        told: list[str] = []
        while not told or word not in told[-1]:
            told.append(self.next())
        return told

    def so_far(self) -> list[str]:
        """Return what has come and was not yet asked for."""
        self._listener.setblocking(False)
        told = []
        try:
            while True:
                told.append(self.next())
        except BlockingIOError:
            return told
        finally:
            self._listener.settimeout(PATIENCE_S)


@contextmanager
def listening(address: str | Path) -> Iterator[Listening]:
    """Listen at a path, or at an abstract address, which begins with "@"."""
    name = str(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        listener.settimeout(PATIENCE_S)
        yield Listening(listener)
