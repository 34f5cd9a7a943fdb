"""Who has something to go on with: what is addressed to an agent, or what its tools gave. Looks only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial

from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.report import Reason
from lemming.kernel.mail.agenda import Agenda
from lemming.kernel.mail.capability_notes import asked_beside
from lemming.kernel.mail.visibility import View
from lemming.kernel.memory import read_memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import credits_of
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import next_due
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tick.edge import tried
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.inputs import FoundFirst, find
from lemming.kernel.turn.moments import Moment
from lemming.kernel.turn.news import is_news
from lemming.kernel.turn.prepared import Prepared, prepared_for


@dataclass
class GoingOn:
    """Those who have something to go on with in the tick of a snapshot, or once it is `later`: a tick each.

    Only time, a file or a person can help who is in neither.
    """

    now: list[str] = field(default_factory=list)
    later: dict[str, int] = field(default_factory=dict)


def who_goes_on(snapshot: Snapshot, names: Collection[str] | None = None) -> GoingOn:
    """Return the agents, of `names` or of all, for which something waits, and that would take a turn for it.

    That is an unread entry with the agent as its target, a request that it may go on with, or a tool's result
    that it has not been shown. An answer is none as long as others are waited for with it, and a request none
    for which the last turn came no further.
    People, agents that are paused or broken, those that may spend no more and those that go by the clock and
    are not due are left out.
    """
    going = GoingOn()
    for name, agent in snapshot.survey.agents.items():
        if name in snapshot.plan.skipped or (names is not None and name not in names):
            continue
        tick = tried(partial(_goes_on_at, snapshot, agent))
        if tick is None or isinstance(tick, Exception):  # its turn says so
            continue
        if tick > snapshot.tick:
            going.later[name] = tick
        elif agent.schedule.cron is None or name in snapshot.plan.order:
            going.now.append(name)
    return going


def hurried(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of a tick that is run at once, for what was asked, and not by the clock.

    Who wakes always, and who holds a request that stands still, has a turn in it only if something waits that
    names it; its next one by the clock comes.
    """
    config, agents = snapshot.config, snapshot.survey.agents
    always = {
        name
        for name in snapshot.plan.order
        if name in agents
        and (habits := habits_of(agents[name], config)).is_asked
        and (habits.wake == "always" or stands_still(snapshot.org, name))
    }
    late = always.difference(who_goes_on(snapshot, always).now) if always else always
    plan = snapshot.plan
    if late:
        order = [name for name in plan.order if name not in late]
        not_due = [name for name in agents if name in late or name in plan.not_due]
        plan = replace(plan, order=order, not_due=not_due)
    at_once = bool(late) or any(_has_a_person_in_ticks(snapshot, name) for name in agents)
    return replace(snapshot, plan=replace(plan, at_once=True)) if at_once else snapshot


def _has_a_person_in_ticks(snapshot: Snapshot, name: str) -> bool:
    try:
        return _waits_in_ticks(read_state(snapshot.org, name), snapshot.mail.persons)
    except OF_A_FILE:  # its turn says so
        return False


def _waits_in_ticks(state: AgentState, persons: Collection[str]) -> bool:
    """Return whether an agent waits for a person until a tick."""
    asked = (*asked_beside(state), *(it for begun in state.requests for it in begun.open))
    return any(it.until is not None and it.to in persons for it in asked if not it.end)


def stands_still(org: Organisation, name: str) -> bool:
    """Return whether the last turn that an agent took for one of its requests came no further."""
    try:
        return any(begun.stands_still for begun in read_state(org, name).requests)
    except OF_A_FILE:  # its turn says so
        return False


def _may_spend(snapshot: Snapshot, agent: Agent, state: AgentState) -> bool:
    most = credits_of(snapshot.config, agent.name, agent.credits).max_credits
    return most is None or state.used_up < most


def _goes_on_at(snapshot: Snapshot, agent: Agent) -> int | None:
    """Return the first tick in which an agent takes a turn for what waits for it; None: nothing does."""
    state = read_state(snapshot.org, agent.name)
    if not _may_spend(snapshot, agent, state):
        return None
    if not _may_have_something(snapshot, agent, state):  # most have nothing, and are looked at no closer
        return None
    due = next_due(agent.schedule, snapshot.tick)
    found = find(snapshot, agent, snapshot.survey.digests[agent.name])
    if not isinstance(found, Reason):
        return due if _has_something(snapshot, agent, found) else None
    prepared = _prepared(snapshot, agent, state, snapshot.mail.view(agent, state.read))
    if not (state.requests and prepared.may_rest):
        return None
    wakes = prepared.wakes_at(read_memories(snapshot.org, agent.name))
    return None if wakes is None else next_due(agent.schedule, max(wakes, snapshot.tick))


def _may_have_something(snapshot: Snapshot, agent: Agent, state: AgentState) -> bool:
    view = snapshot.mail.view(agent, state.read)
    prepared = _prepared(snapshot, agent, state, view)
    agenda = prepared.agenda(view, habits_of(agent, snapshot.config))
    if state.results or _names_it(view, agent, agenda):
        return True
    return bool(state.requests) and prepared.may_rest  # what they wait for may be there


def _prepared(snapshot: Snapshot, agent: Agent, state: AgentState, view: View) -> Prepared:
    return prepared_for(Moment(snapshot, agent, snapshot.config.model(agent.model.key), state), view)


def _has_something(snapshot: Snapshot, agent: Agent, found: FoundFirst) -> bool:
    tools = snapshot.toolset.of(agent.name)
    if any(is_news(result, tools.get(result["tool"])) for result in found.moment.state.results):
        return True
    return _names_it(found.view, agent, found.agenda) or found.asks


def _names_it(view: View, agent: Agent, agenda: Agenda | None) -> bool:
    if agenda and (task := agenda.next("")) and not task.begun.stands_still:
        return True
    entries = map(view.mail.read, view.fresh())
    return any(
        isinstance(entry, OutboxEntry)
        and agent.name in entry.targets
        and not (agenda and agenda.sets_aside(entry))
        for entry in entries
    )
