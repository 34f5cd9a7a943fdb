"""`lemming prompt` and `run-once --dry-run`: preview prompts without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemming.commands.command_context import AgentName, CommandContext, find_agent
from lemming.commands.terminal import (
    one_line,
    print_data,
    print_json,
    print_notice,
    print_table,
    print_text,
    print_warning,
    style_text,
)
from lemming.commands.trust import load_settings
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.queries.model_readiness import small_model_warning
from lemming.queries.next_turn import find_next_turn
from lemming.queries.prompt_parts import (
    CHAT_TEMPLATE,
    REPLY_FORM,
    PromptSize,
    build_first_request,
    describe_message,
    list_parts,
    measure_prompt,
)
from lemming.queries.tick_preview import TickPreview, preview_tick

HOW_TO_RUN = "`lemming run-once --agent {}` runs it now"


def prompt(context: CommandContext, agent: AgentName) -> None:
    """Show the prompt that an agent's next turn would send, and estimate its tokens. Nothing is written.

    The model is not called. Tokens are estimated from the number of bytes.

    --json adds the schema of the answer, the limits of the call, and the request's body.

    \b
    Examples:
      lemming prompt editor
      lemming prompt editor --json | jq .tokens
    """
    base = context.org
    find_agent(base, agent)
    preview = preview_tick(base, load_settings(base))
    if not preview.tick_context.config.has_model_turns(preview.tick_context.agent(agent)):
        hint = f"see its messages with `lemming inbox {agent}`"
        raise UsageError(f"{agent} has no prompt: it does not call a model", hint=hint)
    prompt_preview = preview.build_prompt(agent)
    inputs = prompt_preview.inputs
    sent = build_first_request(preview.tick_context, inputs)
    size = measure_prompt(sent, list_parts(prompt_preview, sent))
    counts = {"all": size.tokens, "parts": dict(size.parts), "boilerplate": round(size.boilerplate, 3)}
    print_json("prompt", {**prompt_to_json(inputs), "tokens": counts, "body": sent.body})
    print_notice(_describe_prompt(preview, inputs, size), style="dim")
    if tool_warning := small_model_warning(inputs.agent, preview.tick_context.config):
        print_warning(f"warning: {tool_warning}")
    print_messages(inputs)
    other_fields = sent.extra_fields
    if tools := other_fields.pop("tools", None):
        print_data(style_text(f"--- tools ({len(tools)})", "bold"))
        for tool in tools:
            print_data(to_line(tool))
    if other_fields:
        print_data(style_text("--- other parts", "bold"))
        for key, value in other_fields.items():
            print_data(f"{key}: {to_line(value)}")
    if size.tokens:
        shares = [
            (name, f"about {count:,}", f"{100 * count / size.tokens:.0f} %") for name, count in size.parts.items()
        ]
        print_data(style_text("--- tokens, estimated from bytes", "bold"))
        print_table(["PART", "TOKENS", "SHARE"], [*shares, ("all", f"about {size.tokens:,}", "")])
        print_data(f"boilerplate ({REPLY_FORM} and {CHAT_TEMPLATE}): {100 * size.boilerplate:.0f} %")


def print_messages(inputs: TurnInputs) -> None:
    """Print the messages of a turn's first call, each under its role."""
    for message in inputs.first_messages:
        print_data(style_text(f"--- {message['role']}", "bold"))
        print_text(describe_message(message))


def prompt_to_json(inputs: TurnInputs) -> dict[str, Any]:
    """Return the first call of a turn as JSON values."""
    entry, agent_temperature = inputs.model, inputs.agent.model.temperature
    return {
        "agent": inputs.agent.name,
        "tick": inputs.tick,
        "model_key": inputs.agent.model.key,
        "provider": entry.provider,
        "model": entry.model,
        "temperature": entry.temperature if agent_temperature is None else agent_temperature,
        "max_output_tokens": entry.max_output_tokens,
        "messages": inputs.first_messages,
        "schema": inputs.schema,
    }


def _describe_prompt(preview: TickPreview, inputs: TurnInputs, size: PromptSize) -> str:
    """Describe a prompt on a line: tick, model, length, and inputs that may still change."""
    name = inputs.agent.name
    parts = [f"{name}, tick {inputs.tick}, {inputs.model.provider} {inputs.model.model}".rstrip()]
    parts.append(f"about {size.tokens:,} tokens")
    if name in preview.plan.not_due:
        agent, config = preview.survey.agents[name], preview.tick_context.config
        upcoming = find_next_turn(preview.tick_context.org, agent, config, preview.tick + 1, since=preview.plan.since)
        parts.append(f"not due until {upcoming.description} ({HOW_TO_RUN.format(name)})")
    elif name in preview.plan.skipped:
        parts.append(preview.plan.skipped[name])
    if authors := preview.find_predecessors(name):
        parts.append(f"plus what {', '.join(authors)} will write earlier in this tick")
    return "; ".join(parts)


def print_next_tick(base: OrgPath, agents: Sequence[str] = ()) -> None:
    """Print the agents of the next tick in order, each with a prompt."""
    preview = preview_tick(base, load_settings(base), agents)
    print_json("tick_started", preview.plan.as_json())
    continued = " (continued)" if preview.is_interrupted else ""
    print_notice(f"tick {preview.tick}{continued}: {', '.join(preview.plan.order) or 'nobody is due'}", style="bold")
    for name, reason in preview.plan.broken.items():
        print_notice(f"  {name}: broken: {one_line(reason, 400)}")
    for name in preview.plan.order:
        turn_reason = preview.explain_turn(name)
        print_data(style_text(f"=== {name}", "bold"))
        if turn_reason.takes_turn:
            inputs = preview.build_prompt(name).inputs
            print_json("prompt", prompt_to_json(inputs))
            print_messages(inputs)
        else:
            print_json("no_turn", {"agent": name, "tick": preview.tick, "reason": turn_reason.text})
            print_data(f"no turn: {turn_reason.text}")
        if authors := preview.find_predecessors(name):
            print_data(f"(plus what {', '.join(authors)} would write earlier in this tick)")
        print_data()
    print_notice("dry run: no model was called and nothing was written")
