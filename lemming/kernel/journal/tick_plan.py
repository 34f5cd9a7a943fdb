"""Plan of a tick as a value: the agents with a turn, their order, and the reasons of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lemming.kernel.base.clock import is_timestamp, parse_timestamp
from lemming.kernel.journal.journal_records import TickStarted
from lemming.kernel.journal.turn_report import ReasonCode, TurnReason, TurnReport

FOR_A_PERSON = "a person speaks for it"
FOR_A_CHANNEL = "a channel speaks for it"
FOR_OTHERS = frozenset({FOR_A_PERSON, FOR_A_CHANNEL})
_REASON_CODES: dict[str, ReasonCode] = {FOR_A_PERSON: "person", FOR_A_CHANNEL: "channel"}
NOBODY: Mapping[str, str] = {}
_RUN_FIELDS = frozenset({"at", "since", "at_once", "chosen", "left_out"})
DUE, NOT_DUE = TurnReason("due"), TurnReason("not_due")


@dataclass(frozen=True, kw_only=True)
class TickPlan:
    """The plan of a tick, written as the first line of the tick's journal.

    `order`: agents that are due. `not_due`: agents with a schedule for another tick. `skipped`: the reason of
    any other agent without a turn. `broken`: the error in a resume. `at`: the tick's clock reading. `since`:
    the last reading of earlier ticks (empty: unknown or not needed). `at_once`: the tick runs immediately for
    pending work, with an effect on the agents that have a turn or on the time given to persons. `chosen`:
    agents selected by name for this tick, regardless of schedules, if any. `left_out`: agents due by the
    clock but not selected, which the next tick runs.
    """

    tick: int
    order: list[str]
    not_due: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    at: str = ""
    since: str = ""
    at_once: bool = False
    chosen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def all_agents(self) -> set[str]:
        """Names of all agents, due or not, broken or not."""
        return {*self.order, *self.not_due, *self.skipped, *self.broken}

    @property
    def turn_reasons(self) -> dict[str, TurnReason]:
        """Reason for each agent's turn or missing turn, as far as schedules and resumes determine."""
        by_schedule = {**dict.fromkeys(self.order, DUE), **dict.fromkeys(self.not_due, NOT_DUE)}
        return {**by_schedule, **self._exclusion_reasons}

    @property
    def _exclusion_reasons(self) -> dict[str, TurnReason]:
        return {
            **{name: TurnReason(_REASON_CODES.get(text, "paused"), text) for name, text in self.skipped.items()},
            **{name: TurnReason("broken", text, "ConfigError") for name, text in self.broken.items()},
        }

    def excluded_reports(self) -> list[TurnReport]:
        """Return the reports of the agents that cannot take a turn in this tick."""
        return [reason.to_report(name) for name, reason in self._exclusion_reasons.items()]

    @property
    def next_reading(self) -> str:
        """The clock reading for the next tick: its own start if the tick left out agents due by the clock."""
        return self.since if self.left_out and self.since else later_reading(self.at, self.since)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without clock readings and run reasons."""
        return {key: value for key, value in vars(self).items() if key not in _RUN_FIELDS}

    @classmethod
    def from_record(cls, started: TickStarted) -> TickPlan:
        """Return the plan recorded in a journal's first record."""
        fields = {key: getattr(started, key) for key in cls.__dataclass_fields__}
        readings = {key: reading if is_timestamp(reading := fields[key]) else "" for key in ("at", "since")}
        return cls(**{**fields, **readings})


BELIEVED_AHEAD = timedelta(days=1)
"""A clock set back by less is waited for, so nothing is due twice. By more, it was wrong before."""


def later_reading(at: str, since: str) -> str:
    """Return the reading a tick leaves for the next tick: its own, or a slightly later previous reading.

    >>> later_reading("2026-11-23T08:00:00.000Z", "2026-11-23T09:00:00.000Z")
    '2026-11-23T09:00:00.000Z'
    >>> later_reading("2026-11-23T08:00:00.000Z", "2030-01-01T00:00:00.000Z")
    '2026-11-23T08:00:00.000Z'
    """
    return since if at and since > at and parse_timestamp(since) - parse_timestamp(at) <= BELIEVED_AHEAD else at
