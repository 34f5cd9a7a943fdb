"""What of an agent's files a turn's prompt and its strategy are given as it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from lemming import paths
from lemming.agents import Agent
from lemming.clock import parse_timestamp
from lemming.errors import ConfigError
from lemming.journal.ledger import AgentState
from lemming.mail.tasks import Task
from lemming.memory import Memories
from lemming.messages import OutboxEntry
from lemming.models import ModelEntry
from lemming.plans.format import PROVIDER
from lemming.schedule import due_by_clock
from lemming.times.words import said_in_full, said_of_due
from lemming.toolset import Toolset
from lemming.turn.named import Beforehand, strategy_of
from lemming.turn.opening import Surroundings
from lemming.turn.planned import own_memories

_PLAN = re.compile(r"plan(-[0-9a-f]{12})?")
"""Where `plan_execute` keeps plans: its questions show the one that counts."""


def given_to(now: Surroundings, agent: Agent, memories: Memories, task: Task | None) -> dict[str, Any]:
    """Return what a turn's strategy needs beside the prompt; raise `ConfigError` for a wrong one."""
    assert agent.turn.strategy, "who has none is not asked"
    plugins = tuple(now.config.org.plugins)
    request = (task.request.payload.get("hands_on") or task.request.id) if task and task.request else ""
    damaged = frozenset(PurePosixPath(p.file).name.removesuffix(".json") for p in memories.problems)
    try:
        strategy = strategy_of(agent.turn.strategy, plugins)
        options = strategy.options_of(agent.turn.options)
        seen = Beforehand(agent, options, str(request), memories.values, damaged, now.mail.resumes)
        return strategy.given(seen) if strategy.given else {}
    except ConfigError as error:
        where = error.where or paths.resume_file(agent.name)
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def judged_by(
    now: Surroundings, agent: Agent, task: Task | None, held: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """Return who must pass what a turn would publish; raise `ConfigError` where nobody can be found."""
    asked = task.request if task else None
    if agent.verify is None and (asked is None or not _is_judged(now.mail.resumes.get(asked.agent), asked)):
        return []
    from lemming.turn.judges import judges_of  # where nobody judges nothing more is looked at

    return judges_of(now, agent, task, held)


def _is_judged(asker: Agent | None, request: OutboxEntry) -> bool:
    """Return whether who asked may have said that the answer is judged."""
    if asker is None:
        return False
    has_said = asker.team is not None and any(member.verify for member in asker.team.members)
    return has_said or "verify" in request.payload


def memory_shown(
    toolset: Toolset, agent: Agent, values: dict[str, Any], entry: ModelEntry, task: Task | None
) -> dict[str, Any]:
    """Return the memories that a prompt shows: not those that stand elsewhere in it, or are a tool's own."""
    if entry.provider == PROVIDER and task is not None and task.request is not None:
        return own_memories(values, task.request.id)
    if agent.turn.strategy == "plan_execute":  # it is told of its plan beside them
        return {key: value for key, value in values.items() if not _PLAN.fullmatch(key)}
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
