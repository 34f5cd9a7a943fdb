"""Overhead of the engine for a turn with an immediate model, as a ratio to the floor `files_tmp`.

At every size a single factor at a time differs from the first case (a neighbour read, empty outboxes,
durability "off", unless the command line changes the case); with `is_full` several factors. All cases run in
the same rounds, so every pair is comparable.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.bare import make_bare_work
from benchmarks.floor import files_tmp
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import WARM_TICKS, make_aged_org, make_benchmark_org, running
from benchmarks.sides import Side, interleave

TURNS_PER_ROUND = 200
AGED_AGENTS = 10
LARGE_SIZE = 1000  # from here on the number of agents has a target of its own


@dataclass(frozen=True)
class Case:
    """An organisation to measure, or without a durability the floor `files_tmp`."""

    agents: int
    reading: str = "one"
    entries: int = 0
    durability: str = ""
    age: int = 0
    is_bare: bool = False

    def __str__(self) -> str:
        if not self.durability:
            return "files_tmp"
        if self.is_bare:
            return "the same work, bare"
        reading = {"one": "read one neighbour", "all": "read all"}[self.reading]
        entries = f", {self.entries} entries each" if self.entries else ""
        age = f", after {self.age:,} ticks" if self.age else ""
        return f"{self.agents:,} agents, {reading}{entries}{age}, {self.durability}"

    @property
    def floor(self) -> Case:
        """The floor of the case."""
        return Case(self.agents, self.reading)

    @property
    def ticks(self) -> int:
        """The number of ticks in a round."""
        return max(1, TURNS_PER_ROUND // self.agents)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU and the wall time of a turn in every case, then the cost of each factor."""
    cases = _build_cases(options)
    sides: dict[Case, Side] = {}
    for case in cases:
        sides.setdefault(case.floor, _make_floor_side(case.floor, options.folder))
        sides[case] = _make_engine_side(case, options)
        if _is_base_case(case):
            bare_case = replace(case, is_bare=True)
            sides[bare_case] = _make_bare_side(bare_case, options)
    timings = interleave(sides, options.rounds)
    cpu = {
        case: _divide_by_turns([timing.cpu_s for timing in side_timings], case)
        for case, side_timings in timings.items()
    }
    wall = {
        case: _divide_by_turns([timing.wall_s for timing in side_timings], case)
        for case, side_timings in timings.items()
    }
    for case in cases:
        yield _make_row(case, "CPU a turn", cpu, case.floor, "turn" if _is_base_case(case) else "")
        yield _make_row(case, "wall a turn", wall, case.floor)
        if _is_base_case(case):
            bare_case = replace(case, is_bare=True)
            yield _make_row(case, "CPU a turn", cpu, bare_case)
            yield _make_row(case, "wall a turn", wall, bare_case)
            yield _make_row(bare_case, "CPU a turn", cpu, case.floor)
    yield from _compare_factors(cases, cpu)


def _build_cases(options: Options) -> list[Case]:
    """Return the cases: at every size all cases with at most a single factor different from the first case."""
    factors = (options.reading, options.entries, options.durability)
    first = tuple(values_of_option[0] for values_of_option in factors)
    cases = [
        Case(agents, *values)
        for agents in options.agents
        for values in itertools.product(*factors)
        if options.is_full or sum(map(operator.ne, values, first)) <= 1
    ]
    return cases + [Case(AGED_AGENTS, "one", 0, "off", age) for age in options.ages]


def _is_base_case(case: Case) -> bool:
    return replace(case, durability="") == Case(100)


def _compare_factors(cases: list[Case], cpu: dict[Case, list[float]]) -> Iterator[Measurement]:
    """Yield each case against the case without a single factor, if both were measured."""
    for case in cases:
        size = "size" if case.agents >= LARGE_SIZE else ""
        comparisons = [
            ("10 agents", replace(case, agents=10), size),
            ("reading one", replace(case, reading="one"), "reading"),
            ("no entries", replace(case, entries=0), "entries"),
            ("after 100 ticks", replace(case, age=min(case.age, 100)), "age"),
        ]
        for label, other_case, target in comparisons:
            if other_case != case and other_case in cpu:
                yield _make_row(case, f"CPU a turn, against {label}", cpu, other_case, target)


def _make_row(case: Case, figure: str, times: dict[Case, list[float]], floor: Case, target: str = "") -> Measurement:
    return Measurement.from_pairs(
        times[case], times[floor],
        scale=1e6, unit="us", case=str(case), figure=figure, floor_is=str(floor), target=target,
    )  # fmt: skip


def _divide_by_turns(seconds: list[float], case: Case) -> list[float]:
    return [value / (case.ticks * case.agents) for value in seconds]


def _make_floor_side(case: Case, parent: Path) -> Side:
    folder = parent / f"floor-{case.agents}-{case.reading}"
    return Side(files_tmp, (folder, case.agents, case.reading, case.ticks))


def _make_engine_side(case: Case, options: Options) -> Side:
    base = make_aged_org(options, case.agents, case.age) if case.age else _make_young_org(case, options)
    return Side(running, (base, case.ticks, WARM_TICKS[case.reading]))


def _make_bare_side(case: Case, options: Options) -> Side:
    return Side(make_bare_work, (_make_young_org(case, options), case.agents, case.ticks))


def _make_young_org(case: Case, options: Options) -> Path:
    name = "-".join(map(str, dataclasses.astuple(case)))
    org = {"durability": case.durability}
    return make_benchmark_org(options.folder / name, case.agents, case.reading, entries=case.entries, org=org)
