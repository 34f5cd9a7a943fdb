"""`lemming credits`: what agents have spent and may spend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.agents import Agent, survey_agents
from lemming.base.errors import CorruptState, UsageError
from lemming.base.jsontext import parse, pretty
from lemming.commands.failures import tell_error
from lemming.commands.options import AgentName, AnyAgentName, AsJson, OrAnAgent, argument, noun
from lemming.commands.org import find_agent, find_org, require_folder
from lemming.commands.screen import in_dollars, show_json, show_table, tell
from lemming.files import fs
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.files.lock import changing, read_to_change
from lemming.journal.ledger import AgentState, read_state
from lemming.org.config import CREDITS_FILE, Config, credits_of, is_overridden, load_config
from lemming.org.organisation import OrgPath
from lemming.tick.plan import takes_turns

app = noun("See and raise what agents may spend.", cls=OrAnAgent)


@app.command("show")
def show_credits(ctx: typer.Context, name: AnyAgentName = None, as_json: AsJson = False) -> None:
    """Show what agents have spent, and what they may spend."""
    base = find_org(ctx)
    if name is not None:
        require_folder(base, name)
    config, agents = load_config(base), survey_agents(base).agents
    chosen = [agent for agent in agents.values() if name in (None, agent.name) and takes_turns(agent, config)]
    facts, damaged = [], []
    for agent in chosen:
        try:
            facts.append(_facts(agent, read_state(base, agent.name), config))
        except CorruptState as error:
            damaged.append(error)
    if as_json:
        for fact in facts:
            show_json("credits", fact)
    else:
        _show_all(facts)
    for damage in damaged:
        tell_error(damage, base)
    if damaged:
        raise typer.Exit(CorruptState.exit_status)


def _show_all(facts: list[dict[str, Any]]) -> None:
    keys = {
        "spent": "SPENT",
        "passed_on": "PASSED ON",
        "max_credits": "MAX",
        "left": "LEFT",
        "soft_cap": "SOFT CAP",
    }
    if not any(fact["passed_on"] for fact in facts):
        del keys["passed_on"]
    rows = [
        [
            fact["agent"],
            *(_number(fact[key]) for key in keys),
            in_dollars(fact["cost_usd"], calls=fact["unpriced_calls"], unpriced=fact["unpriced_calls"]),
            f"{fact['input_tokens']:,} in, {fact['output_tokens']:,} out",
        ]
        for fact in facts
    ]
    show_table(["AGENT", *keys.values(), "COST", "TOKENS"], rows)
    for fact in facts:
        if fact["overrides"] is not None:
            tell(
                f"{fact['agent']}: {CREDITS_FILE} says {_number(fact['max_credits'])}, not the "
                f"{_number(fact['overrides'])} of agents/{fact['agent']}/resume.json; remove its line there "
                "and the resume counts"
            )


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
    state = read_state(base, name)
    with changing(Path(base), "config"):  # two grants at once both count
        config = load_config(base)
        before = credits_of(config, name, agent.credits).max_credits or 0.0
        after = before + amount
        if not 0 <= after <= LARGEST_AMOUNT or not math.isfinite(amount):
            hint = f"it may be anything from 0 to {LARGEST_AMOUNT:g}"
            raise UsageError(f"{name} may spend {before:g}; that cannot change by {amount:g}", hint=hint)
        _write(base, name, int(after) if after == int(after) else after)
    fact = _facts(agent, state, load_config(base))
    if as_json:
        show_json("credits", fact)
        return
    tell(f"{name} may spend {after:g} credits (before: {before:g}); {_number(fact['left'])} left")
    tell(f"{CREDITS_FILE} says so from now on, whatever max_credits in agents/{name}/resume.json says")
    tell(f"`lemming credits grant {name} {-amount:g}` takes it back; `lemming run-once` goes on")


def _write(base: OrgPath, name: str, max_credits: float) -> None:
    """Change one number in the file; it was read as valid a moment ago, or is not there."""
    plain = parse(read_to_change(base, CREDITS_FILE), allow_bom=True)
    plain[name] = {**plain.get(name, {}), "max_credits": max_credits}
    fs.publish(Path(base), CREDITS_FILE, pretty(plain))


def _facts(agent: Agent, state: AgentState, config: Config) -> dict[str, Any]:
    allocation = credits_of(config, agent.name, agent.credits)
    limit = allocation.max_credits
    return {
        "agent": agent.name,
        "spent": state.credits,
        "max_credits": limit,
        "overrides": agent.credits.max_credits if is_overridden(config, agent.name, agent.credits) else None,
        "soft_cap": allocation.soft_cap,
        "passed_on": state.passed_on,
        "left": None if limit is None else max(limit - state.used_up, 0.0),
        "cost_usd": state.cost_usd,
        "unpriced_calls": state.unpriced_calls,
        "input_tokens": state.input_tokens,
        "output_tokens": state.output_tokens,
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
