"""What of an agent's files a turn's prompt is given as it begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.agents import Agent
from lemming.base.clock import parse_timestamp
from lemming.base.times.words import said_in_full, said_of_due
from lemming.capabilities.plans.format import PROVIDER
from lemming.journal.ledger import AgentState
from lemming.mail.tasks import Task
from lemming.org.models import ModelEntry
from lemming.org.schedule import due_by_clock
from lemming.tools.toolset import Toolset
from lemming.turn.opening import Surroundings
from lemming.turn.planned import own_memories


def memory_shown(
    toolset: Toolset, values: dict[str, Any], entry: ModelEntry, task: Task | None
) -> dict[str, Any]:
    """Return the memories that a prompt shows: not those that stand elsewhere in it, or are a tool's own."""
    if entry.provider == PROVIDER and task is not None and task.request is not None:
        return own_memories(values, task.request.id)
    if toolset.own_memories:
        return {key: value for key, value in values.items() if key not in toolset.own_memories}
    return values


def warnings_of(soft_cap: float | None, state: AgentState) -> list[str]:
    """Return what an agent is warned of: that it has reached its soft cap, that entries expired unread."""
    warnings = []
    if soft_cap is not None:
        warnings.append(
            f"You have spent {state.credits:g} credits; the soft cap is {soft_cap:g}. Be sparing."
        )
    if count := state.expired_unread:
        entries = f"{count} entr{'y' if count == 1 else 'ies'}"
        warnings.append(f"{entries} expired unread: removed before you were shown them.")
    return warnings


def time_lines(now: Surroundings, agent: Agent) -> Iterator[str]:
    """Yield what the prompt says of the wall clock: nothing, for an agent that does not go by it."""
    zone_name, schedule = now.config.org.timezone, agent.schedule
    if agent.clock and now.at:
        text = said_in_full(parse_timestamp(now.at), schedule.timezone or zone_name or "UTC")
        yield f"As the tick began it was {text}."
    if schedule.cron is not None and (due := due_by_clock(schedule, zone_name, now.since, now.at)):
        yield said_of_due(due)
