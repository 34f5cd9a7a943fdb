"""Spending and spending limits of agents, read from their ledgers, and the details of a single agent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.org.capability_usage import resolve_credits
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.plugins.capability_table import JUDGES
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.agent_validation import load_validated_survey
from lemming.queries.cost_report import list_ledger_agents, load_removed_costs
from lemming.queries.next_turn import NextTurn, find_next_turn

AgentPresence = Literal["present", "broken", "removed", "retired"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """Spending and spending limits of an agent; a limit is null when the agent has none.

    `standing`: "present" with a readable resume, "broken" with a resume (and so limits) that cannot be read, "removed"
    with the ledger gone, "retired" for an agent whose part a person or a channel has taken over. `used_up`: credits
    counted against `max_credits`: `spent`, including `judged` on judges, plus the credits `passed_on` to created
    agents. `overrides`: the limit in the resume, when config/credits.json replaces this limit.
    """

    agent: str
    standing: AgentPresence
    turns: int
    spent: float
    used_up: float = 0.0
    judged: float = 0.0
    max_credits: float | None = None
    overrides: float | None = None
    soft_cap: float | None = None
    passed_on: float = 0.0
    left: float | None = None
    cost_usd: float | None
    unpriced_calls: int
    input_tokens: int
    output_tokens: int

    def as_json(self) -> dict[str, Any]:
        """Return the account as JSON values."""
        return vars(self)


def load_account(base: OrgPath, name: str, config: Config, agent: Agent | None) -> Account:
    """Return the account of an agent; `agent`: None for a broken resume. Raises `CorruptState` for a damaged ledger."""
    resume_credits = agent.credits if agent else AgentCredits()
    state, allowed = read_state(base, name), resolve_credits(config, name, resume_credits)
    limit, is_overridden = allowed.max_credits, agent and has_credit_override(config, name, resume_credits)
    amounts = ("turns", "passed_on", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens")
    return Account(
        agent=name,
        standing="present" if agent else "broken",
        spent=state.credits,
        judged=state.aside.get(JUDGES, 0.0),
        max_credits=limit,
        overrides=resume_credits.max_credits if is_overridden else None,
        soft_cap=allowed.soft_cap,
        left=None if limit is None else max(limit - state.consumed_credits, 0.0),
        used_up=state.consumed_credits,
        **{key: getattr(state, key) for key in amounts},
    )


def find_presence(survey: Survey, config: Config, name: str) -> AgentPresence:
    """Return the presence of an agent that has a folder."""
    if (agent := survey.agents.get(name)) is None:
        return "broken"
    return "present" if config.has_model_turns(agent) else "retired"


def load_accounts(
    base: OrgPath, survey: Survey, config: Config, *, only: str | None = None
) -> tuple[list[Account], list[CorruptState]]:
    """Return the accounts of all agents that have a ledger, and the errors of unreadable ledgers.

    `only` limits the result to a single agent. People, channels and folders without a resume are included
    only if they have spent something, as former agents.
    """
    accounts, damaged = list[Account](), list[CorruptState]()
    for name in list_ledger_agents(base):
        if only in (None, name):
            try:
                account = load_account(base, name, config, survey.agents.get(name))
            except CorruptState as error:
                damaged.append(error)
                continue
            presence = find_presence(survey, config, name)
            is_agent = presence == "present" or name in survey.broken
            if is_agent or account.spent or account.input_tokens:
                accounts.append(replace(account, standing=presence))
    return accounts, damaged


def load_removed_accounts(base: OrgPath) -> list[Account]:
    """Return the accounts of agents whose ledger is gone, from `load_removed_costs`."""
    return [
        Account(
            agent=name,
            standing="removed",
            spent=float(cost.credits),
            cost_usd=None if cost.cost_usd is None else float(cost.cost_usd),
            **{key: getattr(cost, key) for key in ("turns", "unpriced_calls", "input_tokens", "output_tokens")},
        )
        for name, cost in load_removed_costs(base).items()
    ]


def sum_accounts(accounts: Collection[Account]) -> dict[str, Any]:
    """Return the total spending, and the present agents' used credits and limit, null if any has no limit."""
    keys = ("turns", "unpriced_calls", "input_tokens", "output_tokens")
    dollars = [account.cost_usd for account in accounts if account.cost_usd is not None]
    present_accounts = [account for account in accounts if account.standing == "present"]
    limits = [account.max_credits for account in present_accounts]
    return {
        "credits": round(sum(account.spent for account in accounts), 6),
        **{key: round(sum(getattr(account, key) for account in accounts), 6) for key in keys},
        "used_up": round(sum(account.used_up for account in present_accounts), 6),
        "cost_usd": sum(dollars) if dollars else None,
        "max_credits": None if not limits or None in limits else sum(filter(None, limits)),
    }


class AgentDetails(NamedTuple):
    """An agent with its readers, its state after the last turn, its account and its next turn."""

    agent: Agent
    readers: list[str]
    state: AgentState
    account: Account
    upcoming: NextTurn

    def as_json(self) -> dict[str, Any]:
        """Return the details as JSON values."""
        identity = {"agent": self.agent.name, "resume": self.agent.as_json, "problem": ""}
        state, account = self.state.as_json(), self.account.as_json()
        due = {"next_tick": self.upcoming.tick, "next_at": self.upcoming.as_text}
        return {**identity, "readers": self.readers, "state": state, "account": account, **due}


def load_agent_details(base: OrgPath, agent: Agent, config: Config) -> AgentDetails:
    """Return the current details of an agent; raise `CorruptState` for a damaged ledger."""
    agents = load_validated_survey(base).agents.values()
    readers = sorted(reader.name for reader in agents if reader.may_read(agent.name))
    upcoming = find_next_turn(base, agent, config, load_tick(base))
    state = read_state(base, agent.name)
    return AgentDetails(agent, readers, state, load_account(base, agent.name, config, agent), upcoming)


def has_credit_override(config: Config, agent_name: str, resume: AgentCredits) -> bool:
    """Return True if `config/credits.json` changes the credit limit in an agent's resume."""
    return resolve_credits(config, agent_name, resume).max_credits != resume.max_credits
