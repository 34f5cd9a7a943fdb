"""A capability for LeMMing: an agent writes so many entries a day, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.agents import Agent
from lemming.errors import Problem
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.org.config import Config
from lemming.kernel.plugins.capability_loader import register_capability
from lemming.kernel.turn.turn_hooks import (
    Capability,
    CapabilityStatus,
    ContextProvider,
    Rejected,
    StatusContext,
    TurnContext,
    TurnInterceptor,
)
from lemming.kernel.turn.turn_state import TurnState


@dataclass(frozen=True, kw_only=True)
class PerDay:
    """What `config/org.json` says for all agents, and a resume for one."""

    per_day: int = field(metadata=describe_field("So many entries a day, by UTC.", ge=1, le=10_000))


@register_capability
class Quota(Capability):
    """So many entries a day; what is beyond is refused, and the model is told so."""

    name = "quota"
    org_settings_type = PerDay
    agent_settings_type = PerDay

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Look at what was written today, before the turn begins."""
        return Today(context)

    def interceptor(self, turn_state: TurnState, snapshot: dict[str, Any]) -> TurnInterceptor:
        """Take part in a turn that began with this."""
        return Counting(self.name, turn_state, snapshot)

    def validate_agent(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Warn where a resume allows one agent more than all may have."""
        for_all, own = self.org_settings(config), self.agent_settings(agent)
        if for_all and own and own.per_day > for_all.per_day:
            what = f"{own.per_day} entries a day are more than the {for_all.per_day} of all others"
            at, hint = "/capabilities/quota/per_day", "the resume counts; take it out if that is not meant"
            yield Problem(what, paths.resume_file(agent.name), pointer=at, hint=hint, severity="warning")

    def status_lines(self, context: StatusContext) -> Iterator[CapabilityStatus]:
        """Say how much of the day's entries each agent has written."""
        for name, agent in context.agents.items():
            limit = self.agent_settings(agent) or self.org_settings(context.config)
            written = written_on(context.at[:10], context.states[name])
            yield CapabilityStatus(name, f"wrote {written} of {limit.per_day} entries today")


class Today(ContextProvider):
    """Reads the day off the tick's clock, which is recorded, and what the ledger keeps of that day."""

    def snapshot(self) -> dict[str, Any]:
        """Return what is recorded as `given.quota`, before the model is asked."""
        moment = self.context
        limit = moment.agent_settings or moment.settings
        day = moment.tick_context.at[:10]
        written = written_on(day, moment.state.kept.get(Quota.name, {}))
        return {"day": day, "written": written, "per_day": limit.per_day}


class Counting(TurnInterceptor):
    """Refuses entries beyond the day's, and counts those that the turn wrote."""

    def before_entry(self, new: NewEntry, at: str) -> NewEntry | Rejected:
        """Let an entry leave, or tell the model why it may not."""
        if self.snapshot["written"] + len(self.turn_state.entries) < self.snapshot["per_day"]:
            return new
        return Rejected(f"the quota of {self.snapshot['per_day']} entries a day is used up; write tomorrow")

    def save_state(self, *, is_applied: bool, holds_all: bool) -> dict[str, Any]:
        """Return what the ledger keeps as `kept.quota`; a turn that failed has written nothing."""
        written = len(self.turn_state.entries) if holds_all else 0
        return {"day": self.snapshot["day"], "written": self.snapshot["written"] + written}


def written_on(day: str, kept: dict[str, Any]) -> int:
    """Return how many entries a ledger counts for a day."""
    return int(kept["written"]) if kept.get("day") == day else 0
