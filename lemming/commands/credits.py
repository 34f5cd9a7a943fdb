"""`lemming credits`: what agents have spent and may spend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from lemming.agents import survey_agents
from lemming.base.errors import CorruptState, UsageError
from lemming.base.jsontext import parse, pretty
from lemming.commands.failures import tell_error
from lemming.commands.options import AgentName, AnyAgentName, AsJson, OrAnAgent, argument, noun
from lemming.commands.org import find_agent, find_org, require_folder
from lemming.commands.screen import in_dollars, show_json, show_list, tell
from lemming.facts.accounts import account_of, accounts
from lemming.files import fs
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.files.lock import changing, read_to_change
from lemming.org.config import CREDITS_FILE, credits_of, load_config
from lemming.org.organisation import OrgPath

app = noun("See and raise what agents may spend.", cls=OrAnAgent)


@app.command("show")
def show_credits(ctx: typer.Context, name: AnyAgentName = None, as_json: AsJson = False) -> None:
    """Show what agents have spent, and what they may spend."""
    base = find_org(ctx)
    if name is not None:
        require_folder(base, name)
    found, damaged = accounts(base, survey_agents(base), load_config(base), only=name)
    passed_on = {"PASSED ON": "passed_on"} if any(each.passed_on for each in found) else {}
    show_list("credits", found, {"AGENT": "agent", "SPENT": "spent", **passed_on, **_LIMITS}, as_json=as_json)
    for each in found if not as_json else ():
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


_LIMITS = {
    "MAX": "max_credits",
    "LEFT": "left",
    "SOFT CAP": "soft_cap",
    "COST": lambda it: in_dollars(it.cost_usd, calls=it.unpriced_calls, unpriced=it.unpriced_calls),
    "TOKENS": lambda it: f"{it.input_tokens:,} in, {it.output_tokens:,} out",
}


@app.command("grant", context_settings={"ignore_unknown_options": True})  # -5 is an amount
def grant_credits(
    ctx: typer.Context,
    name: AgentName,
    amount: Annotated[
        float,
        argument("AMOUNT", "Credits to add to what it may spend; below 0: to take back."),
    ],
    as_json: AsJson = False,
) -> None:
    """Raise what an agent may spend. Writes max_credits in config/credits.json and leaves the rest of it.

    \b
    Example:
      lemming credits grant editor 500
    """
    base = find_org(ctx)
    agent, config = find_agent(base, name), load_config(base)
    if credits_of(config, name, agent.credits).max_credits is None:
        raise UsageError(
            f"{name} has no limit", hint=f'set "credits": {{"max_credits": N}} in agents/{name}/resume.json'
        )
    account_of(base, agent, config)  # which raises before anything is written
    with changing(Path(base), "config"):  # two grants at once both count
        config = load_config(base)
        before = credits_of(config, name, agent.credits).max_credits or 0.0
        after = before + amount
        if not 0 <= after <= LARGEST_AMOUNT or not math.isfinite(amount):
            hint = f"it may be anything from 0 to {LARGEST_AMOUNT:g}"
            raise UsageError(f"{name} may spend {before:g}; that cannot change by {amount:g}", hint=hint)
        _write(base, name, int(after) if after == int(after) else after)
    now = account_of(base, agent, load_config(base))
    if as_json:
        show_json("credits", now.as_json())
        return
    tell(f"{name} may spend {after:g} credits (before: {before:g}); {_number(now.left)} left")
    tell(f"{CREDITS_FILE} says so from now on, whatever max_credits in agents/{name}/resume.json says")
    tell(f"`lemming credits grant {name} {-amount:g}` takes it back; `lemming run-once` goes on")


def _write(base: OrgPath, name: str, max_credits: float) -> None:
    """Change one number in the file; it was read as valid a moment ago, or is not there."""
    plain = parse(read_to_change(base, CREDITS_FILE), allow_bom=True)
    plain[name] = {**plain.get(name, {}), "max_credits": max_credits}
    fs.publish(Path(base), CREDITS_FILE, pretty(plain))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
