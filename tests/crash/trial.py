"""A trial: run an organisation, end the world at chosen moments, run on, and say what has gone wrong."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from afterwards import Over, finish
from bill import Bill, overpaid
from corpus import BY_NAME
from fault_injection import (
    ERRORS,
    POWER_LOSS,
    CrashPoint,
    End,
    Image,
    PointFilter,
    fail_nth_change,
    fail_nth_lookup,
    restore_image,
    take_image,
    watch_crash_points,
)
from peace import folder, ideal, put_back, run, take_tick, thrifty
from results import Tally
from sampling import EVERYTHING

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.disk import use_disk
from lemming.kernel.journal.journal_file import Durability

SAMPLE_STRIDE, LOOKS_STRIDE = 401, 809


def sample(*what: object, every: int = SAMPLE_STRIDE) -> PointFilter:
    """Return which points of a trial are tried: all, or every n-th from a first one that differs by trial."""
    if EVERYTHING:
        return lambda _: True
    first = zlib.crc32(repr(what).encode()) % every
    return lambda number: number % every == first or number == 1 + first % 13


def survives(
    name: str, end: End, durability: Durability, wanted: PointFilter, *, seed: int = 0, breach: type[Over] = Over
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


def survives_twice(name: str, durability: Durability, first: PointFilter, then: PointFilter) -> Tally:
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


def survives_error(name: str, durability: Durability, fault: str, wanted: PointFilter) -> Tally:
    """Let one change of the disk fail, once or from then on, repair the disk, run on, and compare.

    `fault` is an error's name; with "lasting" before it the disk refuses until it is repaired, and the
    engine is started twice in vain; with "half" a write fails after half of its bytes.
    """
    *how, error = fault.split()
    half, lasting = "half" in how, "lasting" in how

    def refuse(_: Path, number: int) -> Refusing:
        return fail_nth_change(number, ERRORS[error], lasting=lasting and number > 0, half=half)

    attempts = 3 if lasting else 1
    return _survives_refusals(name, durability, fault, refuse, "write" if half else "change", wanted, attempts)


def survives_refused_look(name: str, durability: Durability, error: str, wanted: PointFilter) -> Tally:
    """Refuse one look at the disk, let the engine stop or go on, run on, and compare."""

    def refuse(base: Path, number: int) -> Refusing:
        return fail_nth_lookup(base, number, ERRORS[error])

    return _survives_refusals(name, durability, error, refuse, "look", wanted, 1)


Refusing = AbstractContextManager[list[str]]
"""A disk that refuses one change, write or look as long as the block runs; the list of all so far."""
Refuse = Callable[[Path, int], Refusing]
"""Refuse the one with this number below a folder; that with the number 0 is none."""
_IN_PEACE: dict[tuple[str, Durability, str], list[int]] = {}


def _survives_refusals(
    name: str, durability: Durability, fault: str, refuse: Refuse, what: str, wanted: PointFilter, attempts: int
) -> Tally:
    """Refuse each wanted change, write or look (`what`), in the tick it belongs to, run on, and compare."""
    tally, before, case = Tally(), 0, BY_NAME[name]
    stages = ideal(name, durability).stages
    for stage, count in zip(stages, _counts(name, durability, what, refuse), strict=True):
        number = 0
        while True:
            number += 1
            if not wanted(before + number):
                if number > count:
                    break
                continue
            bill = Bill([*stage.paid])
            with folder() as base:
                put_back(stage.files, base)
                with refuse(base, number) as seen:
                    problems = [*_run_in_vain(base, case.ticks, bill, attempts, seen, number)]
                if len(seen) < number:
                    assert not problems
                    break
                problems += finish(name, durability, take_image(base), bill)
                problems += overpaid(bill, case.at_once)
            at = f"{name}, {fault} at {what} {before + number}, {seen[number - 1]}"
            tally.add(bill, [f"{at}: {problem}" for problem in problems])
        before += count
    return tally


def _counts(name: str, durability: Durability, what: str, refuse: Refuse) -> list[int]:
    """Return how many changes, writes or looks there are in each tick in peace."""
    key = name, durability, what
    if key not in _IN_PEACE:
        counts = []
        for stage in ideal(name, durability).stages:
            with folder() as base:
                put_back(stage.files, base)
                with refuse(base, 0) as seen:
                    take_tick(base, BY_NAME[name].ticks, Bill())
                counts.append(len(seen))
        _IN_PEACE[key] = counts
    return _IN_PEACE[key]


def _run_in_vain(base: Path, ticks: int, bill: Bill, attempts: int, seen: list[str], number: int) -> Iterator[str]:
    """Run on a disk that refuses: the engine must stop, say what to do, and pay nothing more.

    What it refuses once belongs to the first tick; from then on it is as any other disk.
    """
    for attempt in range(attempts):
        paid = len(bill.calls)
        try:
            while take_tick(base, ticks, bill) and attempts > 1 and len(seen) >= number:
                pass
        except DiskError as error:
            if not error.hint:
                yield f"{error} has no hint"
        if attempt and len(bill.calls) > paid:
            yield "a disk that refuses was found out only after a model was paid"
        if len(seen) < number:
            return


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
    wanted: PointFilter,
    seed: int = 0,
    breach: type[Over] = Over,
) -> list[Moment]:
    """Run once from an image, and return the wanted ends."""
    found: list[Moment] = []
    kept: dict[bytes, bytes] = {}

    def hear(point: CrashPoint) -> None:
        left = thrifty(point.image, kept)
        found.append(Moment(f"{point.number}, {point.change}", left, [*bill.calls]))

    with folder() as base:
        restore_image(start, base)
        with watch_crash_points(base, end, hear, is_wanted=wanted, seed=seed), use_disk(breach()):
            run(base, BY_NAME[name].ticks, bill)
    return found


def torn_files(left: Image) -> list[str]:
    """Say which files a reader would have found torn at that moment."""
    torn = []
    for path, content in left.items():
        hidden = any(part.startswith(".") for part in path.split("/"))
        was_torn = path in ("agents/torn/resume.json", "agents/ada/memory/plan.json")
        if content is None or hidden or was_torn or not path.endswith(".json"):
            continue
        if not _is_json(content):
            torn.append(f"{path} is torn")
    return torn


@lru_cache(maxsize=4096)
def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True
