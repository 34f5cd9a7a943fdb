"""Two or more pieces of work, measured in turn: each in a process of its own, one working at a time.

What is compared runs within the same second, so that a slow minute of the machine slows both; and the
heap of one is not walked by the other's garbage collector.
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
    """One thing to be measured: `prepare(*arguments)`, called in the new process, returns the work."""

    prepare: Callable[..., Work]
    arguments: tuple[Any, ...] = ()


def interleave(sides: Mapping[Name, Side], rounds: int) -> dict[Name, list[Timing]]:
    """Return each side's timings, round by round; every other round goes through the sides backwards."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(_Running(side)) for name, side in sides.items()}
        timings: dict[Name, list[Timing]] = {name: [] for name in sides}
        for number in range(rounds):
            names = list(sides) if number % 2 == 0 else list(sides)[::-1]
            for name in names:
                timings[name].append(running[name].measure())
    return timings


def timed(work: Work) -> Timing:
    """Do the work once, with the garbage of what came before it swept away."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Timing(time.process_time() - cpu, time.perf_counter() - wall)


class _Running:
    """A side's process."""

    def __init__(self, side: Side) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, side), daemon=True)
        self._process.start()
        there.close()
        self._here.recv()  # prepared

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._here.close()
        self._process.join()

    def measure(self) -> Timing:
        self._here.send("work")
        timing: Timing = self._here.recv()
        return timing


def _serve(there: Connection, side: Side) -> None:
    work = side.prepare(*side.arguments)
    there.send("prepared")
    while True:
        try:
            there.recv()
        except EOFError:
            return
        there.send(timed(work))
