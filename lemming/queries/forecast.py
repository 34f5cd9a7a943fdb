"""Read-only forecasts for any screen: the next tick or a later tick, and upcoming scheduled events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

from lemming.kernel.agents import Agent, Survey, sort_by_fire_point, suggest_agent, survey_agents
from lemming.kernel.base.clock import SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.times import get_zone
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.journal.tick_plan import TickPlan
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import fire_point
from lemming.kernel.tick.firing_plan import make_plan
from lemming.kernel.tick.tick_counter import load_counter, load_tick
from lemming.kernel.tick.tick_hooks import find_skipped_agents, get_capability_uses
from lemming.kernel.tools import get_toolset
from lemming.kernel.turn.descriptions import OrgQuery, SharedResource, TickView
from lemming.kernel.turn.preparation_chain import active_capabilities
from lemming.libraries.everyday_times import format_moment, format_remaining_time
from lemming.operations.clock_schedules import UpcomingEvent, iter_upcoming
from lemming.operations.turns.turn_dependencies import (
    TurnDependencies,
    TurnWaits,
    find_implicit_reads,
    find_waits,
    paths_overlap,
)
from lemming.queries.next_turn import find_next_turn
from lemming.queries.screens.screen import Column, Screen
from lemming.queries.tick_preview import TickPreview, preview_tick

MAX_EVENTS_PER_SCHEDULE = 200


def list_upcoming(org: Organisation, config: Config, until: datetime) -> list[UpcomingEvent]:
    """Return upcoming events until a time, in order, at most `MAX_EVENTS_PER_SCHEDULE` from each schedule."""
    current_time, survey = SystemClock().now(), survey_agents(org)
    events = [*_iter_delayed_entries(org, survey, config, current_time, until)]
    if uses := get_capability_uses(org, survey, config):
        tick, since = load_counter(org)
        view = TickView(org, config, survey, tick, timestamp(current_time), since)
        for series in (series for use in uses for series in iter_upcoming(use, view, current_time)):
            events += takewhile(lambda event: event.at <= until, islice(series, MAX_EVENTS_PER_SCHEDULE))
    return sorted(events, key=lambda event: (event.at, event.agent, event.description))


def _iter_delayed_entries(
    org: Organisation, survey: Survey, config: Config, current_time: datetime, until: datetime
) -> Iterator[UpcomingEvent]:
    index, local_zone = org.get_cache(EntryIndex), get_zone(config.org.timezone or "UTC")
    for author in survey.agents:
        for name in index.list_outbox(author).by_hand:
            due_time = index.reveal_time(name)
            is_upcoming = timestamp(current_time) < due_time <= timestamp(until)
            if is_upcoming and isinstance(entry := index.read(name), OutboxEntry):
                recipients = ", ".join(sorted(entry.targets)) or "all"
                text, at = entry.payload.get("text", ""), parse_timestamp(due_time).astimezone(local_zone)
                yield UpcomingEvent(at, recipients, f"an entry of {author}: {text}")


@dataclass(frozen=True, kw_only=True)
class TickForecast:
    """The plan of a tick, with the fire point, the reason and the predecessors of each planned turn.

    `notes`: for the next tick only, the reason a due agent would not take its turn in the present state.
    `not_due_notes`: for agents that are not due, a description of their next turn.
    """

    plan: TickPlan
    is_next: bool
    points: dict[str, float]
    reasons: dict[str, TurnReason]
    waits: dict[str, TurnWaits]
    not_due_notes: dict[str, str]
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def longest_chain(self) -> list[str]:
        """The longest chain of turns, each waiting for the turn before."""
        return find_longest_chain(self.plan.order, self.waits)

    def as_json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        plan = self.plan
        order = [
            {
                "agent": name,
                "fire_point": self.points.get(name),
                "waits_for": plan.order[:rank] if self.waits[name].everyone else sorted(self.waits[name].names),
                "why": self.reasons[name].code,
                "reason": self.reasons[name].text,
                "note": self.notes.get(name, ""),
            }
            for rank, name in enumerate(plan.order)
        ]
        return {**plan.as_json(), "order": order, "longest_chain": self.longest_chain}


def forecast_tick(org: Organisation, config: Config, tick: int) -> TickForecast:
    """Return the forecast of a tick that has not finished."""
    survey, notes = survey_agents(org), {}
    if is_next := tick == load_tick(org):
        preview = preview_tick(org, config)
        plan = preview.plan
        reasons = {name: preview.explain_turn(name) for name in plan.order}
        notes = {name: _explain_no_turn(preview, name, reason) for name, reason in reasons.items()}
    else:
        current_time = timestamp(SystemClock().now())
        view = TickView(org, config, survey, tick, current_time, current_time)
        skipped_agents = find_skipped_agents(get_capability_uses(org, survey, config), view)
        plan = make_plan(tick, survey, config, skipped_agents=skipped_agents)
        reasons = plan.turn_reasons
    agents = survey.agents
    return TickForecast(
        plan=plan,
        is_next=is_next,
        points={name: fire_point(agents[name].schedule) for name in plan.order if name in agents},
        reasons=reasons,
        waits=find_waits(plan.order, _build_connections(org, config, survey)),
        not_due_notes={
            name: find_next_turn(org, agents[name], config, tick + 1, since=plan.since).description
            for name in plan.not_due
            if name in agents
        },
        notes=notes,
    )


def _explain_no_turn(preview: TickPreview, name: str, reason: TurnReason) -> str:
    """Return the reason a due agent would not take its turn in the present state, or an empty string."""
    if reason.code in ("failing", "broken"):
        return f"would fail: {reason.text}"
    if reason.code not in ("nothing_new", "out_of_credits"):
        return ""
    writers = preview.find_predecessors(name) if reason.code == "nothing_new" else []
    condition = f", unless {' or '.join(writers)} writes first" if writers else ""
    return f"would be skipped: {reason.text}{condition}"


def explain_wait(org: Organisation, config: Config, first_name: str, second_name: str) -> tuple[str, str, list[str]]:
    """Return the waiting agent, the agent that goes first, and the permissions causing the wait (maybe none).

    Raises `UsageError` for an unknown agent, an agent without turns, or the same name twice.
    """
    survey = survey_agents(org)
    agents = survey.agents
    for name in (first_name, second_name):
        if name not in agents:
            raise UsageError(f'agent "{name}" does not exist', hint=suggest_agent(name, list(agents)))
        if not config.has_model_turns(agents[name]):
            message = f"{name} takes no turns: a person or a channel writes its entries"
            raise UsageError(message, hint="name two agents that take turns")
    if first_name == second_name:
        raise UsageError("expected two agents, got the same one twice", hint="name two agents")
    earlier, later = sort_by_fire_point([agents[first_name], agents[second_name]])
    return later.name, earlier.name, explain_dependency(later, earlier, _build_connections(org, config, survey))


def _build_connections(org: Organisation, config: Config, survey: Survey) -> TurnDependencies:
    query = OrgQuery(SharedResource, org, survey.agents, config)
    shared = [resource for capability in active_capabilities(config, survey) for resource in query.ask(capability)]
    implicit_reads = find_implicit_reads(org, survey, config)
    return TurnDependencies(survey.agents, config.org, get_toolset(config.org, org), org, implicit_reads, shared)


def find_longest_chain(order: list[str], waits: Mapping[str, TurnWaits]) -> list[str]:
    """Return the longest chain of turns that each wait for the turn before; the first if several are equally long."""
    longest: list[str] = []
    chains: dict[str, list[str]] = {}
    for name in order:
        predecessors = sorted(waits[name].names)
        predecessor_chains = [longest] if waits[name].everyone else [chains[other] for other in predecessors]
        chains[name] = [*max(predecessor_chains, key=len, default=[]), name]
        longest = max(longest, chains[name], key=len)
    return longest


def explain_dependency(later: Agent, earlier: Agent, connections: TurnDependencies) -> list[str]:
    """Return every reason a turn waits for an earlier turn; the list is empty if the turns are independent."""
    reasons = []
    if connections.settings.visibility == "order" and later.may_read(earlier.name):
        permission = earlier.name if earlier.name in later.permissions.read_outboxes else "*"
        reasons.append(f'{later.name} may read its outbox: permissions.read_outboxes has "{permission}"')
    before, after = connections.footprint(earlier.name), connections.footprint(later.name)
    for later_paths, earlier_paths, relation in (
        (after.reads, before.writes, "may read what it changes"),
        (after.writes, before.writes, "may change what it changes"),
        (after.writes, before.reads, "may change what it reads"),
    ):
        reasons += [
            f"{later.name} {relation}: {later_paths[later_path]}; {earlier.name}: {earlier_paths[earlier_path]}"
            for later_path in later_paths
            for earlier_path in earlier_paths
            if paths_overlap(later_path, earlier_path)
        ]
    for resource in connections.shared:
        names = (later.name, earlier.name)
        if not resource.bound.isdisjoint(names) and resource.counted >= {*names}:
            reasons.append(f"{later.name} and {earlier.name} share {resource.name}")
    return reasons


COMING = Screen(
    "coming",
    kind="coming",
    title="Coming by the clock",
    columns=(
        Column(
            "at", "AT", "Time of the turn, job or entry.", value=lambda event: timestamp(event.at),
            text=lambda event: format_moment(event.at),
        ),
        Column("", "IN", "Time until then.", text=lambda event: format_remaining_time(event.at, SystemClock().now())),
        Column("agent", "AGENT", "Agent that it is for.", shown="agent"),
        Column("what", "WHAT", "What happens then.", path="description"),
    ),
)  # fmt: skip
