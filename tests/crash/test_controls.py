"""The proof can fail: each rule of the protocol, broken, is found out by the trials the engine passes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import ClassVar

import pytest
from afterwards import Over, finish
from bill import Bill, overpaid
from corpus import BY_NAME
from fault_injection import End, Image, restore_image, take_image
from peace import folder, ideal, run
from trial import moments, survives

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.disk import use_disk
from lemming.kernel.journal.ledger import read_state

pytestmark = pytest.mark.crash


class AnswerNotSynced(Over):
    """An answer is used before it is safe."""

    def sync(self, descriptor: int) -> None:
        is_journal = os.pread(descriptor, 8, 0) == b'{"type":'
        if not is_journal:
            super().sync(descriptor)


class CounterNotSynced(Over):
    """The first `tick.json` is named before its bytes are safe."""

    def sync(self, descriptor: int) -> None:
        is_journal = os.pread(descriptor, 8, 0) == b'{"type":'
        if is_journal:
            super().sync(descriptor)


class NoNameSynced(Over):
    """A journal's bytes are safe, and the journal has no name."""

    def sync_folder(self, descriptor: int) -> None:
        pass


class CountedTooEarly(Over):
    """The tick counter moves on before the tick's files are safe."""

    def sync_file_system(self, descriptor: int) -> None:
        pass


class TornLineKept(Over):
    """What a crash left of a line stays, and the next line is added to it."""

    def truncate(self, descriptor: int, size: int) -> None:
        pass


class WrittenInPlace(Over):
    """A file gets its bytes where readers look for it."""

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        beside = os.open(source, os.O_RDONLY, dir_fd=source_folder)
        place = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=folder)
        self.write(place, os.read(beside, os.fstat(beside).st_size))
        os.unlink(source, dir_fd=source_folder)
        os.close(beside)
        os.close(place)


class AnsweredLate(Over):
    """The journal hears of a turn's answers when its files are written: effects before answers."""

    def __init__(self) -> None:
        super().__init__()
        self.held = b""

    def write(self, descriptor: int, content: bytes) -> int:
        if content.startswith((b'{"type":"turn_started"', b'{"type":"model_', b'{"type":"tool_')):
            self.held += content
            return len(content)
        if content.startswith(b'{"type":') and self.held:
            self.below.write(descriptor, self.held)
            self.held = b""
        return self.below.write(descriptor, content)


class IdByAttempt(Over):
    """An entry's id depends on the attempt that wrote it."""

    attempts: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        IdByAttempt.attempts += 1

    def rename(self, source: str, target: str, source_folder: int, folder: int) -> None:
        is_entry = target.startswith("0000")
        name = f"{target[:9]}{IdByAttempt.attempts:012d}.json" if is_entry else target
        super().rename(source, name, source_folder, folder)


class CountedOnTop(Over):
    """A line of the ledger adds what the turn cost to the line before, instead of saying the total."""

    def truncate(self, descriptor: int, size: int) -> None:
        if os.pread(descriptor, 8, 0) != b'{"tick":':
            super().truncate(descriptor, size)

    def write(self, descriptor: int, content: bytes) -> int:
        if not content.startswith(b'{"tick":'):
            return super().write(descriptor, content)
        lines = os.pread(descriptor, 1 << 20, 0).splitlines()
        before = json.loads(lines[-1])["credits"] if lines else 0.0
        line = {**json.loads(content), "cost": 1.0, "credits": before + 1.0}
        super().write(descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return len(content)


class FailsOnce(Over):
    """A disk on which the sync with this number fails and what it was to keep is lost.

    As on Linux: the bytes can still be read, and the next sync of that file reports success.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.count, self.safe = number, 0, dict[int, int]()
        self.lost = (0, 0, 0)  # inode, and from which byte to which

    def sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.count += 1
        if self.count == self.number:
            self.lost = (status.st_ino, self.safe.get(status.st_ino, 0), status.st_size)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.safe[status.st_ino] = status.st_size

    def after_power_loss(self, base: Path) -> Image:
        """Return what is there once the power has gone: all but what was lost, which is zeros."""
        left, (inode, start, end) = take_image(base), self.lost
        for path, content in left.items():
            if content and (base / path).stat().st_ino == inode:
                left[path] = content[:start] + b"\0" * (end - start) + content[end:]
        return left


class SyncRetried(FailsOnce):
    """A sync that failed is tried again, and believed."""

    def sync(self, descriptor: int) -> None:
        try:
            super().sync(descriptor)
        except OSError:
            super().sync(descriptor)


def some(number: int) -> bool:
    return number % 4 == 0


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("breach", "case", "end", "found"),
    [
        (AnswerNotSynced, "plain", "strict", "paid again"),
        (CounterNotSynced, "plain", "names", "cannot read the tick counter"),
        (NoNameSynced, "plain", "strict", "paid again"),
        (CountedTooEarly, "plain", "names", "cannot read the tick counter"),
        (TornLineKept, "plain", "torn", "the journal is damaged"),
        (WrittenInPlace, "plain", "torn", "is torn"),
        (AnsweredLate, "tools", "kill", "paid again"),
        (AnsweredLate, "plain", "kill", "turns.jsonl differs"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_a_broken_rule_is_found_out(breach: type[Over], case: str, end: End, found: str) -> None:
    tally = survives(case, end, "turn", some, breach=breach)
    assert any(found in problem for problem in tally.problems), tally.problems[:3]


@pytest.mark.long
def test_ids_that_are_not_derived_would_double_entries() -> None:
    start, most = ideal("first_run", "turn").start, 0
    for moment in moments("first_run", "turn", start, Bill(), "kill", bool, breach=IdByAttempt):
        problems = finish("first_run", "turn", moment.left, Bill(moment.paid), IdByAttempt)
        most = max(most, sum("outbox" in problem and "one too many" in problem for problem in problems))
    assert most == 2, "one by the run that was killed, one by the next"


def test_without_syncs_power_loss_costs_more_than_the_call_in_flight() -> None:
    tally = survives("plain", "strict", "off", some)
    assert any("paid again" in problem for problem in tally.problems)


@pytest.mark.long
def test_with_one_sync_a_tick_power_loss_costs_more_than_the_call_in_flight() -> None:
    assert survives("plain", "strict", "tick", some).most_repeated > 1


def credits_after_a_kill(breach: type[Over]) -> set[float]:
    """Return what the ledger says was spent by the one call of a run, wherever the run was killed."""
    found = set()
    for moment in moments("first_run", "turn", ideal("first_run", "turn").start, Bill(), "kill", bool, breach=breach):
        with folder() as base, use_disk(breach()):
            restore_image(moment.left, base)
            run(base, 1, Bill(moment.paid))
            found.add(read_state(base, "ada").credits)
    return found


def test_a_ledger_of_increments_would_count_a_call_twice_after_a_crash() -> None:
    assert credits_after_a_kill(Over) == {1.0}
    assert credits_after_a_kill(CountedOnTop) == {1.0, 2.0}


def run_on_a_failing_disk(failing: FailsOnce) -> list[str]:
    """Let one sync of a run fail and the power go when it has ended; say what is wrong after the next run."""
    bill = Bill()
    with folder() as base:
        restore_image(ideal("plain", "turn").start, base)
        with use_disk(failing):
            try:
                run(base, BY_NAME["plain"].ticks, bill)
            except DiskError:
                assert failing.count == failing.number, "no sync comes after one that failed"
        left = failing.after_power_loss(base)
    return finish("plain", "turn", left, bill) + overpaid(bill, 1)


def test_a_failed_sync_that_is_tried_again_would_lose_what_it_was_to_keep() -> None:
    calm = FailsOnce(0)
    run_on_a_failing_disk(calm)
    syncs = range(1, calm.count + 1)
    assert [problem for number in syncs for problem in run_on_a_failing_disk(FailsOnce(number))] == []
    found = [problem for number in syncs for problem in run_on_a_failing_disk(SyncRetried(number))]
    assert any("the journal is damaged" in problem for problem in found), found[:3]
