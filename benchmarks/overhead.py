"""What the engine adds to a turn whose model takes no time, as a ratio to the floor `files_tmp`.

One factor at a time is moved away from the first case (one neighbour, nothing in the outboxes, durability
"off", unless the command line says otherwise), at every size; with `is_full` several. All cases run in the
same rounds, so each can be compared with each.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.bare import bare
from benchmarks.floor import files_tmp
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import WARM_TICKS, aged, make, running
from benchmarks.sides import Side, interleave

TURNS_A_ROUND = 200
AGED_AGENTS = 10
LARGE = 1000  # from here on the number of agents has a target of its own


@dataclass(frozen=True)
class Case:
    """An organisation to be measured; without a durability it is the floor `files_tmp`."""

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
        """What it is measured against."""
        return Case(self.agents, self.reading)

    @property
    def ticks(self) -> int:
        """How many ticks make a round."""
        return max(1, TURNS_A_ROUND // self.agents)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU and the wall time of a turn in every case, then what each factor costs."""
    cases = _cases(options)
    sides: dict[Case, Side] = {}
    for case in cases:
        sides.setdefault(case.floor, _floor_side(case.floor, options.place))
        sides[case] = _engine_side(case, options)
        if _is_plain(case):
            same = replace(case, is_bare=True)
            sides[same] = _bare_side(same, options)
    timings = interleave(sides, options.rounds)
    cpu = {case: _per_turn([timing.cpu_s for timing in found], case) for case, found in timings.items()}
    wall = {case: _per_turn([timing.wall_s for timing in found], case) for case, found in timings.items()}
    for case in cases:
        yield _row(case, "CPU a turn", cpu, case.floor, "turn" if _is_plain(case) else "")
        yield _row(case, "wall a turn", wall, case.floor)
        if _is_plain(case):
            same = replace(case, is_bare=True)
            yield _row(case, "CPU a turn", cpu, same)
            yield _row(case, "wall a turn", wall, same)
            yield _row(same, "CPU a turn", cpu, case.floor)
    yield from _factors(cases, cpu)


def _cases(options: Options) -> list[Case]:
    """Return what is measured: at every size all cases that differ from the first in one factor at most."""
    factors = (options.reading, options.entries, options.durability)
    first = tuple(chosen[0] for chosen in factors)
    cases = [
        Case(agents, *values)
        for agents in options.agents
        for values in itertools.product(*factors)
        if options.is_full or sum(map(operator.ne, values, first)) <= 1
    ]
    return cases + [Case(AGED_AGENTS, "one", 0, "off", age) for age in options.ages]


def _is_plain(case: Case) -> bool:
    return replace(case, durability="") == Case(100)


def _factors(cases: list[Case], cpu: dict[Case, list[float]]) -> Iterator[Measurement]:
    """Yield each case against the one that differs in a single factor, where both were measured."""
    for case in cases:
        size = "size" if case.agents >= LARGE else ""
        others = [
            ("10 agents", replace(case, agents=10), size),
            ("reading one", replace(case, reading="one"), "reading"),
            ("no entries", replace(case, entries=0), "entries"),
            ("after 100 ticks", replace(case, age=min(case.age, 100)), "age"),
        ]
        for against, other, target in others:
            if other != case and other in cpu:
                yield _row(case, f"CPU a turn, against {against}", cpu, other, target)


def _row(
    case: Case, figure: str, times: dict[Case, list[float]], floor: Case, target: str = ""
) -> Measurement:
    return Measurement.paired(
        times[case], times[floor],
        scale=1e6, unit="us", case=str(case), figure=figure, floor_is=str(floor), target=target,
    )  # fmt: skip


def _per_turn(seconds: list[float], case: Case) -> list[float]:
    return [each / (case.ticks * case.agents) for each in seconds]


def _floor_side(case: Case, place: Path) -> Side:
    folder = place / f"floor-{case.agents}-{case.reading}"
    return Side(files_tmp, (folder, case.agents, case.reading, case.ticks))


def _engine_side(case: Case, options: Options) -> Side:
    base = aged(options, case.agents, case.age) if case.age else _young(case, options)
    return Side(running, (base, case.ticks, WARM_TICKS[case.reading]))


def _bare_side(case: Case, options: Options) -> Side:
    return Side(bare, (_young(case, options), case.agents, case.ticks))


def _young(case: Case, options: Options) -> Path:
    name = "-".join(map(str, dataclasses.astuple(case)))
    org = {"durability": case.durability}
    return make(options.place / name, case.agents, case.reading, entries=case.entries, org=org)
