"""What comes after an end of the world: ticks run on from what it left, compared with a run in peace.

A tick starts from files and from nothing else, with a fresh engine, so files that were run on from before,
byte for byte, come to what they came to then: they are not run again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bill import Bill
from corpus import BY_NAME, Case
from fault_injection import Image, take_image
from peace import Ideal, folder, ideal, put_back, take_tick, totals

from lemming.journal_tools.repair.damage_repair import find_repairs, make_repairs
from lemming.kernel.base.errors import CorruptState, LemmingError
from lemming.kernel.files.disk import Disk, current_disk, use_disk
from lemming.kernel.journal.journal_file import Durability
from lemming.operations.open_org import open_org
from lemming.testing import tree


class Over(Disk):
    """The disk in place, with whatever a subclass does otherwise."""

    def __init__(self) -> None:
        self.below = current_disk()

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


@dataclass(frozen=True)
class Step:
    """What a tick made of some files: the calls that it asked for, and a digest of the files then.

    `after` is None when the run is over; then `problems` says what is wrong, and `is_whole` whether all the
    calls of a run in peace must have been asked for. `damage`: why the engine stopped at a journal, which was
    then repaired.
    """

    calls: list[str]
    after: bytes | None = None
    problems: tuple[str, ...] = ()
    is_whole: bool = False
    damage: str = ""


Steps = dict[bytes, Step]
"""By a digest of the files that a tick started from."""
_KNOWN: dict[tuple[str, Durability], Steps] = {}


def finish(
    name: str, durability: Durability, left: Image, bill: Bill, breach: type[Over] = Over, *, may_repair: bool = False
) -> list[str]:
    """Run on from what an end left, and say how the outcome differs from that of a run in peace.

    With `may_repair`, the engine may stop at a damaged journal once, and `lemming repair --yes` helps.
    """
    expected = ideal(name, durability)
    known = _KNOWN.setdefault((name, durability), {}) if breach is Over else {}
    at = digest(left)
    bill.is_known = at in known
    if not bill.is_known:
        known.update(_run_on(BY_NAME[name], expected, left, breach, known))
    while True:
        step = known[at]
        bill.calls += step.calls
        if step.damage and not may_repair:
            return [f"the next run stopped: {step.damage}"]
        may_repair = may_repair and not step.damage
        if step.after is None:
            break
        at = step.after
    problems = [*step.problems]
    if step.is_whole and set(bill.calls) != expected.calls:
        problems.append(f"other calls: {sorted(set(bill.calls) ^ expected.calls)}")
    return problems


def _run_on(case: Case, expected: Ideal, left: Image, breach: type[Over], known: Steps) -> Steps:
    """Return the steps from what an end left to the end of the run, or to files that are known."""
    found: Steps = {}
    at: bytes | None = digest(left)
    with folder() as base:
        put_back(left, base)
        with use_disk(breach()):
            while at is not None and at not in known:
                step = _step(case, expected, base)
                assert at not in found, "a tick that changes nothing would be taken for ever"
                found[at], at = step, step.after
    return found


def _step(case: Case, expected: Ideal, base: Path) -> Step:
    """Run the next tick, or compare when there is none."""
    bill, damage = Bill(), ""
    try:
        try:
            goes_on = take_tick(base, case.ticks, bill)
        except CorruptState as error:
            if not error.where.startswith("logs/ticks/"):
                raise
            damage = str(error)
            _repair(base)
            goes_on = take_tick(base, case.ticks, bill)
        if goes_on:
            return Step(bill.calls, digest(take_image(base)), damage=damage)
        if case.has_limits and _has_lost(base):
            return Step(bill.calls, damage=damage)
        return Step(bill.calls, None, (*differences(expected, base, case.ticks),), True, damage)
    except LemmingError as error:
        return Step(bill.calls, problems=(f"the next run stopped: {error}",), damage=damage)


def digest(image: Image) -> bytes:
    """Return a digest of all that stands in an image; of logs, which no engine reads, of their names."""
    whole = hashlib.blake2b(digest_size=20)
    for path, content in sorted(image.items()):
        if path.endswith(".log"):
            content = b""
        size = -1 if content is None else len(content)
        whole.update(f"{len(path)} {path} {size} ".encode())
        whole.update(content or b"")
    return whole.digest()


def _has_lost(base: Path) -> bool:
    """Return whether a kill took calls along that count as spent."""
    return any(b'"lost":' in file.read_bytes() for file in base.glob("agents/*/turns.jsonl"))


def _repair(base: Path) -> None:
    """Do what `lemming repair --yes` does."""
    with open_org(base, command="repair") as runtime:
        make_repairs(runtime, [found for found in find_repairs(base) if found.steps])
    shutil.rmtree(base / "aside", ignore_errors=True)


def differences(expected: Ideal, base: Path, ticks: int) -> Iterator[str]:
    """Say which files, and which totals of the journals, are not as in a run in peace."""
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
