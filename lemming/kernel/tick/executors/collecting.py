"""Rarer looks for garbage while many turns are under way.

What hundreds of turns hold outlives a collection and is looked through again and again, for nothing: half a
millisecond a turn with a thousand of them. Reference counts free what a turn has done with all the same.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RARE = (50_000, 50, 100)

_lock = threading.Lock()
_blocks = 0
_before = (0, 0, 0)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have the interpreter look for garbage rarely in the block, unless it does so more rarely already.

    That holds for the whole process; where several such blocks overlap, until the last of them is over.
    """
    global _blocks, _before
    with _lock:
        if not _blocks:
            _before = gc.get_threshold()
            if 0 < _before[0] < RARE[0]:  # 0: whoever has turned it off means that
                gc.set_threshold(*RARE)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                gc.set_threshold(*_before)
