"""How long a tick takes whose models keep it waiting, beside the waiting that cannot be avoided."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import SENTENCE, make
from benchmarks.sides import Side, Work, interleave
from lemming.engine import run_once
from lemming.testing import FrozenClock, say, tree, write_script

FEW, FEW_DELAY_S = 8, 0.1
MANY_DELAY_S = 0.05
SAME_TREE_TICKS = 3


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the wall time of ticks: many turns, few turns at once and in turn, a chain, and the same tree."""
    yield from _many(options, max(options.agents))
    yield from _few(options)
    yield from _chain(options)


def _many(options: Options, count: int) -> Iterator[Measurement]:
    base = waiting(options.place / "many", count, "nobody", MANY_DELAY_S, max_parallel=count)
    case = f"{count:,} turns that read nobody, a model of 50 ms, max_parallel {count:,}"
    target = "at once" if count >= 1000 else ""
    yield _against_sleep(case, base, MANY_DELAY_S, options.rounds, target)


def _few(options: Options) -> Iterator[Measurement]:
    bases = {
        count: waiting(options.place / f"few-{count}", FEW, "nobody", FEW_DELAY_S, max_parallel=count)
        for count in (1, FEW)
    }
    sides = {count: Side(ticking, (base,)) for count, base in bases.items()}
    timings = interleave(sides, options.rounds)
    wall = {count: [timing.wall_s for timing in found] for count, found in timings.items()}
    case = f"{FEW} agents that read nobody, a model of 100 ms"
    yield Measurement.paired(
        wall[1], wall[FEW],
        scale=1e3, unit="ms", case=f"{case}, max_parallel 1", figure="wall a tick",
        floor_is=f"max_parallel {FEW}", target="speed-up",
    )  # fmt: skip
    yield Measurement.counted(
        different_files(options.place / "trees"), case=case, figure="files that differ", target="same tree"
    )


def _chain(options: Options) -> Iterator[Measurement]:
    base = waiting(options.place / "chain", FEW, "one", FEW_DELAY_S, max_parallel=FEW)
    case = f"a ring of {FEW}, each waits for the one before, a model of 100 ms, max_parallel {FEW}"
    yield _against_sleep(case, base, FEW * FEW_DELAY_S, options.rounds)


def _against_sleep(case: str, base: Path, shortest_s: float, rounds: int, target: str = "") -> Measurement:
    timings = interleave({"tick": Side(ticking, (base,)), "sleep": Side(sleeping, (shortest_s,))}, rounds)
    wall = {name: [timing.wall_s for timing in found] for name, found in timings.items()}
    return Measurement.paired(
        wall["tick"], wall["sleep"],
        scale=1e3, unit="ms", case=case, figure="wall a tick", floor_is="the longest chain of answers",
        target=target,
    )  # fmt: skip


def waiting(base: Path, size: int, reading: str, delay_s: float, *, max_parallel: int) -> Path:
    """Make an organisation whose model takes its time."""
    org: dict[str, Any] = {"max_parallel": max_parallel, "durability": "tick"}
    make(base, size, reading, org=org, model="scripted")
    write_script(base, [{"reply": say(SENTENCE), "delay_s": delay_s}])
    return base


def different_files(folder: Path) -> int:
    """Return how many files of the organisation differ after ticks with `max_parallel` 1 and 8."""
    trees = []
    for count in (1, FEW):
        base = waiting(folder / str(count), FEW, "one", 0.001, max_parallel=count)
        for _ in range(SAME_TREE_TICKS):
            run_once(base, clock=FrozenClock())
        trees.append(tree(base, without=(".lemming", "logs", "config")))
    one, other = trees
    return sum(one.get(path) != other.get(path) for path in one.keys() | other.keys())


def ticking(base: Path) -> Work:
    """Return the work of one tick, the organisation opened for it."""
    run_once(base)
    return lambda: run_once(base)


def sleeping(seconds: float) -> Work:
    """Return the work of waiting."""
    return lambda: time.sleep(seconds)
