"""Work on many items in several processes, for commands that read thousands of files."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
CHUNK = 500


def map_chunks(
    function: partial[Iterator[R]], items: Sequence[T], *, in_processes: bool, size: int = CHUNK
) -> Iterator[R]:
    """Yield the results of a function for consecutive chunks of items, in order; with processes, on all cores.

    `size`: number of items in a chunk. Only for programs whose main module may be imported again, such as the commands.
    """
    workers = count_usable_processors()
    if not in_processes or workers < 2:
        yield from function(items)
        return
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor  # most organisations are small
    from multiprocessing import get_context

    chunks, done = [items[start : start + size] for start in range(0, len(items), size)], 0
    # A process may be killed, for want of memory, and some systems start none: the rest is read here.
    with contextlib.suppress(BrokenExecutor, OSError, EOFError, ImportError, NotImplementedError):
        context = get_context("forkserver")
        context.set_forkserver_preload([function.func.__module__])
        with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
            for results in pool.map(partial(_list_results, function), chunks):
                yield from results
                done += 1
    for chunk in chunks[done:]:
        yield from function(chunk)


def count_usable_processors() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with_parent() -> None:
    """End this process with the one that started it: a killed parent would leave it waiting for ever."""
    from multiprocessing import parent_process

    def wait() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _list_results(function: partial[Iterator[R]], chunk: Sequence[T]) -> list[R]:
    return [*function(chunk)]
