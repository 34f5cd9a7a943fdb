"""Agents: what they have spent, by their ledgers, and may spend; how one of them stands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from lemming.agents import Agent, Survey
from lemming.base.errors import CorruptState
from lemming.facts.next_turn import NextTurn, next_turn
from lemming.journal.ledger import AgentState, read_state
from lemming.org.config import Config, credits_of, is_overridden
from lemming.org.organisation import OrgPath
from lemming.plugins.shipped import JUDGES
from lemming.tick.counter import load_tick
from lemming.tick.firing_plan import takes_turns
from lemming.tick.soundness.judged import sound_survey

_AMOUNTS = ("turns", "used_up", "passed_on", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens")


@dataclass(frozen=True, kw_only=True)
class Account:
    """What one agent has spent and may spend; null where there is no limit.

    `used_up`: what counts against `max_credits`, that is `spent`, of which `judged` on judges, and what was
    `passed_on` to agents it created. `overrides`: the limit of the resume that config/credits.json replaces.
    """

    agent: str
    turns: int
    spent: float
    used_up: float
    judged: float
    max_credits: float | None
    overrides: float | None
    soft_cap: float | None
    passed_on: float
    left: float | None
    cost_usd: float | None
    unpriced_calls: int
    input_tokens: int
    output_tokens: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return vars(self)


def account_of(base: OrgPath, agent: Agent, config: Config) -> Account:
    """Return what one agent has spent and may spend; raise `CorruptState` for a damaged ledger."""
    state, allowed = read_state(base, agent.name), credits_of(config, agent.name, agent.credits)
    limit = allowed.max_credits
    return Account(
        agent=agent.name,
        spent=state.credits,
        judged=state.aside.get(JUDGES, 0.0),
        max_credits=limit,
        overrides=agent.credits.max_credits if is_overridden(config, agent.name, agent.credits) else None,
        soft_cap=allowed.soft_cap,
        left=None if limit is None else max(limit - state.used_up, 0.0),
        **{key: getattr(state, key) for key in _AMOUNTS},
    )


def accounts(
    base: OrgPath, survey: Survey, config: Config, *, only: str | None = None
) -> tuple[list[Account], list[CorruptState]]:
    """Return what all who take turns have spent, or only one of them, and which ledgers cannot be read."""
    found, damaged = list[Account](), list[CorruptState]()
    for agent in survey.agents.values():
        if only in (None, agent.name) and takes_turns(agent, config):
            try:
                found.append(account_of(base, agent, config))
            except CorruptState as error:
                damaged.append(error)
    return found, damaged


def total_of(found: Collection[Account]) -> dict[str, Any]:
    """Return what all of them have spent together; a limit only where each has one."""
    keys = ("turns", "used_up", "unpriced_calls", "input_tokens", "output_tokens")
    dollars = [it.cost_usd for it in found if it.cost_usd is not None]
    limits = [it.max_credits for it in found]
    return {
        "credits": round(sum(it.spent for it in found), 6),
        **{key: round(sum(getattr(it, key) for it in found), 6) for key in keys},
        "cost_usd": sum(dollars) if dollars else None,
        "max_credits": None if not limits or None in limits else sum(filter(None, limits)),
    }


class AgentShown(NamedTuple):
    """An agent, who reads it, how its last turn left it, what it has spent, when it is due next."""

    agent: Agent
    readers: list[str]
    state: AgentState
    account: Account
    coming: NextTurn

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        plain = {"agent": self.agent.name, "resume": self.agent.plain, "problem": ""}
        return {**plain, "readers": self.readers, "state": self.state.as_json()}


def agent_shown(base: OrgPath, agent: Agent, config: Config) -> AgentShown:
    """Return an agent as it stands; raise `CorruptState` for a damaged ledger."""
    readers = sorted(each.name for each in sound_survey(base).agents.values() if each.may_read(agent.name))
    coming = next_turn(base, agent, config, load_tick(base))
    state = read_state(base, agent.name)
    return AgentShown(agent, readers, state, account_of(base, agent, config), coming)
