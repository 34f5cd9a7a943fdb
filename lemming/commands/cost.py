"""`lemming cost` and `lemming credits`: what was spent, on what, and what may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

import typer

from lemming.commands.failures import tell_error
from lemming.commands.options import (
    AgentName,
    AnyAgentName,
    Here,
    Limit,
    OrAnAgent,
    argument,
    find_agent,
    noun,
    option,
    require_folder,
)
from lemming.commands.screen import (
    counted,
    in_dollars,
    show,
    show_json,
    show_table,
    tell,
    told_as_it_goes,
)
from lemming.facts.accounts import Account, Standing, account_of, accounts, standing_in
from lemming.facts.costs import REMOVED, By, Cost, Costs, costs_by
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import nearest, parse, pretty
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import CREDITS_FILE, credits_of, load_config
from lemming.kernel.org.organisation import OrgPath

GROUPS = ("agent", "model", "request", "tick", "day")
COLUMNS = (
    "turns", "calls", "credits", "cost_usd", "unpriced_calls", "input_tokens", "output_tokens",
    "cached_tokens", "cached_share",
)  # fmt: skip


def cost(
    here: Here,
    by: Annotated[str, option("--by GROUP", f"One of {', '.join(GROUPS)}.")] = "agent",
    since: Annotated[int, option("--since TICK", "Only turns of this tick and later ones.", min=0)] = 0,
    as_csv: Annotated[bool, option("--csv", "Print CSV: every row, no total.")] = False,
    limit: Annotated[
        int | None, option("--limit N", "Only the N that cost most; of ticks and days the newest.", min=1)
    ] = None,
) -> None:
    """Show what was spent: credits, dollars, tokens and calls, by agent or by something else.

    The rows add up to the ledgers, to the last digit. What a ledger has and no journal tells of any more is
    a row of its own, "before tick N". A day is one of the organisation's time zone, UTC without one. Dollars
    are unknown where neither config/models.json nor the shipped list has a price; "or more" stands where
    that is so for some of the calls.

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
            f'--by "{by}" is none of {", ".join(GROUPS)}', hint=nearest(by, GROUPS) or "--by agent"
        )
    if as_csv and here.as_json:
        raise UsageError("--csv and --json are two forms of the same", hint="give one of them")
    with told_as_it_goes("adding up") as progress:
        found = costs_by(here.org, by, since=since, progress=progress)  # type: ignore[arg-type]
    rows = here.few(_rows(found, is_ranked=limit is not None), limit)
    if here.as_json:
        _show_json(found, rows, _standings(found, here.org))
    elif as_csv:
        _show_csv(found, rows)
    else:
        marks = {name: f" ({it})" for name, it in _standings(found, here.org).items() if it != "present"}
        _show(found, [(f"{name}{marks.get(name, '')}", row) for name, row in rows])
    _tell_what_is_missing(found)


def _rows(found: Costs, *, is_ranked: bool) -> list[tuple[str, Cost]]:
    """Return the rows that add up to the total; first what no journal tells of, or what cost most."""
    has_row = found.by != "agent" and any(found.before.amounts)
    rows = [*([(_before(found), found.before)] if has_row else []), *found.rows.items()]
    if is_ranked and found.by in ("tick", "day"):
        return rows[::-1]
    return sorted(rows, key=lambda it: -it[1].credits) if is_ranked else rows


def _standings(found: Costs, base: OrgPath) -> dict[str, Standing]:
    """Return the standing of those who have a folder, by their rows; nothing where rows are not agents."""
    if found.by != "agent":
        return {}
    survey, config = survey_agents(base), load_config(base)
    return {name: standing_in(survey, config, name) for name in found.rows if not name.endswith(REMOVED)}


def _before(found: Costs) -> str:
    return f"before tick {found.first}" if found.is_pruned else "in no journal"


def _show_json(found: Costs, rows: Sequence[tuple[str, Cost]], standings: Mapping[str, Standing]) -> None:
    for name, row in rows:
        is_rest = row is found.before
        plain: dict[str, Any] = {found.by: None if is_rest else int(name) if found.by == "tick" else name}
        if found.by == "agent":
            plain = {"agent": name.removesuffix(REMOVED), "standing": standings.get(name, "removed")}
        show_json("cost", {**plain, **({"rest": name} if is_rest else {}), **row.as_json()})
    facts: dict[str, Any] = {"by": found.by, "before": found.before.as_json(), "before_tick": found.first}
    facts |= {"judged_credits": float(found.judged)} if found.judged else {}
    facts |= {"lost": found.lost.as_json()} if found.lost else {}
    facts |= {"removed": found.gone.as_json(), "under_way": found.open.as_json(), "damaged": found.damaged}
    show_json("cost_total", {**found.total.as_json(), **facts})


def _show_csv(found: Costs, rows: Sequence[tuple[str, Cost]]) -> None:
    show(",".join((found.by, *COLUMNS)))
    for name, row in rows:
        values = (getattr(row, column) for column in COLUMNS)
        show(",".join((_quoted(name), *("" if it is None else _in_digits(it) for it in values))))


def _quoted(name: str) -> str:
    """Return a name as CSV has it; an agent's or a model's key may hold anything."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n\r') else name


def _in_digits(amount: Decimal | float) -> str:
    """Return an amount with all its digits, and none that says nothing.

    >>> [_in_digits(Decimal(text)) for text in ("12.500", "1E-7", "30", "-0.0")]
    ['12.5', '0.0000001', '30', '0']
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _show(found: Costs, rows: Sequence[tuple[str, Cost]]) -> None:
    if not rows:
        tell("nothing spent yet")
        return
    cells = [
        [name or "(no request)", *_cells(row, found.by)] for name, row in (*rows, ("total", found.total))
    ]
    show_table([found.by.upper(), "TURNS", "CALLS", "CREDITS", "DOLLARS", "TOKENS"], cells)


def _cells(row: Cost, by: By) -> list[str]:
    cached = f" ({row.cached_tokens:,} cached, {row.cached_share:.0%})" if row.cached_share else ""
    return [
        "-" if by == "model" else str(row.turns),  # a turn may ask several
        str(row.calls),
        _in_digits(row.credits),
        dollars_text(row),
        f"{row.input_tokens:,} in{cached}, {row.output_tokens:,} out",
    ]


def dollars_text(row: Cost) -> str:
    """Return what something cost in dollars, as far as prices are known, without what floating point adds.

    >>> dollars_text(Cost(cost_usd=Decimal("0.23040000000000002"), unpriced_calls=1))
    '$0.2304 or more'
    """
    if row.cost_usd is None:
        return "unknown" if row.unpriced_calls else "-"
    return f"${_in_digits(round(row.cost_usd, 12))}{' or more' if row.unpriced_calls else ''}"


def _tell_what_is_missing(found: Costs) -> None:
    if found.is_pruned:
        amount = f"{counted(float(found.before.credits), 'credit')} of it were spent before"
        tell(f"the oldest journal is of tick {found.first}: {amount}, and nothing tells on what")
    if any(found.gone.amounts):
        tell(f"agents that were removed spent {counted(float(found.gone.credits), 'credit')} of it")
    if found.judged:
        tell(f"{counted(float(found.judged), 'credit')} of it were spent on judges")
    if any(found.open.amounts):
        tell(f"a tick under way has spent {counted(float(found.open.credits), 'credit')} more so far")
    if found.lost:
        calls, dollars = counted(found.lost.calls, "call"), found.lost.cost_usd
        most = f"{_in_digits(Decimal(repr(found.lost.credits)))} credits"
        most += "" if dollars is None else f", ${_in_digits(Decimal(repr(dollars)))}"
        were = "was sent and its answer" if found.lost.calls == 1 else "were sent and their answers"
        tell(f"{calls} {were} never came: at most {most}, which limits count beside the total")
    for tick in found.damaged:
        tell(f"the journal of tick {tick} cannot be read; `lemming verify` says why", style="yellow")


app = noun("See and raise what agents may spend.", cls=OrAnAgent)


@app.verb("show")
def show_credits(here: Here, name: AnyAgentName = None, limit: Limit = None) -> None:
    """Show what agents have spent, and what they may spend."""
    base = here.org
    if name is not None:
        require_folder(base, name)
    found, damaged = accounts(base, survey_agents(base), load_config(base), only=name)
    passed_on = {"PASSED ON": "passed_on"} if any(each.passed_on for each in found) else {}
    here.lists("credits", found, {"AGENT": _name, "SPENT": "spent", **passed_on, **_LIMITS}, limit)

    for each in found if not here.as_json else ():
        if each.overrides is not None:
            tell(
                f"{each.agent}: {CREDITS_FILE} says {_number(each.max_credits)}, not the "
                f"{_number(each.overrides)} of agents/{each.agent}/resume.json; remove its line there "
                "and the resume counts"
            )
    for damage in damaged:
        tell_error(damage, base)
    if damaged:
        raise typer.Exit(CorruptState.exit_status)


def _name(account: Account) -> str:
    return account.agent if account.standing == "present" else f"{account.agent} ({account.standing})"


def _limit(account: Account, amount: float | None) -> str:
    """Return an amount; of a broken resume, which would say whether there is a limit, it is not known."""
    return "?" if amount is None and account.standing == "broken" else _number(amount)


_LIMITS = {
    "MAX": lambda it: _limit(it, it.max_credits),
    "LEFT": lambda it: _limit(it, it.left),
    "SOFT CAP": "soft_cap",
    "COST": lambda it: in_dollars(it.cost_usd, calls=it.unpriced_calls, unpriced=it.unpriced_calls),
    "TOKENS": lambda it: f"{it.input_tokens:,} in, {it.output_tokens:,} out",
}


@app.verb("grant", context_settings={"ignore_unknown_options": True})  # -5 is an amount
def grant_credits(
    here: Here,
    name: AgentName,
    amount: Annotated[
        float,
        argument("AMOUNT", "Credits to add to what it may spend; below 0: to take back."),
    ],
) -> None:
    """Raise what an agent may spend. Writes max_credits in config/credits.json and leaves the rest of it.

    \b
    Example:
      lemming credits grant editor 500
    """
    base = here.org
    agent, config = find_agent(base, name), load_config(base)
    if credits_of(config, name, agent.credits).max_credits is None:
        raise UsageError(
            f"{name} has no limit", hint=f'set "credits": {{"max_credits": N}} in agents/{name}/resume.json'
        )
    account_of(base, agent, config)  # which raises before anything is written
    with changing_file(base, CREDITS_FILE) as opened:  # two grants at once both count
        config = load_config(base)
        before = credits_of(config, name, agent.credits).max_credits or 0.0
        after = before + amount
        if not 0 <= after <= LARGEST_AMOUNT or not math.isfinite(amount):
            hint = f"it may be anything from 0 to {LARGEST_AMOUNT:g}"
            raise UsageError(f"{name} may spend {before:g}; that cannot change by {amount:g}", hint=hint)
        plain = parse(opened.raw, allow_bom=True)
        limit = int(after) if after == int(after) else after
        opened.publish(pretty({**plain, name: {**plain.get(name, {}), "max_credits": limit}}))
    now = account_of(base, agent, load_config(base))
    if here.shows("credits", now.as_json()):
        return
    tell(f"{name} may spend {after:g} credits (before: {before:g}); {_number(now.left)} left")
    tell(f"{CREDITS_FILE} says so from now on, whatever max_credits in agents/{name}/resume.json says")
    tell(f"`lemming credits grant {name} {-amount:g}` takes it back; `lemming run-once` goes on")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
