"""Who has something to go on with: what is addressed to an agent, or what its tools gave. Looks only."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.config import credits_of
from lemming.errors import LemmingError
from lemming.journal.ledger import AgentState, read_state
from lemming.mail.tasks import tasks_of
from lemming.messages import OutboxEntry
from lemming.resume import Agent
from lemming.tick.snapshot import Snapshot
from lemming.turn.news import is_news


def who_goes_on(snapshot: Snapshot) -> Iterator[str]:
    """Yield the agents for which something waits that names them, though they may not be due yet.

    That is an unread entry with the agent as its target, a request that it may go on with, or a tool's result
    that it has not been shown. An answer is none as long as others are waited for with it.
    People, agents that are paused or broken, and those that may spend no more are left out.
    """
    for name, agent in snapshot.survey.agents.items():
        if name in snapshot.plan.skipped:
            continue
        try:
            state = read_state(snapshot.org, name)
        except LemmingError:  # its turn says so
            continue
        if _may_spend(snapshot, agent, state) and _has_something(snapshot, agent, state):
            yield name


def _may_spend(snapshot: Snapshot, agent: Agent, state: AgentState) -> bool:
    most = credits_of(snapshot.config, agent.name, agent.credits).max_credits
    return most is None or state.used_up < most


def _has_something(snapshot: Snapshot, agent: Agent, state: AgentState) -> bool:
    if any(is_news(result, snapshot.toolset.of(agent.name).get(result["tool"])) for result in state.results):
        return True
    view = snapshot.mail.view(agent, state.read)
    wake = agent.schedule.wake or snapshot.config.org.defaults.wake
    tasks = tasks_of(view, agent, state.requests, wake)
    if tasks and tasks.next(""):
        return True
    found = map(snapshot.mail.read, view.fresh())
    return any(
        isinstance(entry, OutboxEntry)
        and agent.name in entry.targets
        and not (tasks and tasks.sets_aside(entry))
        for entry in found
    )
