"""Reduce garbage collection while many turns run.

Objects of hundreds of turns survive a collection and are scanned again and again without effect: half a
millisecond a turn with a thousand turns. Reference counting still frees the objects of a finished turn.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

RARE = (50_000, 50, 100)

_lock = threading.Lock()
_blocks = 0
_saved_threshold = (0, 0, 0)


@contextmanager
def reduce_collections() -> Iterator[None]:
    """Run the block with rare garbage collections, unless the threshold is already higher.

    The setting holds for the whole process; with overlapping blocks, until the last block is over.
    """
    global _blocks, _saved_threshold
    with _lock:
        if not _blocks:
            _saved_threshold = gc.get_threshold()
            if 0 < _saved_threshold[0] < RARE[0]:  # 0: whoever has turned it off means that
                gc.set_threshold(*RARE)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                gc.set_threshold(*_saved_threshold)
