"""What comes: the tick that is next, or later, and what comes up by the clock. For any screen; looks only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

from lemming.facts.next_turn import next_turn
from lemming.facts.preview import Preview, preview_tick
from lemming.kernel.agents import Agent, Survey, nearest_agent, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times.zones import zone
from lemming.kernel.journal.report import Reason
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import fire_point, in_order
from lemming.kernel.tick.counter import load_counter, load_tick
from lemming.kernel.tick.dependencies import Connections, Waits, find_waits, overlap
from lemming.kernel.tick.files_looked_at import looked_at_by
from lemming.kernel.tick.firing_plan import Plan, make_plan, takes_turns
from lemming.kernel.tick.seams import Coming, TickLook, parts_in, who_rests
from lemming.kernel.tools import toolset_of
from lemming.kernel.turn.prepared import shared_by

MOST_OF_EACH = 200


def coming_until(org: Organisation, config: Config, until: datetime) -> list[Coming]:
    """Return what comes up from now until a moment, in order, of each schedule the first `MOST_OF_EACH`."""
    now, survey = SystemClock().now(), survey_agents(org)
    found = [
        *_by_clock(org, survey, config, now, until),
        *_entries(org, survey, config, now, until),
    ]
    return sorted(found, key=lambda it: (it.at, it.agent, it.what))


def _by_clock(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    if parts := parts_in(org, survey, config):
        tick, since = load_counter(org)
        look = TickLook(org, config, survey, tick, timestamp(now), since)
        for found in (each for part in parts for each in part.comes(look, now)):
            yield from takewhile(lambda it: it.at <= until, islice(found, MOST_OF_EACH))


def _entries(
    org: Organisation, survey: Survey, config: Config, now: datetime, until: datetime
) -> Iterator[Coming]:
    index, here = org.own(EntryIndex), zone(config.org.timezone or "UTC")
    for author in survey.agents:
        for name in index.outbox(author).by_hand:
            moment = index.moment_of(name)
            if timestamp(now) < moment <= timestamp(until) and isinstance(
                entry := index.read(name), OutboxEntry
            ):
                to = ", ".join(sorted(entry.targets)) or "all"
                text = entry.payload.get("text", "")
                yield Coming(parse_timestamp(moment).astimezone(here), to, f"an entry of {author}: {text}")


@dataclass(frozen=True, kw_only=True)
class ComingTick:
    """The plan of a tick, with the fire points of those in its order, and for whom each waits.

    `notes`: who is due and would take no turn, as things stand; of the tick that is next only. `resting`: in
    words when those are due next that are not due in it.
    """

    plan: Plan
    is_next: bool
    points: dict[str, float]
    reasons: dict[str, Reason]
    waits: dict[str, Waits]
    resting: dict[str, str]
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def chain(self) -> list[str]:
        """The longest row of turns in which each waits for the one before it."""
        return longest_chain(self.plan.order, self.waits)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        plan, waits = self.plan, self.waits
        order = [
            {
                "agent": name,
                "fire_point": self.points.get(name),
                "waits_for": plan.order[:rank] if waits[name].everyone else sorted(waits[name].names),
                "why": self.reasons[name].why,
                "reason": self.reasons[name].text,
                "note": self.notes.get(name, ""),
            }
            for rank, name in enumerate(plan.order)
        ]
        return {**plan.as_json(), "order": order, "longest_chain": self.chain}


def coming_tick(org: Organisation, config: Config, tick: int) -> ComingTick:
    """Return what is planned for a tick that has not run, or not to its end."""
    survey, notes = survey_agents(org), {}
    if is_next := tick == load_tick(org):
        preview = preview_tick(org, config)
        plan = preview.plan
        reasons = {name: preview.reason_of(name) for name in plan.order}
        notes = {name: _note(preview, name, reason) for name, reason in reasons.items()}
    else:
        now = timestamp(SystemClock().now())
        look = TickLook(org, config, survey, tick, now, now)
        plan = make_plan(tick, survey, config, resting=who_rests(parts_in(org, survey, config), look))
        reasons = plan.reasons
    agents = survey.agents
    return ComingTick(
        plan=plan,
        is_next=is_next,
        points={name: fire_point(agents[name].schedule) for name in plan.order if name in agents},
        reasons=reasons,
        waits=find_waits(plan.order, _connections(org, config, survey)),
        resting={
            name: next_turn(org, agents[name], config, tick + 1, since=plan.since).words
            for name in plan.not_due
            if name in agents
        },
        notes=notes,
    )


def _note(preview: Preview, name: str, reason: Reason) -> str:
    """Return why an agent that is due would take no turn, as things stand before the tick; else nothing."""
    if reason.why in ("failing", "broken"):
        return f"would fail: {reason.text}"
    if reason.why not in ("nothing_new", "out_of_credits"):
        return ""
    others = preview.waits_for(name) if reason.why == "nothing_new" else []
    unless = f", unless {' or '.join(others)} writes first" if others else ""
    return f"would be skipped: {reason.text}{unless}"


def why_one_waits(org: Organisation, config: Config, one: str, other: str) -> tuple[str, str, list[str]]:
    """Return who of two waits for whom when both are due, and which permissions make it wait; maybe none."""
    survey = survey_agents(org)
    agents = survey.agents
    for name in (one, other):
        if name not in agents:
            raise UsageError(f'there is no agent "{name}"', hint=nearest_agent(name, list(agents)))
        if not takes_turns(agents[name], config):
            raise UsageError(f"{name} takes no turn: others speak for it", hint="name two who do")
    if one == other:
        raise UsageError("an agent does not wait for itself", hint="name two agents")
    earlier, later = in_order([agents[one], agents[other]])
    return later.name, earlier.name, why_waits(later, earlier, _connections(org, config, survey))


def _connections(org: Organisation, config: Config, survey: Survey) -> Connections:
    looked_at, shared = looked_at_by(org, survey, config), shared_by(config, survey)
    return Connections(survey.agents, config.org, toolset_of(config.org, org), org, looked_at, shared)


def longest_chain(order: list[str], waits: Mapping[str, Waits]) -> list[str]:
    """Return the longest run of turns that each wait for the one before; the first of equals."""
    best: list[str] = []
    chains: dict[str, list[str]] = {}
    for name in order:
        before = [best] if waits[name].everyone else [chains[other] for other in waits[name].names]
        chains[name] = [*max(before, key=len, default=[]), name]
        best = max(best, chains[name], key=len)
    return best


def why_waits(later: Agent, earlier: Agent, connections: Connections) -> list[str]:
    """Return all that makes one turn wait for another before it; empty when nothing does."""
    reasons = []
    if connections.settings.visibility == "order" and later.may_read(earlier.name):
        listed = earlier.name if earlier.name in later.permissions.read_outboxes else "*"
        reasons.append(f'{later.name} may read its outbox: permissions.read_outboxes has "{listed}"')
    first, second = connections.touch_of(earlier.name), connections.touch_of(later.name)
    for mine, his, what in (
        (second.reads, first.writes, "may read what it changes"),
        (second.writes, first.writes, "may change what it changes"),
        (second.writes, first.reads, "may change what it reads"),
    ):
        reasons += [
            f"{later.name} {what}: {mine[here]}; {earlier.name}: {his[there]}"
            for here in mine
            for there in his
            if overlap(here, there)
        ]
    for it in connections.shared:
        names = (later.name, earlier.name)
        if not it.bound.isdisjoint(names) and it.counted >= {*names}:
            reasons.append(f"{later.name} and {earlier.name} share {it.what}")
    return reasons
