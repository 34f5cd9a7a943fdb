"""The screens of spending: by agent, model, request, tick or day, and the credits and limits of agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, NamedTuple

from lemming.kernel.agents import require_agent_folder, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.wording import format_count, format_usd
from lemming.queries.cost_report import REMOVED, Cost, CostReport, compute_costs
from lemming.queries.credit_accounts import Account, AgentPresence, find_presence, load_accounts
from lemming.queries.screens.screen import (
    OMITTED,
    AnyAgentName,
    Column,
    Note,
    Parameter,
    Screen,
    ScreenResult,
    Shown,
    format_value,
)

GROUPS = ("agent", "model", "request", "tick", "day")


class CostRow(NamedTuple):
    """The spending of a group. `is_rest`: amounts in no journal. `standing`: presence of an agent, or empty."""

    name: str
    cost: Cost
    report: CostReport
    is_rest: bool = False
    standing: AgentPresence | None = None


def list_costs(
    org: OrgPath,
    by: Annotated[str, Parameter("--by GROUP", f"Group by {', '.join(GROUPS[:-1])} or {GROUPS[-1]}.")] = "agent",
    since: Annotated[int, Parameter("--since TICK", "Count only turns from this tick on.", minimum=0)] = 0,
) -> ScreenResult:
    """Return the spending of each group, with amounts in no journal first, and the total."""
    if by not in GROUPS:
        hint = did_you_mean(by, GROUPS) or "write --by agent"
        raise UsageError(f'--by must be one of {", ".join(GROUPS)}, got "{by}"', hint=hint)
    report = compute_costs(org, by, since=since)  # type: ignore[arg-type]
    rows = [CostRow(name, cost, report) for name, cost in report.rows.items()]
    if by == "agent":
        find = partial(find_presence, survey_agents(org), load_config(org))
        rows = [row._replace(standing="removed" if row.name.endswith(REMOVED) else find(row.name)) for row in rows]
    elif any(report.unrecorded.ledger_amounts):
        label = f"before tick {report.first_tick}" if report.is_pruned else "in no journal"
        rows.insert(0, CostRow(label, report.unrecorded, report, is_rest=True))
    return ScreenResult(rows, [*_describe_omissions(report)], total=CostRow("total", report.total, report))


def total_to_json(report: CostReport) -> dict[str, Any]:
    """Return the total of a report as JSON values."""
    facts: dict[str, Any] = {"by": report.by, "before": report.unrecorded.as_json(), "before_tick": report.first_tick}
    facts |= {"judged_credits": float(report.judged)} if report.judged else {}
    facts |= {"lost": report.write_off.as_json()} if report.write_off else {}
    facts |= {"removed": report.removed_total.as_json(), "under_way": report.open.as_json(), "damaged": report.damaged}
    return {**report.total.as_json(), **facts}


def format_amount(amount: Decimal | float) -> str:
    """Format an amount with all significant digits.

    >>> [format_amount(Decimal(text)) for text in ("12.500", "1E-7", "30", "-0.0")]
    ['12.5', '0.0000001', '30', '0']
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def format_cost_usd(row: Cost) -> str:
    """Format a cost in dollars as far as prices are known, without floating-point noise.

    >>> format_cost_usd(Cost(cost_usd=Decimal("0.23040000000000002"), unpriced_calls=1))
    '$0.2304 or more'
    """
    if row.cost_usd is None:
        return "no price" if row.unpriced_calls else "-"
    return f"${format_amount(round(row.cost_usd, 12))}{' or more' if row.unpriced_calls else ''}"


def _describe_omissions(costs: CostReport) -> Iterator[Note]:
    """Yield the amounts outside the rows: pruned journals, removed agents, judges, open ticks and write-offs."""
    if costs.is_pruned:
        amount = f"{format_count(float(costs.unrecorded.credits), 'credit')} were spent before"
        yield Note(f"the oldest journal is of tick {costs.first_tick}: {amount}, without details")
    elif costs.by == "agent" and any(costs.unrecorded.ledger_amounts):
        amount = format_count(float(costs.unrecorded.credits), "credit")
        yield Note(f"{amount} of it without a journal: turns and calls leave them out")
    if any(costs.removed_total.ledger_amounts):
        yield Note(f"removed agents spent {format_count(float(costs.removed_total.credits), 'credit')} of it")
    if costs.judged:
        yield Note(f"{format_count(float(costs.judged), 'credit')} were spent on judges")
    if any(costs.open.ledger_amounts):
        yield Note(f"the running tick has spent {format_count(float(costs.open.credits), 'credit')} more so far")
    if costs.write_off:
        calls, dollars = format_count(costs.write_off.calls, "call"), costs.write_off.cost_usd
        max_text = f"{format_amount(Decimal(repr(costs.write_off.credits)))} credits"
        max_text += "" if dollars is None else f", ${format_amount(Decimal(repr(dollars)))}"
        verb = "was sent and its answer" if costs.write_off.calls == 1 else "were sent and their answers"
        yield Note(f"{calls} {verb} never came: at most {max_text}, which limits count beside the total")
    for tick in costs.damaged:
        yield Note(f"the journal of tick {tick} cannot be read; `lemming verify` says why", is_warning=True)


def _group(key: str) -> Callable[[CostRow], Any]:
    """Return a function that returns the name of a row's group, if the report groups by this key."""

    def find_name(row: CostRow) -> Any:
        if row.report.by != key:
            return OMITTED
        if row.is_rest:
            return None
        return int(row.name) if key == "tick" and row.name != "total" else row.name.removesuffix(REMOVED)

    return find_name


def _format_group(row: CostRow) -> str:
    name = row.name or "(no request)"
    return f"{name} ({row.standing})" if row.standing in ("broken", "retired") else name


def _amount(key: str) -> Callable[[CostRow], Any]:
    return lambda row: row.cost.as_json()[key]


def _format_tokens(row: CostRow) -> str:
    cost = row.cost
    cached = f" ({cost.cached_tokens:,} cached, {cost.cached_share:.0%})" if cost.cached_share else ""
    return f"{cost.input_tokens:,} in{cached}, {cost.output_tokens:,} out"


def _group_column(key: str, about: str, kind: Any = str | None, shown: Shown = "text") -> Column:
    return Column(key, key.upper(), about, kind, value=_group(key), text=_format_group, is_optional=True, shown=shown)


COST = Screen(
    "cost",
    kind="cost",
    title="Cost",
    query=list_costs,
    empty="no spending",
    columns=(
        _group_column("agent", "Name of the agent."),
        _group_column("model", "Model key, or null for amounts in no journal."),
        _group_column("request", "Id of the request, or null for amounts in no journal; empty for turns without one."),
        _group_column("tick", "Number of the tick, or null for amounts in no journal.", int | None),
        _group_column("day", "Day in the time zone of the organisation, or null for amounts in no journal."),
        Column(
            "standing", about="present, broken, retired or removed: whether the agent is still there.", type=AgentPresence,
            value=lambda row: row.standing or OMITTED, is_optional=True,
        ),
        Column(
            "rest", about="Name of the amounts in no journal.", is_optional=True,
            value=lambda row: row.name if row.is_rest else OMITTED,
        ),
        Column(
            "turns", "TURNS", "Turns with model calls.", int, value=_amount("turns"),
            text=lambda row: "-" if row.report.by == "model" else str(row.cost.turns),  # a turn may ask several
        ),
        Column("calls", "CALLS", "Model calls.", int, value=_amount("calls")),
        Column(
            "credits", "CREDITS", "Credits spent.", float, value=_amount("credits"),
            text=lambda row: format_amount(row.cost.credits),
        ),
        Column(
            "cost_usd", "DOLLARS", "Cost in dollars, as far as prices are known.", float | None, value=_amount("cost_usd"),
            text=lambda row: format_cost_usd(row.cost),
        ),
        Column("unpriced_calls", about="Model calls without a price.", type=int, value=_amount("unpriced_calls")),
        Column("input_tokens", about="Tokens sent to models.", type=int, value=_amount("input_tokens")),
        Column("output_tokens", about="Tokens that models wrote.", type=int, value=_amount("output_tokens")),
        Column("", "TOKENS", text=_format_tokens),
        Column("cached_tokens", about="Input tokens from the caches of providers.", type=int, value=_amount("cached_tokens")),
        Column("recorded_tokens", about="Input tokens of the recorded calls.", type=int, value=_amount("recorded_tokens")),
        Column(
            "cached_share", about="Cached share of the recorded input, from 0 to 1.", type=float | None,
            value=_amount("cached_share"),
        ),
    ),
)  # fmt: skip


def list_credits(org: OrgPath, agent: AnyAgentName = None) -> ScreenResult:
    """Show credits spent and limits."""
    if agent is not None:
        require_agent_folder(org, agent)
    accounts, damaged = load_accounts(org, survey_agents(org), load_config(org), only=agent)
    notes = list[Note]()
    for account in accounts:
        if account.overrides is not None:
            limit, resume_limit = format_value(account.max_credits), format_value(account.overrides)
            text = f"{paths.CREDITS_FILE} says {limit}, not the {resume_limit} of {paths.resume_file(account.agent)}"
            notes.append(Note(f"{account.agent}: {text}; remove its line there to use the resume"))
    return ScreenResult(accounts, notes, errors=damaged)


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
