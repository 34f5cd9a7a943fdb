"""A capability for LeMMing: a quota of entries for each agent and day."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.ext import (
    AgentSubject,
    Capability,
    CapabilityStatus,
    DescribeQuery,
    EffectPerformed,
    Event,
    Interception,
    OrgQuery,
    Preparation,
    Problem,
    Rejected,
    TurnView,
    WriteEntry,
    describe_field,
    make_warning,
    parse_agent_settings,
    parse_org_settings,
    register_capability,
)


@dataclass(frozen=True, kw_only=True)
class PerDay:
    """Settings of the quota: in `config/org.json` for all agents, in a resume for one."""

    per_day: int = field(metadata=describe_field("Number of entries per day, by UTC.", ge=1, le=10_000))


@register_capability
class Quota(Capability):
    """A quota of entries per day. Entries beyond it are rejected, and the model is told why."""

    name = "quota"
    handles = (WriteEntry,)
    org_settings_type = PerDay
    agent_settings_type = PerDay
    describes = (CapabilityStatus,)
    provides = {"checks": {"agent": "lemming_quota:find_larger_quota"}}

    def prepare(self, turn: Preparation) -> dict[str, Any]:
        """Return the record `given.quota`, which is written before the model is asked.

        The day comes from the tick's recorded clock, the count of that day from the ledger.
        """
        limit = turn.agent_settings or turn.settings
        day = turn.at[:10]
        return {"day": day, "written": written_on(day, turn.state), "per_day": limit.per_day}

    def intercept(self, effect: WriteEntry, turn: TurnView) -> Interception:
        """Let an entry pass, or reject it with a reason for the model."""
        limit = turn.snapshot["per_day"]
        if turn.snapshot["written"] + len(turn.entries) < limit:
            return None
        return Rejected(f"the quota of {limit} entries a day is used up; write tomorrow")

    def reduce(self, state: dict[str, Any], event: Event, turn: TurnView) -> dict[str, Any]:
        """Return the count for the ledger, `kept.quota`, after one more event. A failed turn has written nothing."""
        if not (isinstance(event, EffectPerformed) and isinstance(event.effect, WriteEntry)):
            return state
        day = turn.snapshot["day"]
        return {"day": day, "written": written_on(day, state) + 1}

    def describe(self, query: DescribeQuery) -> Iterator[CapabilityStatus]:
        """Yield the number of entries that each agent has written today."""
        assert isinstance(query, OrgQuery)  # a status is of an organisation
        for name, agent in query.agents.items():
            limit = parse_agent_settings(self, agent) or parse_org_settings(self, query.config)
            written = written_on(query.at[:10], query.states[name].kept.get(self.name, {}))
            yield CapabilityStatus(name, f"wrote {written} of {limit.per_day} entries today")


def find_larger_quota(subject: AgentSubject) -> Iterator[Problem]:
    """Yield a warning if a resume allows more entries than the organisation."""
    for_all, own = parse_org_settings(Quota, subject.config), parse_agent_settings(Quota, subject.agent)
    if for_all and own and own.per_day > for_all.per_day:
        what = f"{own.per_day} entries a day are more than the {for_all.per_day} of all others"
        hint = "the resume counts; take it out if that is not meant"
        yield make_warning(what, "/capabilities/quota/per_day", hint)


def written_on(day: str, kept: dict[str, Any]) -> int:
    """Return the number of entries that a ledger counts for a day."""
    return int(kept["written"]) if kept.get("day") == day else 0
