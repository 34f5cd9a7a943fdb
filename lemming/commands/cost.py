"""`lemming cost` and `lemming credits`: spending, spending limits and grants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    argument,
    find_agent,
    make_command_group,
    option,
    with_parameters_of,
)
from lemming.commands.terminal import print_data, print_json, print_notice
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.org.capability_usage import resolve_credits
from lemming.kernel.org.config import load_config
from lemming.libraries.settings_edits import edit_file
from lemming.queries.credit_accounts import load_account
from lemming.queries.screens.cost_screen import COST, CREDITS, format_amount, total_to_json
from lemming.queries.screens.screen import format_value

CSV_COLUMNS = (
    "turns", "calls", "credits", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens",
    "cached_tokens", "cached_share",
)  # fmt: skip


@with_parameters_of(COST)
def cost(
    context: CommandContext,
    as_csv: Annotated[bool, option("--csv", "Print CSV with all rows and no total.")] = False,
    limit: Annotated[
        int | None, option("--limit N", "Show the N most expensive rows; for ticks and days, the newest N.", min=1)
    ] = None,
    **values: Any,
) -> None:
    """Show spending by agent, model, request, tick or day.

    Shows credits, dollars, tokens and calls. The rows add up to the ledgers exactly. Amounts in a ledger
    without a journal have their own row, "before tick N". Days follow the organisation's time zone, UTC by
    default. Dollars read "no price" if neither config/models.json nor the shipped list has one; "or more"
    means that some calls have no price.

    \b
    Examples:
      lemming cost
      lemming cost --by model --since 100
      lemming cost --limit 5
      lemming cost --by day --csv > days.csv
      lemming cost --by request --json | jq 'select(.type == "cost") | {request, credits}'
    """
    if as_csv and context.as_json:
        raise UsageError("--csv and --json exclude each other", hint="use one of them")
    result = COST.load(context.org, values)
    if limit is not None and values["by"] in ("tick", "day"):
        result = replace(result, rows=[*result.rows[::-1]])
    elif limit is not None:
        result = replace(result, rows=sorted(result.rows, key=lambda row: -row.cost.credits))
    if as_csv:
        print_data(",".join((values["by"], *CSV_COLUMNS)))
        for row in context.limit_rows(result.rows, limit):
            amounts = (getattr(row.cost, column) for column in CSV_COLUMNS)
            cells = ("" if amount is None else format_amount(amount) for amount in amounts)
            # Agent names and model keys may hold any character.
            name = row.name.replace('"', '""')
            print_data(",".join((f'"{name}"' if set(name) & set(',"\n\r') else name, *cells)))
        return
    context.print_screen(COST, result, limit)
    print_json("cost_total", total_to_json(result.total.report))


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
        hint = f'set "credits": {{"max_credits": N}} in agents/{name}/resume.json'
        raise UsageError(f"{name} has no limit", hint=hint)
    load_account(base, name, config, agent)  # which raises before anything is written
    with edit_file(base, paths.CREDITS_FILE) as edit:  # two grants at once both count
        config = load_config(base)
        old_limit = resolve_credits(config, name, agent.credits).max_credits or 0.0
        new_limit = old_limit + amount
        if not 0 <= new_limit <= MAX_AMOUNT or not math.isfinite(amount):
            hint = f"choose a change that keeps the limit between 0 and {MAX_AMOUNT:.10g}"
            raise UsageError(f"the limit of {name} ({old_limit:.10g}) cannot change by {amount:.10g}", hint=hint)
        document = parse(edit.raw, allow_bom=True)
        stored_limit = int(new_limit) if new_limit == int(new_limit) else new_limit
        edit.publish(dump_pretty({**document, name: {**document.get(name, {}), "max_credits": stored_limit}}))
    updated = load_account(base, name, load_config(base), agent)
    print_json("credits", CREDITS.to_json(updated))
    before = f"(before: {old_limit:.10g})"
    print_notice(f"{name} may spend {new_limit:.10g} credits {before}; {format_value(updated.left)} left")
    print_notice(f"{paths.CREDITS_FILE} now overrides max_credits in agents/{name}/resume.json")
    print_notice(f"`lemming credits grant {name} {-amount:.10g}` takes it back; `lemming run-once` runs the next tick")
