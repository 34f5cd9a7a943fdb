"""Find agents with pending work: entries addressed to them, or results of their tools. Read-only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import iter_person_requests
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.preparation import TurnContext
from lemming.kernel.turn.preparation_chain import prepare_context
from lemming.kernel.turn.wake_check import check_wake, has_news_of_tools


@dataclass
class PendingWork:
    """Agents with pending work: due in this tick (`due_now`), or later (`later`, tick by agent).

    An agent in neither needs time, a file or a person before its next turn.
    """

    due_now: list[str] = field(default_factory=list)
    later: dict[str, int] = field(default_factory=dict)


def find_pending_work(tick_context: TickContext, names: Collection[str] | None = None) -> PendingWork:
    """Return the agents, of `names` or of all, with work pending for which the agent would take a turn.

    Pending work is an unread entry with the agent as target, a request the agent can continue, or a tool
    result the agent has not been shown. An answer does not count while the agent waits for further answers. A
    request does not count if its last turn made no progress. Leaves out people, paused or broken agents,
    agents without credits, and agents on a clock schedule before their time.
    """
    pending_work = PendingWork()
    for name, agent in tick_context.survey.agents.items():
        if name in tick_context.plan.skipped or (names is not None and name not in names):
            continue
        tick = isolate(partial(_next_work_tick, tick_context, agent))
        if tick is None or isinstance(tick, Exception):  # reported by its turn
            continue
        if tick > tick_context.tick:
            pending_work.later[name] = tick
        elif agent.schedule.cron is None or name in tick_context.plan.order:
            pending_work.due_now.append(name)
    return pending_work


def restrict_to_pending_work(tick_context: TickContext) -> TickContext:
    """Return the context of a tick that runs immediately for pending work, outside the clock.

    An agent that always wakes, or has a stalled request, takes a turn in this tick only for work addressed to
    the agent; its next turn by the clock still comes.
    """
    config, agents = tick_context.config, tick_context.survey.agents
    always_woken = {
        name
        for name in tick_context.plan.order
        if name in agents
        and (habits := resolve_turn_policy(agents[name], config)).is_asked
        and (habits.wake == "always" or is_stalled(tick_context.org, name))
    }
    postponed = (
        always_woken - {*find_pending_work(tick_context, always_woken).due_now} if always_woken else always_woken
    )
    if not postponed and not any(_has_tick_deadline(tick_context, name) for name in agents):
        return tick_context
    plan = tick_context.plan
    order = [name for name in plan.order if name not in postponed]
    not_due = [name for name in agents if name in postponed or name in plan.not_due] if postponed else plan.not_due
    return replace(tick_context, plan=replace(plan, order=order, not_due=not_due, at_once=True))


def _has_tick_deadline(tick_context: TickContext, name: str) -> bool:
    """Return True if the agent waits for a person until a given tick."""
    try:
        state = read_state(tick_context.org, name)
    except FILE_ERRORS:  # reported by its turn
        return False
    open_sub_requests = (open_request.open_sub_requests for open_request in state.requests)
    return any(
        sub_request.until is not None and sub_request.to in tick_context.mail.persons and not sub_request.end
        for sub_request in chain(iter_person_requests(state.kept), *open_sub_requests)
    )


def is_stalled(org: Organisation, name: str) -> bool:
    """Return True if the last turn an agent took for a request made no progress."""
    try:
        return any(open_request.stands_still for open_request in read_state(org, name).requests)
    except FILE_ERRORS:  # reported by its turn
        return False


def _next_work_tick(tick_context: TickContext, agent: Agent) -> int | None:
    """Return the first tick in which the agent takes a turn for pending work, or None."""
    state, config = read_state(tick_context.org, agent.name), tick_context.config
    allocation = resolve_credits(config, agent.name, agent.credits)
    if allocation.max_credits is not None and state.consumed_credits >= allocation.max_credits:
        return None
    view = ReaderView(tick_context.mail, agent, state.read)
    context = TurnContext(tick_context, agent, config.model(agent.model.key), state, view, allocation)
    preparations = prepare_context(context)
    if state.requests:
        preparations.ask_due()
    agenda = preparations.agenda(context, resolve_turn_policy(agent, config))
    # a cheap check first: most agents have no work
    if not (state.results or preparations.blocks or _has_addressed_entry(view, agent, agenda)):
        return None
    due = next_due(agent.schedule, tick_context.tick)
    check = check_wake(tick_context, agent.name)
    if not isinstance(check, TurnReason):
        return due if _has_work(tick_context, agent, check[0]) else None
    wake_tick = preparations.next_wake_tick()
    return None if wake_tick is None else next_due(agent.schedule, max(wake_tick, tick_context.tick))


def _has_work(tick_context: TickContext, agent: Agent, context: TurnContext) -> bool:
    tools = tick_context.toolset.for_agent(agent.name)
    if has_news_of_tools(context.state, tools):
        return True
    return _has_addressed_entry(context.view, agent, context.agenda) or context.has_own_reason


def _has_addressed_entry(view: ReaderView, agent: Agent, agenda: Agenda | None) -> bool:
    if agenda and (task := agenda.next_task("")) and not task.open_request.stands_still:
        return True
    entries = map(view.mail.read, view.iter_unread())
    return any(
        isinstance(entry, OutboxEntry) and agent.name in entry.targets and not (agenda and agenda.is_excluded(entry))
        for entry in entries
    )
