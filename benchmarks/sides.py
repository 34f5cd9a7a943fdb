"""Interleaved measurement of pieces of work: each in a separate process, only a single process busy.

Compared work runs within the same second, so a slow phase of the machine affects all sides, and no side's
heap is walked by another side's garbage collector.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from benchmarks.measurement import Timing

Work = Callable[[], object]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Side:
    """Work to measure: `prepare(*arguments)`, called in the new process, returns the work."""

    prepare: Callable[..., Work]
    arguments: tuple[Any, ...] = ()


def interleave(sides: Mapping[Name, Side], rounds: int) -> dict[Name, list[Timing]]:
    """Return each side's timings, round by round. Every second round runs the sides in reverse order."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(_SideProcess(side)) for name, side in sides.items()}
        timings: dict[Name, list[Timing]] = {name: [] for name in sides}
        for number in range(rounds):
            names = list(sides) if number % 2 == 0 else list(sides)[::-1]
            for name in names:
                timings[name].append(running[name].measure())
    return timings


def time_work(work: Work) -> Timing:
    """Run the work once after a garbage collection, and return the timing."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Timing(time.process_time() - cpu, time.perf_counter() - wall)


class _SideProcess:
    """The process of a side."""

    def __init__(self, side: Side) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, child_connection = context.Pipe()
        self._process = context.Process(target=_serve_side, args=(child_connection, side), daemon=True)
        self._process.start()
        child_connection.close()
        self._connection.recv()  # prepared

    def __enter__(self) -> _SideProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()

    def measure(self) -> Timing:
        self._connection.send("work")
        timing: Timing = self._connection.recv()
        return timing


def _serve_side(connection: Connection, side: Side) -> None:
    work = side.prepare(*side.arguments)
    connection.send("prepared")
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        connection.send(time_work(work))
