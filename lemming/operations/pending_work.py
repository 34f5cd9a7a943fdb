"""Find agents with pending work: entries addressed to them, or results of their tools. Read-only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial

from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.open_requests import iter_person_requests
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.preparation import TurnContext
from lemming.kernel.turn.preparation_chain import PreparationChain, prepare_context
from lemming.kernel.turn.tool_results import is_news
from lemming.kernel.turn.wake_check import WakeCheck, check_wake


@dataclass
class PendingWork:
    """Agents with pending work: due in a snapshot's tick (`due_now`), or later (`later`, tick by agent).

    An agent in neither needs time, a file or a person before its next turn.
    """

    due_now: list[str] = field(default_factory=list)
    later: dict[str, int] = field(default_factory=dict)


def find_pending_work(snapshot: Snapshot, names: Collection[str] | None = None) -> PendingWork:
    """Return the agents, of `names` or of all, with work pending for which the agent would take a turn.

    Pending work is an unread entry with the agent as target, a request the agent can continue, or a tool
    result the agent has not been shown. An answer does not count while the agent waits for further answers. A
    request does not count if its last turn made no progress. Leaves out people, paused or broken agents,
    agents without credits, and agents on a clock schedule before their time.
    """
    pending_work = PendingWork()
    for name, agent in snapshot.survey.agents.items():
        if name in snapshot.plan.skipped or (names is not None and name not in names):
            continue
        tick = isolate(partial(_next_work_tick, snapshot, agent))
        if tick is None or isinstance(tick, Exception):  # reported by its turn
            continue
        if tick > snapshot.tick:
            pending_work.later[name] = tick
        elif agent.schedule.cron is None or name in snapshot.plan.order:
            pending_work.due_now.append(name)
    return pending_work


def immediate_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of a tick run immediately for pending work, outside the clock.

    An agent that always wakes, or has a stalled request, takes a turn in this tick only for work addressed to
    the agent; its next turn by the clock still comes.
    """
    config, agents = snapshot.config, snapshot.survey.agents
    always_woken = {
        name
        for name in snapshot.plan.order
        if name in agents
        and (habits := resolve_turn_policy(agents[name], config)).is_asked
        and (habits.wake == "always" or is_stalled(snapshot.org, name))
    }
    postponed = (
        always_woken.difference(find_pending_work(snapshot, always_woken).due_now) if always_woken else always_woken
    )
    plan = snapshot.plan
    if postponed:
        order = [name for name in plan.order if name not in postponed]
        not_due = [name for name in agents if name in postponed or name in plan.not_due]
        plan = replace(plan, order=order, not_due=not_due)
    is_immediate = bool(postponed) or any(_is_waiting_for_person(snapshot, name) for name in agents)
    return replace(snapshot, plan=replace(plan, at_once=True)) if is_immediate else snapshot


def _is_waiting_for_person(snapshot: Snapshot, name: str) -> bool:
    try:
        return _has_tick_deadline(read_state(snapshot.org, name), snapshot.mail.persons)
    except FILE_ERRORS:  # reported by its turn
        return False


def _has_tick_deadline(agent_state: AgentState, persons: Collection[str]) -> bool:
    """Return True if the agent waits for a person until a given tick."""
    sub_requests = (
        *iter_person_requests(agent_state.kept),
        *(sub_request for open_request in agent_state.requests for sub_request in open_request.open_sub_requests),
    )
    return any(
        sub_request.until is not None and sub_request.to in persons
        for sub_request in sub_requests
        if not sub_request.end
    )


def is_stalled(org: Organisation, name: str) -> bool:
    """Return True if the last turn an agent took for a request made no progress."""
    try:
        return any(open_request.stands_still for open_request in read_state(org, name).requests)
    except FILE_ERRORS:  # reported by its turn
        return False


def _can_afford_turn(snapshot: Snapshot, agent: Agent, state: AgentState) -> bool:
    max_credits = resolve_credits(snapshot.config, agent.name, agent.credits).max_credits
    return max_credits is None or state.consumed_credits < max_credits


def _next_work_tick(snapshot: Snapshot, agent: Agent) -> int | None:
    """Return the first tick in which the agent takes a turn for pending work, or None."""
    state = read_state(snapshot.org, agent.name)
    if not _can_afford_turn(snapshot, agent, state):
        return None
    view = ReaderView(snapshot.mail, agent, state.read)
    context = TurnContext(snapshot, agent, snapshot.config.model(agent.model.key), state)
    chain = prepare_context(context, view)
    if not _may_have_work(context, view, chain):  # a cheap check first: most agents have no work
        return None
    due = next_due(agent.schedule, snapshot.tick)
    first_inputs = check_wake(snapshot, agent, snapshot.survey.digests[agent.name])
    if not isinstance(first_inputs, TurnReason):
        return due if _has_work(snapshot, agent, first_inputs) else None
    wake_tick = chain.next_wake_tick()
    return None if wake_tick is None else next_due(agent.schedule, max(wake_tick, snapshot.tick))


def _may_have_work(context: TurnContext, view: ReaderView, chain: PreparationChain) -> bool:
    if context.state.requests:
        chain.ask_due()
    agenda = chain.agenda(context, view, resolve_turn_policy(context.agent, context.tick_context.config))
    return bool(context.state.results or chain.blocks) or _has_addressed_entry(view, context.agent, agenda)


def _has_work(snapshot: Snapshot, agent: Agent, first_inputs: WakeCheck) -> bool:
    tools = snapshot.toolset.for_agent(agent.name)
    if any(is_news(result, tools.get(result["tool"])) for result in first_inputs.turn_context.state.results):
        return True
    return _has_addressed_entry(first_inputs.view, agent, first_inputs.agenda) or first_inputs.has_own_reason


def _has_addressed_entry(view: ReaderView, agent: Agent, agenda: Agenda | None) -> bool:
    if agenda and (task := agenda.next_task("")) and not task.open_request.stands_still:
        return True
    entries = map(view.mail.read, view.iter_unread())
    return any(
        isinstance(entry, OutboxEntry) and agent.name in entry.targets and not (agenda and agenda.is_excluded(entry))
        for entry in entries
    )
