"""A capability for LeMMing: an agent writes so many entries a day, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.files.fitting import about
from lemming.kernel.plugins.capabilities import register_capability
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.seams import Capability, Fact, InUse, Moment, No, Preparation, TurnPart


@dataclass(frozen=True, kw_only=True)
class PerDay:
    """What `config/org.json` says for all agents, and a resume for one."""

    per_day: int = field(metadata=about("So many entries a day, by UTC.", ge=1, le=10_000))


@register_capability
class Quota(Capability):
    """So many entries a day; what is beyond is refused, and the model is told so."""

    name = "quota"
    settings = PerDay
    resume_settings = PerDay

    def prepare(self, moment: Moment) -> Preparation:
        """Look at what was written today, before the turn begins."""
        return Today(moment)

    def part(self, draft: Draft, given: dict[str, Any]) -> TurnPart:
        """Take part in a turn that began with this."""
        return Counting(self.name, draft, given)

    def facts(self, used: InUse) -> Iterator[Fact]:
        """Say how much of the day's entries each agent has written."""
        for name, agent in used.agents.items():
            limit = self.settings_of(agent) or self.settings_in(used.config)
            written = written_on(used.at[:10], used.kept[name])
            yield Fact(name, f"wrote {written} of {limit.per_day} entries today")


class Today(Preparation):
    """Reads the day off the tick's clock, which is recorded, and what the ledger keeps of that day."""

    def given(self) -> dict[str, Any]:
        """Return what is recorded as `given.quota`, before the model is asked."""
        moment = self.moment
        limit = moment.own or moment.settings
        day = moment.now.at[:10]
        written = written_on(day, moment.state.kept.get(Quota.name, {}))
        return {"day": day, "written": written, "per_day": limit.per_day}


class Counting(TurnPart):
    """Refuses entries beyond the day's, and counts those that the turn wrote."""

    def leaving(self, new: NewEntry, at: str) -> NewEntry | No:
        """Let an entry leave, or tell the model why it may not."""
        if self.given["written"] + len(self.draft.entries) < self.given["per_day"]:
            return new
        return No(f"the quota of {self.given['per_day']} entries a day is used up; write tomorrow")

    def closes(self, *, is_applied: bool, holds_all: bool) -> dict[str, Any]:
        """Return what the ledger keeps as `kept.quota`; a turn that failed has written nothing."""
        written = len(self.draft.entries) if holds_all else 0
        return {"day": self.given["day"], "written": self.given["written"] + written}


def written_on(day: str, kept: dict[str, Any]) -> int:
    """Return how many entries a ledger counts for a day."""
    return int(kept["written"]) if kept.get("day") == day else 0
