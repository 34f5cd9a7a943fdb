"""A trial: run an organisation, end the world at chosen moments, run on, and say what has gone wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bill import Bill, overpaid
from corpus import BY_NAME

from lemming.base.errors import CorruptState, DiskError, LemmingError
from lemming.engine import load_tick, persist_tick, recorded_report, run_once
from lemming.files.disk import Disk, disk, on_disk
from lemming.journal.file import Durability, is_committed, journal_ticks
from lemming.testing import FrozenClock, tree
from lemming.testing.faults import (
    ERRORS,
    POWER_LOSS,
    End,
    Image,
    Point,
    Wanted,
    fail_at,
    refuse_look,
    restore,
    take_image,
    watch,
)
from lemming.tick.counter import load_counter
from lemming.tick.reading import previous_reading
from lemming.tick.runtime import open_org
from lemming.timeline.repair.repair import find_repairs, make_repairs

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
SAMPLE_STRIDE, LOOKS_STRIDE = 211, 401


@dataclass(frozen=True)
class Ideal:
    """An organisation before its first tick, and what became of it when nothing went wrong."""

    start: Image
    files: dict[str, bytes]
    calls: frozenset[str]
    totals: list[dict[str, Any]]


@dataclass
class Tally:
    """What a trial came to: the moments tried, the calls repeated, and what was wrong."""

    points: int = 0
    repeated: int = 0
    most_repeated: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, bill: Bill, problems: list[str]) -> None:
        self.points += 1
        self.repeated += len(bill.repeated)
        self.most_repeated = max(self.most_repeated, len(bill.repeated))
        self.problems += problems

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.points + other.points,
            self.repeated + other.repeated,
            max(self.most_repeated, other.most_repeated),
            self.problems + other.problems,
        )


TALLIES: dict[str, Tally] = {}
"""What was tried in this run, for the table of docs/durability.md."""


def run(base: Path, ticks: int, bill: Bill) -> None:
    """Run until the last tick of a case is over, with a fresh engine for every tick.

    After power loss the counter may stand one tick behind the journals: the next run would move it on.
    """
    let_rest(base)
    while (tick := load_tick(base)) + is_committed(base, tick) <= ticks:
        run_once(base, clock=clock_in(base, tick + is_committed(base, tick)), notify=bill.hear)
    if tick <= ticks:
        read_at = previous_reading(base, ticks + 1, [ticks]) if load_counter(base)[1] else ""
        persist_tick(base, ticks + 1, read_at=read_at)


def clock_in(base: Path, tick: int) -> FrozenClock:
    """Return a clock that goes an hour a tick where somebody goes by it, and else stands still."""
    clock = FrozenClock()
    newest = max([tick, *journal_ticks(base)[-1:]])  # the counter may be one behind
    clock.advance(3600 * (newest - 1) * _has_calendar(base))
    return clock


def _has_calendar(base: Path) -> bool:
    """Return whether there is one; the one look that a trial refuses is the engine's."""
    file = base / "config/calendar.json"
    with contextlib.suppress(OSError):
        return file.exists()
    return file.exists()


def let_rest(base: Path) -> None:
    """Let a resume that is no JSON look as if it had stood there for long: nobody is saving it."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(base / "agents/torn/resume.json", (0, 0))


def totals(base: Path, ticks: int) -> list[dict[str, Any]]:
    """Return what the journals say of every tick."""
    reports = [recorded_report(base, tick) for tick in range(1, ticks + 1)]
    return [report.totals if report else {} for report in reports]


@cache
def ideal(name: str, durability: Durability) -> Ideal:
    case, bill = BY_NAME[name], Bill()
    with folder() as base:
        case.build(base, {"durability": durability, "max_parallel": case.at_once})
        start = take_image(base)
        run(base, case.ticks, bill)
        assert not bill.repeated
        return Ideal(start, tree(base), frozenset(bill.calls), totals(base, case.ticks))


class folder:  # noqa: N801 - used like a function
    """A new folder, which is gone when the block ends."""

    def __enter__(self) -> Path:
        self._above = Path(mkdtemp(prefix="lemming-crash-"))
        return self._above / "org"

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._above)


def sample(*what: object, every: int = SAMPLE_STRIDE) -> Wanted:
    """Return which points of a trial are tried: all, or every n-th from a first one that differs by trial."""
    if EVERYTHING:
        return lambda _: True
    first = zlib.crc32(repr(what).encode()) % every
    return lambda number: number % every == first or number == 1 + first % 13


class Over(Disk):
    """The disk in place, with whatever a subclass does otherwise."""

    def __init__(self) -> None:
        self.below = disk()

    def write(self, descriptor: int, content: bytes) -> int:
        return self.below.write(descriptor, content)

    def truncate(self, descriptor: int, size: int) -> None:
        self.below.truncate(descriptor, size)

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        self.below.rename(source, target, source_folder, folder)

    def sync(self, descriptor: int) -> None:
        self.below.sync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        self.below.sync_folder(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        self.below.sync_file_system(descriptor)


def survives(
    name: str,
    end: End,
    durability: Durability,
    wanted: Wanted,
    *,
    seed: int = 0,
    breach: type[Over] = Over,
) -> Tally:
    """End the world at the wanted moments of a run, run on from each, and compare.

    `breach` is a disk on which a rule of the protocol does not hold.
    """
    tally, is_power_loss, start = Tally(), end in POWER_LOSS, ideal(name, durability).start
    for moment in moments(name, durability, start, Bill(), end, wanted, seed, breach):
        bill = Bill(moment.paid)
        problems = [] if is_power_loss else torn_files(moment.left)
        problems += finish(name, durability, moment.left, bill, breach, may_repair=end == "blocks")
        most = BY_NAME[name].at_once
        problems += overpaid(bill, most, whole_tick=is_power_loss and durability == "tick")
        tally.add(bill, [f"{name}, {durability}, {end} at {moment.where}: {problem}" for problem in problems])
    return tally


def survives_twice(name: str, durability: Durability, first: Wanted, then: Wanted) -> Tally:
    """Kill a run, kill the run that recovers from it, run on, and compare."""
    tally = Tally()
    for one in moments(name, durability, ideal(name, durability).start, Bill(), "kill", first):
        for two in moments(name, durability, one.left, Bill(one.paid), "kill", then):
            bill = Bill(two.paid)
            problems = finish(name, durability, two.left, bill)
            problems += overpaid(bill, 2 * BY_NAME[name].at_once)
            where = f"{name}, killed at {one.where}, its recovery at {two.where}"
            tally.add(bill, [f"{where}: {problem}" for problem in problems])
    return tally


def survives_error(name: str, durability: Durability, fault: str, wanted: Wanted) -> Tally:
    """Let one change of the disk fail, once or from then on, repair the disk, run on, and compare.

    `fault` is an error's name; with "lasting" before it the disk refuses until it is repaired, and the
    engine is started twice in vain; with "half" a write fails after half of its bytes.
    """
    *how, error = fault.split()
    tally, number = Tally(), 0
    while True:
        number += 1
        if not wanted(number):
            continue
        bill = Bill()
        with folder() as base:
            restore(ideal(name, durability).start, base)
            with fail_at(number, ERRORS[error], lasting="lasting" in how, half="half" in how) as changes:
                attempts = 3 if "lasting" in how else 1
                problems = [*_run_in_vain(base, BY_NAME[name].ticks, bill, attempts)]
            if len(changes) < number:
                assert not problems
                return tally
            problems += finish(name, durability, take_image(base), bill)
            problems += overpaid(bill, BY_NAME[name].at_once)
        tally.add(bill, [f"{name}, {fault} at {number}, {changes[-1]}: {problem}" for problem in problems])


def survives_refused_look(name: str, durability: Durability, error: str, wanted: Wanted) -> Tally:
    """Refuse one look at the disk, let the engine stop or go on, run on, and compare."""
    tally, number = Tally(), 0
    while True:
        number += 1
        if not wanted(number):
            continue
        bill = Bill()
        with folder() as base:
            restore(ideal(name, durability).start, base)
            with refuse_look(base, number, ERRORS[error]) as looks:
                problems = [*_run_in_vain(base, BY_NAME[name].ticks, bill, 1)]
            if len(looks) < number:
                return tally
            problems += finish(name, durability, take_image(base), bill)
            problems += overpaid(bill, BY_NAME[name].at_once)
        at = f"{name}, {error} at look {number}, {looks[number - 1]}"
        tally.add(bill, [f"{at}: {problem}" for problem in problems])


def _run_in_vain(base: Path, ticks: int, bill: Bill, attempts: int) -> Iterator[str]:
    """Run on a disk that refuses: the engine must stop, say what to do, and pay nothing more."""
    for attempt in range(attempts):
        paid = len(bill.calls)
        try:
            run(base, ticks, bill)
        except DiskError as error:
            if not error.hint:
                yield f"{error} has no hint"
        if attempt and len(bill.calls) > paid:
            yield "a disk that refuses was found out only after a model was paid"


@dataclass(frozen=True)
class Moment:
    """An end of the world: where, what it left, and which calls had been asked for."""

    where: str
    left: Image
    paid: list[str]


def moments(
    name: str,
    durability: Durability,
    start: Image,
    bill: Bill,
    end: End,
    wanted: Wanted,
    seed: int = 0,
    breach: type[Over] = Over,
) -> list[Moment]:
    """Run once from an image, and return the wanted ends."""
    found: list[Moment] = []

    def hear(point: Point) -> None:
        found.append(Moment(f"{point.number}, {point.change}", point.left, [*bill.calls]))

    with folder() as base:
        restore(start, base)
        with watch(base, end, hear, wanted=wanted, seed=seed), on_disk(breach()):
            run(base, BY_NAME[name].ticks, bill)
    return found


def finish(
    name: str,
    durability: Durability,
    left: Image,
    bill: Bill,
    breach: type[Over] = Over,
    *,
    may_repair: bool = False,
) -> list[str]:
    """Run on from what an end left, and say how the outcome differs from that of a run in peace.

    With `may_repair`, the engine may stop at a damaged journal, and `lemming repair --yes` helps.
    """
    case, expected = BY_NAME[name], ideal(name, durability)
    with folder() as base:
        restore(left, base)
        try:
            with on_disk(breach()):
                try:
                    run(base, case.ticks, bill)
                except CorruptState as error:
                    if not may_repair or not error.where.startswith("logs/ticks/"):
                        raise
                    repair(base)
                    run(base, case.ticks, bill)
            if case.has_limits and has_lost(base):
                return []
            return list(differences(expected, base, case.ticks, bill))
        except LemmingError as error:
            return [f"the next run stopped: {error}"]


def has_lost(base: Path) -> bool:
    """Return whether a kill took calls along that count as spent."""
    return any(b'"lost":' in file.read_bytes() for file in base.glob("agents/*/turns.jsonl"))


def repair(base: Path) -> None:
    """Do what `lemming repair --yes` does."""
    with open_org(base, command="repair") as runtime:
        make_repairs(runtime, [found for found in find_repairs(base) if found.steps])
    shutil.rmtree(base / "aside", ignore_errors=True)


def differences(expected: Ideal, base: Path, ticks: int, bill: Bill) -> Iterator[str]:
    found = tree(base)
    for path in sorted(expected.files.keys() | found.keys()):
        if path not in found:
            yield f"{path} is lost"
        elif path not in expected.files:
            yield f"{path} is one too many"
        elif found[path] != expected.files[path]:
            yield f"{path} differs: {found[path]!r} instead of {expected.files[path]!r}"
    told = totals(base, ticks)
    last = max(number for number, total in enumerate(expected.totals) if total)
    told[last] = told[last] or expected.totals[last]  # a journal that lacks its end: the next run closes it
    # What was removed in peace may be there still: packing is not tried again before the next hundred.
    told = [total if was else {} for total, was in zip(told, expected.totals, strict=True)]
    if told != expected.totals:
        yield f"the journals tell of {told} instead of {expected.totals}"
    if set(bill.calls) != expected.calls:
        yield f"other calls: {sorted(set(bill.calls) ^ expected.calls)}"


def torn_files(left: Image) -> list[str]:
    """Say which files a reader would have found torn at that moment."""
    torn = []
    for path, content in left.items():
        hidden = any(part.startswith(".") for part in path.split("/"))
        was_torn = path in ("agents/torn/resume.json", "agents/ada/memory/plan.json")
        if content is None or hidden or was_torn or not path.endswith(".json"):
            continue
        try:
            json.loads(content)
        except ValueError:
            torn.append(f"{path} is torn")
    return torn
