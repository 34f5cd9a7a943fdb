"""`lemming cost` and `lemming credits`: spending, spending limits and grants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    argument,
    find_agent,
    make_command_group,
    option,
)
from lemming.commands.terminal import (
    format_count,
    print_data,
    print_json,
    print_notice,
    print_table,
    show_progress_bar,
)
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean, dump_pretty, parse
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.config import CREDITS_FILE, load_config
from lemming.kernel.org.credit_limits import resolve_credits
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.cost_report import REMOVED, By, Cost, CostReport, compute_costs
from lemming.queries.credit_accounts import AgentPresence, find_presence, load_account
from lemming.queries.screens.credits_screen import CREDITS
from lemming.queries.screens.screen import format_value

GROUPS = ("agent", "model", "request", "tick", "day")
COLUMNS = (
    "turns", "calls", "credits", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens",
    "cached_tokens", "cached_share",
)  # fmt: skip


def cost(
    context: CommandContext,
    by: Annotated[str, option("--by GROUP", f"Group by {', '.join(GROUPS[:-1])} or {GROUPS[-1]}.")] = "agent",
    since: Annotated[int, option("--since TICK", "Count only turns from this tick on.", min=0)] = 0,
    as_csv: Annotated[bool, option("--csv", "Print CSV with all rows and no total.")] = False,
    limit: Annotated[
        int | None, option("--limit N", "Show the N most expensive rows; for ticks and days, the newest N.", min=1)
    ] = None,
) -> None:
    """Show spending by agent, model, request, tick or day.

    Shows credits, dollars, tokens and calls. The rows add up to the ledgers exactly. Amounts in a ledger
    without a journal have their own row, "before tick N". Days follow the organisation's time zone, UTC by
    default. Dollars are unknown if neither config/models.json nor the shipped list has a price; "or more"
    means that some calls have no price.

    \b
    Examples:
      lemming cost
      lemming cost --by model --since 100
      lemming cost --limit 5
      lemming cost --by day --csv > days.csv
      lemming cost --by request --json | jq 'select(.type == "cost") | {request, credits}'
    """
    if by not in GROUPS:
        raise UsageError(
            f'--by must be one of {", ".join(GROUPS)}, got "{by}"', hint=did_you_mean(by, GROUPS) or "write --by agent"
        )
    if as_csv and context.as_json:
        raise UsageError("--csv and --json exclude each other", hint="use one of them")
    with show_progress_bar("adding up") as progress:
        costs = compute_costs(context.org, by, since=since, progress=progress)  # type: ignore[arg-type]
    rows = context.limit_rows(_sort_rows(costs, is_ranked=limit is not None), limit)
    if context.as_json:
        _print_costs_as_json(costs, rows, _load_agent_presence(costs, context.org))
    elif as_csv:
        _print_costs_as_csv(costs, rows)
    else:
        marks = {
            name: f" ({agent_account})"
            for name, agent_account in _load_agent_presence(costs, context.org).items()
            if agent_account != "present"
        }
        _print_costs(costs, [(f"{name}{marks.get(name, '')}", row) for name, row in rows])
    _print_omissions(costs)


def _sort_rows(costs: CostReport, *, is_ranked: bool) -> list[tuple[str, Cost]]:
    """Return the rows that add up to the total: unjournaled spending first, or the most expensive first."""
    has_row = costs.by != "agent" and any(costs.unrecorded.ledger_amounts)
    rows = [*([(_label_unjournaled(costs), costs.unrecorded)] if has_row else []), *costs.rows.items()]
    if is_ranked and costs.by in ("tick", "day"):
        return rows[::-1]
    return sorted(rows, key=lambda agent_account: -agent_account[1].credits) if is_ranked else rows


def _load_agent_presence(costs: CostReport, base: OrgPath) -> dict[str, AgentPresence]:
    """Return the presence of agents that have a folder, by row name; empty unless rows are agents."""
    if costs.by != "agent":
        return {}
    survey, config = survey_agents(base), load_config(base)
    return {name: find_presence(survey, config, name) for name in costs.rows if not name.endswith(REMOVED)}


def _label_unjournaled(costs: CostReport) -> str:
    """Return the label of the row for spending without a journal."""
    return f"before tick {costs.first_tick}" if costs.is_pruned else "in no journal"


def _print_costs_as_json(
    costs: CostReport, rows: Sequence[tuple[str, Cost]], presence: Mapping[str, AgentPresence]
) -> None:
    for name, row in rows:
        is_unjournaled = row is costs.unrecorded
        keys: dict[str, Any] = {costs.by: None if is_unjournaled else int(name) if costs.by == "tick" else name}
        if costs.by == "agent":
            keys = {"agent": name.removesuffix(REMOVED), "standing": presence.get(name, "removed")}
        print_json("cost", {**keys, **({"rest": name} if is_unjournaled else {}), **row.as_json()})
    facts: dict[str, Any] = {"by": costs.by, "before": costs.unrecorded.as_json(), "before_tick": costs.first_tick}
    facts |= {"judged_credits": float(costs.judged)} if costs.judged else {}
    facts |= {"lost": costs.write_off.as_json()} if costs.write_off else {}
    facts |= {"removed": costs.removed_total.as_json(), "under_way": costs.open.as_json(), "damaged": costs.damaged}
    print_json("cost_total", {**costs.total.as_json(), **facts})


def _print_costs_as_csv(costs: CostReport, rows: Sequence[tuple[str, Cost]]) -> None:
    print_data(",".join((costs.by, *COLUMNS)))
    for name, row in rows:
        values = (getattr(row, column) for column in COLUMNS)
        print_data(
            ",".join(
                (
                    _quote_csv(name),
                    *("" if agent_account is None else _format_amount(agent_account) for agent_account in values),
                )
            )
        )


def _quote_csv(name: str) -> str:
    """Quote a name as CSV; agent names and model keys may hold any character."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n\r') else name


def _format_amount(amount: Decimal | float) -> str:
    """Format an amount with all significant digits.

    >>> [_format_amount(Decimal(text)) for text in ("12.500", "1E-7", "30", "-0.0")]
    ['12.5', '0.0000001', '30', '0']
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _print_costs(costs: CostReport, rows: Sequence[tuple[str, Cost]]) -> None:
    if not rows:
        print_notice("no spending yet")
        return
    cells = [[name or "(no request)", *_format_cells(row, costs.by)] for name, row in (*rows, ("total", costs.total))]
    print_table([costs.by.upper(), "TURNS", "CALLS", "CREDITS", "DOLLARS", "TOKENS"], cells)


def _format_cells(row: Cost, by: By) -> list[str]:
    cached = f" ({row.cached_tokens:,} cached, {row.cached_share:.0%})" if row.cached_share else ""
    return [
        "-" if by == "model" else str(row.turns),  # a turn may ask several
        str(row.calls),
        _format_amount(row.credits),
        format_cost_usd(row),
        f"{row.input_tokens:,} in{cached}, {row.output_tokens:,} out",
    ]


def format_cost_usd(row: Cost) -> str:
    """Format a cost in dollars as far as prices are known, without floating-point noise.

    >>> format_cost_usd(Cost(cost_usd=Decimal("0.23040000000000002"), unpriced_calls=1))
    '$0.2304 or more'
    """
    if row.cost_usd is None:
        return "unknown" if row.unpriced_calls else "-"
    return f"${_format_amount(round(row.cost_usd, 12))}{' or more' if row.unpriced_calls else ''}"


def _print_omissions(costs: CostReport) -> None:
    """Print the amounts outside the rows: pruned journals, removed agents, judges, open ticks and write-offs."""
    if costs.is_pruned:
        amount = f"{format_count(float(costs.unrecorded.credits), 'credit')} were spent before"
        print_notice(f"the oldest journal is of tick {costs.first_tick}: {amount}, without details")
    if any(costs.removed_total.ledger_amounts):
        print_notice(f"removed agents spent {format_count(float(costs.removed_total.credits), 'credit')} of it")
    if costs.judged:
        print_notice(f"{format_count(float(costs.judged), 'credit')} were spent on judges")
    if any(costs.open.ledger_amounts):
        print_notice(f"the running tick has spent {format_count(float(costs.open.credits), 'credit')} more so far")
    if costs.write_off:
        calls, dollars = format_count(costs.write_off.calls, "call"), costs.write_off.cost_usd
        max_text = f"{_format_amount(Decimal(repr(costs.write_off.credits)))} credits"
        max_text += "" if dollars is None else f", ${_format_amount(Decimal(repr(dollars)))}"
        verb = "was sent and its answer" if costs.write_off.calls == 1 else "were sent and their answers"
        print_notice(f"{calls} {verb} never came: at most {max_text}, which limits count beside the total")
    for tick in costs.damaged:
        print_notice(f"the journal of tick {tick} cannot be read; `lemming verify` says why", style="yellow")


app = make_command_group("Show spending limits and grant credits.", cls=AgentFallbackGroup)


app.add_screen("show", CREDITS)


@app.subcommand("grant", context_settings={"ignore_unknown_options": True})  # -5 is an amount
def grant_credits(
    context: CommandContext,
    name: AgentName,
    amount: Annotated[float, argument("AMOUNT", "Credits to add; a negative amount lowers the limit.")],
) -> None:
    """Raise an agent's credit limit.

    Writes max_credits to config/credits.json and leaves other settings unchanged.

    \b
    Example:
      lemming credits grant editor 500
    """
    base = context.org
    agent, config = find_agent(base, name), load_config(base)
    if resolve_credits(config, name, agent.credits).max_credits is None:
        raise UsageError(
            f"{name} has no limit", hint=f'set "credits": {{"max_credits": N}} in agents/{name}/resume.json'
        )
    load_account(base, agent, config)  # which raises before anything is written
    with edit_file(base, CREDITS_FILE) as edit:  # two grants at once both count
        config = load_config(base)
        old_limit = resolve_credits(config, name, agent.credits).max_credits or 0.0
        new_limit = old_limit + amount
        if not 0 <= new_limit <= MAX_AMOUNT or not math.isfinite(amount):
            hint = f"choose a change that keeps the limit between 0 and {MAX_AMOUNT:g}"
            raise UsageError(f"the limit of {name} ({old_limit:g}) cannot change by {amount:g}", hint=hint)
        document = parse(edit.raw, allow_bom=True)
        stored_limit = int(new_limit) if new_limit == int(new_limit) else new_limit
        edit.publish(dump_pretty({**document, name: {**document.get(name, {}), "max_credits": stored_limit}}))
    updated = load_account(base, agent, load_config(base))
    if context.print_as_json("credits", CREDITS.to_json(updated)):
        return
    print_notice(f"{name} may spend {new_limit:g} credits (before: {old_limit:g}); {format_value(updated.left)} left")
    print_notice(f"{CREDITS_FILE} now overrides max_credits in agents/{name}/resume.json")
    print_notice(f"`lemming credits grant {name} {-amount:g}` takes it back; `lemming run-once` runs the next tick")
