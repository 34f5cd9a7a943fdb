"""The screen of credits: spending and limits of agents."""

from __future__ import annotations

from lemming.kernel.agents import require_agent_folder, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import format_usd
from lemming.queries.credit_accounts import Account, load_accounts
from lemming.queries.screens.parameters import AnyAgentName
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult, format_value


def list_credits(org: OrgPath, agent: AnyAgentName = None) -> ScreenResult:
    """Show credits spent and limits."""
    if agent is not None:
        require_agent_folder(org, agent)
    accounts, damaged = load_accounts(org, survey_agents(org), load_config(org), only=agent)
    notes = [_describe_override(account) for account in accounts if account.overrides is not None]
    return ScreenResult(accounts, notes, errors=damaged)


def _describe_override(account: Account) -> Note:
    limit, resume_limit = format_value(account.max_credits), format_value(account.overrides)
    file = paths.resume_file(account.agent)
    return Note(
        f"{account.agent}: {paths.CREDITS_FILE} says {limit}, not the {resume_limit} of {file}; remove its line there to use "
        "the resume"
    )


def _format_name(account: Account) -> str:
    return account.agent if account.standing == "present" else f"{account.agent} ({account.standing})"


def _format_limit(account: Account, amount: float | None) -> str:
    """Format an amount; the limit of an agent with a broken resume is unknown."""
    return "?" if amount is None and account.standing == "broken" else format_value(amount)


CREDITS = Screen(
    "credits",
    kind="credits",
    title="Credits",
    command="credits show",
    tool="cost",
    query=list_credits,
    row=Account,
    columns=(
        Column("agent", "AGENT", "Name of the agent.", text=_format_name, shown="agent"),
        Column("standing", about="present, broken (its resume cannot be read), removed, or retired (it takes no turns)."),
        Column("turns", about="Number of completed turns."),
        Column("spent", "SPENT", "Credits spent."),
        Column("used_up", about="Credits that count against the limit: those spent, and those transferred."),
        Column("judged", about="Credits spent on judges; part of `spent`."),
        Column("max_credits", "MAX", "Credit limit.", text=lambda row: _format_limit(row, row.max_credits)),
        Column("overrides", about="Limit in the resume, if config/credits.json replaces it."),
        Column("passed_on", "TRANSFERRED", "Credits transferred to agents that it created.", hides_zeros=True),
        Column("left", "LEFT", "Credits left.", text=lambda row: _format_limit(row, row.left)),
        Column("soft_cap", "SOFT CAP", "Credits from which on its prompt asks it to save."),
        Column(
            "cost_usd", "COST", "Cost in dollars, as far as prices are known.",
            text=lambda row: format_usd(row.cost_usd, calls=row.unpriced_calls, unpriced=row.unpriced_calls),
        ),
        Column("unpriced_calls", about="Number of model calls without a price."),
        Column("input_tokens", about="Tokens sent to models."),
        Column("output_tokens", about="Tokens that models wrote."),
        Column("", "TOKENS", text=lambda row: f"{row.input_tokens:,} in, {row.output_tokens:,} out"),
    ),
)  # fmt: skip
