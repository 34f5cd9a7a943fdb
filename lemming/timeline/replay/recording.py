"""One recorded tick, ready to be asked; and what it is when a second run of it comes out otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from lemming.errors import LemmingError
from lemming.files.fields import Json
from lemming.files.jsontext import compact, parse, pretty
from lemming.journal.records import (
    ModelFailed,
    ModelReplied,
    Record,
    TickCommitted,
    TickStarted,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    plan_in,
)
from lemming.tick.plan import Plan

NOT_REPEATABLE = ("Interrupted", "DiskError", "NoLongerAllowed")
"""Errors of turns that failed for the engine's or the disk's sake: no answers lead there a second time."""

_CONTEXT_LINES = 2


class Difference(LemmingError):
    """A recorded tick came out otherwise when it was run again. `diff` is a unified diff: recorded, now."""

    code = "LMG-107"

    def __init__(
        self, message: str, *, tick: int, agent: str = "", what: str = "", diff: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, where=f"tick {tick}" + (f", {agent}" if agent else ""), hint=hint)
        self.tick, self.agent, self.what, self.diff = tick, agent, what, diff

    def as_json(self) -> dict[str, Any]:
        """Return the error with the place and the diff."""
        place = {"tick": self.tick, "agent": self.agent, "what": self.what}
        return {**super().as_json(), **place, "diff": self.diff}


@dataclass
class RecordedTick:
    """The records of one tick by what they tell. An empty one has no answers."""

    tick: int = -1
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started: dict[str, TurnStarted] = {}
        self.ended: dict[str, TurnEnded] = {}
        self.answers: dict[tuple[str, int], ModelReplied | ModelFailed] = {}
        self.tools: dict[tuple[str, int], ToolFinished] = {}
        self.announced: set[tuple[str, int]] = set()
        for record in self.records:
            match record:
                case TurnStarted():
                    self.started[record.agent] = record
                case TurnEnded():
                    self.ended[record.about] = record
                case ModelReplied() | ModelFailed():
                    self.answers[record.agent, record.call] = record
                case ToolFinished():
                    self.tools[record.agent, record.index] = record
                case ToolStarted():
                    self.announced.add((record.agent, record.index))

    @property
    def begin(self) -> TickStarted:
        """Its first record."""
        started = plan_in(self.records)
        assert started, f"tick {self.tick} has no journal"
        return started

    @property
    def end(self) -> TickCommitted | None:
        """Its last record, if the tick is over."""
        last = self.records[-1] if self.records else None
        return last if isinstance(last, TickCommitted) else None

    @property
    def plan(self) -> Plan:
        """The plan it was run by."""
        return Plan.of(self.begin)

    def answer(self, agent: str, call: int) -> ModelReplied | ModelFailed:
        """Return the record of a model's answer; raise `Difference` when there is none."""
        try:
            return self.answers[agent, call]
        except KeyError:
            raise self._missing(agent, f"call {call} of its model") from None

    def tool(self, agent: str, index: int) -> ToolFinished:
        """Return the record of a tool call's result; raise `Difference` when there is none."""
        try:
            return self.tools[agent, index]
        except KeyError:
            raise self._missing(agent, f"tool call {index}") from None

    def _missing(self, agent: str, what: str) -> Difference:
        ended = self.ended.get(agent)
        status = (
            f"the recorded turn ended as {ended.report.status}" if ended else "it had no turn in the record"
        )
        reason = f": {ended.report.reason}" if ended and ended.report.reason else ""
        return Difference(
            f"no recorded answer for {what}; {status}{reason}", tick=self.tick, agent=agent, what="answer"
        )


def require_same(
    recorded: Json, now: Json, *, tick: int, agent: str, what: str, but: Iterable[str] = ()
) -> None:
    """Raise `Difference` unless both agree in every key that both have, those in `but` left out."""
    keys = [key for key in now if key in recorded and key not in set(but)]
    before = {key: recorded[key] for key in keys}
    after = parse(compact({key: now[key] for key in keys}), limit_bytes=1 << 30)
    if before == after:
        return
    changed = ", ".join(key for key in keys if before[key] != after[key])
    diff = diff_of(pretty(before).decode(), pretty(after).decode(), what)
    raise Difference(f"{what} came out otherwise: {changed}", tick=tick, agent=agent, what=what, diff=diff)


def diff_of(recorded: str, now: str, name: str) -> str:
    """Return a unified diff of two texts, without a line end at its end."""
    lines = unified_diff(
        recorded.splitlines(), now.splitlines(), f"{name} (recorded)", f"{name} (now)",
        lineterm="", n=_CONTEXT_LINES,
    )  # fmt: skip
    return "\n".join(lines)


def as_text(messages: Iterable[dict[str, str]]) -> str:
    """Return a prompt as text, for a diff."""
    return "\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)
