"""Who is told of each change of the disk just before it is made: crash tests stop the world there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

Mutation = Callable[[str, str], None]
_observers: list[tuple[Mutation, Path | None]] = []


@contextlib.contextmanager
def observed(observer: Mutation, *, only: Path | None = None) -> Iterator[None]:
    """Call `observer(operation, path)` before every change of the disk, as long as the block runs.

    With `only`, it is told of what gets or loses a name below that root. Crash tests raise from the observer
    to stop the world at that very point.
    """
    _observers.append((observer, only))
    try:
        yield
    finally:
        _observers.remove((observer, only))


def announce(operation: str, path: str, root: Path | None = None) -> None:
    """Tell the observers of a change that is about to be made."""
    for observer, only in _observers:
        if only is None or only == root:
            observer(operation, path)
