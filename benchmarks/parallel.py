"""Duration of a tick with slow models, against the unavoidable waiting time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import SENTENCE, make_benchmark_org
from benchmarks.sides import Side, Work, interleave
from lemming.engine import run_once
from lemming.testing import FrozenClock, say, tree, write_script

FEW_AGENTS, FEW_DELAY_S = 8, 0.1
MANY_DELAY_S = 0.05
SAME_TREE_TICKS = 3


def measure(options: Options) -> Iterator[Measurement]:
    """Yield wall times: many concurrent turns, few turns concurrent and in sequence, a chain, and the file
    comparison.
    """
    yield from _measure_many(options, max(options.agents))
    yield from _measure_few(options)
    yield from _measure_chain(options)


def _measure_many(options: Options, count: int) -> Iterator[Measurement]:
    base = make_slow_org(options.folder / "many", count, "nobody", MANY_DELAY_S, max_parallel=count)
    case = f"{count:,} turns that read nobody, a model of 50 ms, max_parallel {count:,}"
    target = "at once" if count >= 1000 else ""
    yield _compare_with_sleep(case, base, MANY_DELAY_S, options.rounds, target)


def _measure_few(options: Options) -> Iterator[Measurement]:
    bases = {
        count: make_slow_org(options.folder / f"few-{count}", FEW_AGENTS, "nobody", FEW_DELAY_S, max_parallel=count)
        for count in (1, FEW_AGENTS)
    }
    sides = {count: Side(make_tick_work, (base,)) for count, base in bases.items()}
    timings = interleave(sides, options.rounds)
    wall = {count: [timing.wall_s for timing in side_timings] for count, side_timings in timings.items()}
    case = f"{FEW_AGENTS} agents that read nobody, a model of 100 ms"
    yield Measurement.from_pairs(
        wall[1], wall[FEW_AGENTS],
        scale=1e3, unit="ms", case=f"{case}, max_parallel 1", figure="wall a tick",
        floor_is=f"max_parallel {FEW_AGENTS}", target="speed-up",
    )  # fmt: skip
    yield Measurement.from_count(
        count_different_files(options.folder / "trees"), case=case, figure="files that differ", target="same tree"
    )


def _measure_chain(options: Options) -> Iterator[Measurement]:
    base = make_slow_org(options.folder / "chain", FEW_AGENTS, "one", FEW_DELAY_S, max_parallel=FEW_AGENTS)
    case = f"a ring of {FEW_AGENTS}, each waits for the one before, a model of 100 ms, max_parallel {FEW_AGENTS}"
    yield _compare_with_sleep(case, base, FEW_AGENTS * FEW_DELAY_S, options.rounds)


def _compare_with_sleep(case: str, base: Path, shortest_s: float, rounds: int, target: str = "") -> Measurement:
    timings = interleave({"tick": Side(make_tick_work, (base,)), "sleep": Side(make_sleep_work, (shortest_s,))}, rounds)
    wall = {name: [timing.wall_s for timing in side_timings] for name, side_timings in timings.items()}
    return Measurement.from_pairs(
        wall["tick"], wall["sleep"],
        scale=1e3, unit="ms", case=case, figure="wall a tick", floor_is="the longest chain of answers",
        target=target,
    )  # fmt: skip


def make_slow_org(base: Path, size: int, reading: str, delay_s: float, *, max_parallel: int) -> Path:
    """Make an organisation with a slow model."""
    org: dict[str, Any] = {"max_parallel": max_parallel, "durability": "tick"}
    make_benchmark_org(base, size, reading, org=org, model="scripted")
    write_script(base, [{"reply": say(SENTENCE), "delay_s": delay_s}])
    return base


def count_different_files(folder: Path) -> int:
    """Return the number of files that differ after ticks with `max_parallel` 1 and 8."""
    trees = []
    for count in (1, FEW_AGENTS):
        base = make_slow_org(folder / str(count), FEW_AGENTS, "one", 0.001, max_parallel=count)
        for _ in range(SAME_TREE_TICKS):
            run_once(base, clock=FrozenClock())
        trees.append(tree(base, without=(".lemming", "logs", "config")))
    first_tree, second_tree = trees
    return sum(first_tree.get(path) != second_tree.get(path) for path in first_tree.keys() | second_tree.keys())


def make_tick_work(base: Path) -> Work:
    """Return work that opens the organisation and runs a tick."""
    run_once(base)
    return lambda: run_once(base)


def make_sleep_work(seconds: float) -> Work:
    """Return work that sleeps."""
    return lambda: time.sleep(seconds)
