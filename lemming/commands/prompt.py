"""`lemming prompt`: what an agent's model would be sent now."""

from __future__ import annotations

from typing import Any

import typer

from lemming.base.errors import UsageError
from lemming.commands.options import AgentName, AsJson
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import painted, show, show_json, show_text, tell
from lemming.commands.trust import load_settings
from lemming.facts.next_turn import next_turn
from lemming.facts.preview import Preview, preview_tick
from lemming.tick.plan import takes_turns, why_no_tools
from lemming.turn.values import TurnInputs


def prompt(ctx: typer.Context, agent: AgentName, as_json: AsJson = False) -> None:
    """Show exactly what an agent's model would be sent now. Nothing is called or written.

    With --json also the schema that constrains the answer, and the limits of the call.

    \b
    Examples:
      lemming prompt editor
      lemming prompt editor --json | jq .schema
    """
    base = find_org(ctx)
    find_agent(base, agent)
    preview = preview_tick(base, load_settings(base))
    if not takes_turns(preview.snapshot.agent(agent), preview.snapshot.config):
        raise UsageError(f"others speak for {agent}; no model is ever asked", hint=f"lemming inbox {agent}")
    inputs = preview.inputs_regardless(agent)
    if as_json:
        show_json("prompt", as_json_prompt(inputs))
        return
    tell(_about(preview, inputs), style="dim")
    if why := why_no_tools(inputs.agent, preview.snapshot.config):
        tell(f"warning: {why}", style="yellow")
    show_messages(inputs)


def show_messages(inputs: TurnInputs) -> None:
    """Print the messages of a turn's first call, each under its role."""
    for message in inputs.prompt:
        show(painted(f"--- {message['role']}", "bold"))
        show_text(message["content"])


def as_json_prompt(inputs: TurnInputs) -> dict[str, Any]:
    """Return the call that a turn would begin with."""
    entry, own = inputs.model, inputs.agent.model.temperature
    return {
        "agent": inputs.agent.name,
        "tick": inputs.tick,
        "model_key": inputs.agent.model.key,
        "provider": entry.provider,
        "model": entry.model,
        "temperature": entry.temperature if own is None else own,
        "max_output_tokens": entry.max_output_tokens,
        "messages": inputs.prompt,
        "schema": inputs.schema,
    }


def _about(preview: Preview, inputs: TurnInputs) -> str:
    """Return one line about a prompt: for when, for which model, how long, and what may still change."""
    name = inputs.agent.name
    size = sum(len(message["content"].encode()) for message in inputs.prompt)
    parts = [f"{name}, tick {inputs.tick}, {inputs.model.provider} {inputs.model.model}".rstrip()]
    parts.append(f"about {-(-size // 4)} tokens")
    if name in preview.plan.not_due:
        agent, config = preview.survey.agents[name], preview.snapshot.config
        coming = next_turn(preview.snapshot.org, agent, config, preview.tick + 1, since=preview.plan.since)
        parts.append(f"not due until {coming.words}")
    elif name in preview.plan.skipped:
        parts.append(preview.plan.skipped[name])
    if others := preview.waits_for(name):
        parts.append(f"plus what {', '.join(others)} will write before it in this tick")
    return "; ".join(parts)
