"""Agents: what they have spent, by their ledgers, and may spend; how one of them stands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from lemming.facts.costs import agents_with_ledgers, removed
from lemming.facts.next_turn import NextTurn, next_turn
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.org.config import Config, credits_of, is_overridden
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.plugins.shipped import JUDGES
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tick.soundness.judged import sound_survey

_AMOUNTS = ("turns", "used_up", "passed_on", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens")
Standing = Literal["present", "broken", "removed", "retired"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """What one agent has spent and may spend; null where there is no limit.

    `standing`: whether there is a resume, or it cannot be read (which says what the agent may spend), or the
    agent was removed, with its ledger, or has retired: a person or a channel speaks for it.
    `used_up`: what counts against `max_credits`, that is `spent`, of which `judged` on judges, and what was
    `passed_on` to agents it created. `overrides`: the limit of the resume that config/credits.json replaces.
    """

    agent: str
    standing: Standing
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
    return _account(base, agent.name, config, "present", agent.credits)


def standing_in(survey: Survey, config: Config, name: str) -> Standing:
    """Return the standing of whoever has a folder."""
    if (agent := survey.agents.get(name)) is None:
        return "broken"
    return "present" if takes_turns(agent, config) else "retired"


def account_by_ledger(base: OrgPath, survey: Survey, config: Config, name: str) -> Account:
    """Return the same of whoever has a folder, whatever became of its resume."""
    if agent := survey.agents.get(name):
        return account_of(base, agent, config)
    return _account(base, name, config, "broken", AgentCredits())


def _account(base: OrgPath, name: str, config: Config, standing: Standing, own: AgentCredits) -> Account:
    state, allowed = read_state(base, name), credits_of(config, name, own)
    limit = allowed.max_credits
    is_other = standing == "present" and is_overridden(config, name, own)
    return Account(
        agent=name,
        standing=standing,
        spent=state.credits,
        judged=state.aside.get(JUDGES, 0.0),
        max_credits=limit,
        overrides=own.max_credits if is_other else None,
        soft_cap=allowed.soft_cap,
        left=None if limit is None else max(limit - state.used_up, 0.0),
        **{key: getattr(state, key) for key in _AMOUNTS},
    )


def accounts(
    base: OrgPath, survey: Survey, config: Config, *, only: str | None = None
) -> tuple[list[Account], list[CorruptState]]:
    """Return what all who have a ledger have spent, or only one of them, and which ledgers cannot be read.

    Of people, channels and folders without a resume only those that have spent something, as agents did.
    """
    found, damaged = list[Account](), list[CorruptState]()
    for name in agents_with_ledgers(base):
        if only in (None, name):
            try:
                account = account_by_ledger(base, survey, config, name)
            except CorruptState as error:
                damaged.append(error)
                continue
            standing = standing_in(survey, config, name)
            is_one = standing == "present" or name in survey.broken
            if is_one or account.spent or account.input_tokens:
                found.append(replace(account, standing=standing))
    return found, damaged


def removed_accounts(base: OrgPath) -> list[Account]:
    """Return what those have spent that have no ledger any more, as `removed` says."""
    return [
        Account(
            agent=name,
            standing="removed",
            turns=cost.turns,
            spent=float(cost.credits),
            used_up=0.0,
            judged=0.0,
            max_credits=None,
            overrides=None,
            soft_cap=None,
            passed_on=0.0,
            left=None,
            cost_usd=None if cost.cost_usd is None else float(cost.cost_usd),
            unpriced_calls=cost.unpriced_calls,
            input_tokens=cost.input_tokens,
            output_tokens=cost.output_tokens,
        )
        for name, cost in removed(base).items()
    ]


def total_of(found: Collection[Account]) -> dict[str, Any]:
    """Return what all of them have spent together; what is used up of which limit, of those that are there.

    A limit only where each of those has one.
    """
    keys = ("turns", "unpriced_calls", "input_tokens", "output_tokens")
    dollars = [it.cost_usd for it in found if it.cost_usd is not None]
    there = [it for it in found if it.standing == "present"]
    limits = [it.max_credits for it in there]
    return {
        "credits": round(sum(it.spent for it in found), 6),
        **{key: round(sum(getattr(it, key) for it in found), 6) for key in keys},
        "used_up": round(sum(it.used_up for it in there), 6),
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
        state, account = self.state.as_json(), self.account.as_json()
        due = {"next_tick": self.coming.tick, "next_at": self.coming.as_text}
        return {**plain, "readers": self.readers, "state": state, "account": account, **due}


def agent_shown(base: OrgPath, agent: Agent, config: Config) -> AgentShown:
    """Return an agent as it stands; raise `CorruptState` for a damaged ledger."""
    readers = sorted(each.name for each in sound_survey(base).agents.values() if each.may_read(agent.name))
    coming = next_turn(base, agent, config, load_tick(base))
    state = read_state(base, agent.name)
    return AgentShown(agent, readers, state, account_of(base, agent, config), coming)
