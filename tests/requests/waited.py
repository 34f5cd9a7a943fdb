"""Requests whose agents wait for something, tick by tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemming.engine import ticks
from lemming.kernel.journal.turn_report import TickReport
from lemming.testing import FrozenClock, journal_lines

Json = dict[str, Any]

ADDRESSED = {"wake": "addressed"}
NOTHING: Json = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}


def calling(tool: str, **args: Any) -> Json:
    return {**NOTHING, "tool_calls": [{"tool": tool, "args": args}]}


def run(base: Path, clock: FrozenClock | None = None) -> list[TickReport]:
    return list(ticks(base, clock=clock or FrozenClock(), until_quiet=True))


def paid(reports: list[TickReport]) -> list[str]:
    return [turn.agent for report in reports for turn in report.turns if turn.calls and turn.agent != "plan"]


def clocked(base: Path, number: int) -> Iterator[TickReport]:
    return ticks(base, clock=FrozenClock(), interval_s=0, max_ticks=number)


def called(base: Path, tick: int, name: str) -> bool:
    lines = journal_lines(base, tick)
    return any(line["type"] == "model_replied" and line["agent"] == name for line in lines)
