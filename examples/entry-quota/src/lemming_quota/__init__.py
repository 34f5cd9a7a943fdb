"""A capability for LeMMing: a quota of entries for each agent and day."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.errors import Problem
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.files.fast_decoder import describe_field
from lemming.kernel.plugins.capability_loader import register_capability
from lemming.kernel.turn.turn_hooks import (
    AgentCheck,
    Capability,
    CapabilityStatus,
    CheckSubject,
    ContextProvider,
    Rejected,
    StatusContext,
    TurnContext,
    TurnInterceptor,
)
from lemming.kernel.turn.turn_state import TurnState


@dataclass(frozen=True, kw_only=True)
class PerDay:
    """Settings of the quota: in `config/org.json` for all agents, in a resume for one."""

    per_day: int = field(metadata=describe_field("Number of entries per day, by UTC.", ge=1, le=10_000))


@register_capability
class Quota(Capability):
    """A quota of entries per day. Entries beyond it are rejected, and the model is told why."""

    name = "quota"
    org_settings_type = PerDay
    agent_settings_type = PerDay

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the provider, which counts the entries of today before the turn begins."""
        return Today(context)

    def interceptor(self, turn_state: TurnState, snapshot: dict[str, Any]) -> TurnInterceptor:
        """Return the interceptor of a turn that began with this snapshot."""
        return Counting(self.name, turn_state, snapshot)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield a warning if a resume allows more entries than the organisation."""
        if not isinstance(subject, AgentCheck):
            return
        for_all, own = self.org_settings(subject.config), self.agent_settings(subject.agent)
        if for_all and own and own.per_day > for_all.per_day:
            what = f"{own.per_day} entries a day are more than the {for_all.per_day} of all others"
            at, hint = "/capabilities/quota/per_day", "the resume counts; take it out if that is not meant"
            yield Problem(what, paths.resume_file(subject.agent.name), pointer=at, hint=hint, severity="warning")

    def status_lines(self, context: StatusContext) -> Iterator[CapabilityStatus]:
        """Yield the number of entries that each agent has written today."""
        for name, agent in context.agents.items():
            limit = self.agent_settings(agent) or self.org_settings(context.config)
            written = written_on(context.at[:10], context.states[name])
            yield CapabilityStatus(name, f"wrote {written} of {limit.per_day} entries today")


class Today(ContextProvider):
    """Reads the day from the tick's recorded clock, and the count of that day from the ledger."""

    def snapshot(self) -> dict[str, Any]:
        """Return the record `given.quota`, which is written before the model is asked."""
        context = self.context
        limit = context.agent_settings or context.settings
        day = context.tick_context.at[:10]
        written = written_on(day, context.state.kept.get(Quota.name, {}))
        return {"day": day, "written": written, "per_day": limit.per_day}


class Counting(TurnInterceptor):
    """Rejects entries beyond the quota, and counts the entries of the turn."""

    def before_entry(self, new: NewEntry, at: str) -> NewEntry | Rejected:
        """Allow an entry, or reject it with a reason for the model."""
        if self.snapshot["written"] + len(self.turn_state.entries) < self.snapshot["per_day"]:
            return new
        return Rejected(f"the quota of {self.snapshot['per_day']} entries a day is used up; write tomorrow")

    def save_state(self, *, is_applied: bool, holds_all: bool) -> dict[str, Any]:
        """Return the state for the ledger, `kept.quota`. A failed turn has written nothing."""
        written = len(self.turn_state.entries) if holds_all else 0
        return {"day": self.snapshot["day"], "written": self.snapshot["written"] + written}


def written_on(day: str, kept: dict[str, Any]) -> int:
    """Return the number of entries that a ledger counts for a day."""
    return int(kept["written"]) if kept.get("day") == day else 0
