"""The proof can fail: each rule of the protocol, broken, is found out by the trials the engine passes."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from trial import Bill, Over, finish, ideal, moments, survives

from lemming.testing.faults import End

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


def some(number: int) -> bool:
    return number % 4 == 0


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


def test_ids_that_are_not_derived_would_double_entries() -> None:
    start, most = ideal("first_run", "turn").start, 0
    for moment in moments("first_run", "turn", start, Bill(), "kill", bool, breach=IdByAttempt):
        problems = finish("first_run", "turn", moment.left, Bill(moment.paid), IdByAttempt)
        most = max(most, sum("outbox" in problem and "one too many" in problem for problem in problems))
    assert most == 2, "one by the run that was killed, one by the next"


def test_without_syncs_power_loss_costs_more_than_the_call_in_flight() -> None:
    tally = survives("plain", "strict", "off", some)
    assert any("paid again" in problem for problem in tally.problems)


def test_with_one_sync_a_tick_power_loss_costs_more_than_the_call_in_flight() -> None:
    assert survives("plain", "strict", "tick", some).most_repeated > 1
