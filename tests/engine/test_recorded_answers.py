"""Answers read back from records: what was written before a call outside, and what nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from lemming.kernel.base.contract import ToolCall
from lemming.kernel.journal.journal_records import Record, ToolFinished, ToolStarted
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.memory import make_memory_effect
from lemming.kernel.tick.recorded_answers import (
    calls_with_side_effects,
    files_written_early,
    make_tool_record,
    restore_result,
)
from lemming.kernel.tools import ToolResult, interrupted_result

A, B = (make_memory_effect("ada", key, 1, "2026-01-01T00:00:00.000Z") for key in "ab")


def finished(index: int, *effects: Any, **more: Any) -> ToolFinished:
    plain = [effect.as_json() for effect in effects]
    return ToolFinished(**{"agent": "ada", "index": index, "tool": "x", "success": True, "output": "",
                           "effects": plain, **more})  # fmt: skip


def started(index: int) -> ToolStarted:
    return ToolStarted(agent="ada", index=index, tool="ring", args={})


@pytest.mark.parametrize(
    ("records", "places"),
    [
        ([finished(0, A), finished(1, B)], []),
        ([finished(0, A), started(1), finished(1, B)], [A.path_key]),
        ([finished(0, B), finished(1, A), started(2)], [A.path_key, B.path_key]),
        ([started(0), finished(0, A)], []),
        ([finished(0, A), started(1), finished(1, B), started(2)], [A.path_key, B.path_key]),
    ],
)
def test_files_are_written_before_the_first_call_outside_that_comes_after_them(
    records: list[Record], places: list[str]
) -> None:
    assert files_written_early(records) == places


def test_each_call_outside_has_its_own_end_or_none() -> None:
    records = [started(0), finished(0, output="rang"), started(1), finished(2, output="other")]
    assert [(it.index, end.output if end else None) for it, end in calls_with_side_effects(records)] == [
        (0, "rang"),
        (1, None),
    ]


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (interrupted_result("the engine stopped").output, "interrupted"),
        ("INTERRUPTED: by the cat", "failed"),
        ("the call; it may or may not have happened", "failed"),
    ],
)
def test_a_record_without_an_outcome_tells_by_its_words_that_nobody_knows(output: str, outcome: str) -> None:
    assert restore_result(finished(0, success=False, output=output)).outcome == outcome


def test_a_result_comes_out_of_its_record_as_it_went_in() -> None:
    verdict = GateVerdict("config/org.json#/gates/0", "call", "warn", "x", "why")
    result = ToolResult(
        False,
        "no",
        (A,),
        passed_on=1.5,
        outcome="refused",
        attempts=2,
        on_error="stop",
        trust={"is": "outside"},
        verdicts=(verdict,),
        entries_by="approvals",
        state={"approvals": {"id": "1"}},
    )
    assert restore_result(make_tool_record("ada", 0, ToolCall("x", {}), result, 7)) == result
