"""`lemming prompt` and `run-once --dry-run`: what models would be sent now; nothing is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from lemming.commands.options import AgentName, Here, find_agent, option
from lemming.commands.screen import one_line, painted, show, show_json, show_table, show_text, tell
from lemming.commands.trust import is_agreed, load_settings
from lemming.facts.next_turn import next_turn
from lemming.facts.preview import Preview, preview_tick
from lemming.facts.prompt_parts import describe_message, list_parts
from lemming.facts.sent import FORM, FRAME, PromptSize, SentPrompt, measure_prompt, sent_prompt
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.firing_plan import takes_turns, warn_of_tools
from lemming.kernel.turn.values import TurnInputs

HOW_TO_RUN = "`lemming run-once --agent {}` gives it a turn now"


def prompt(
    here: Here,
    agent: AgentName,
    count: Annotated[
        bool, option("--count/--no-count", "Have the model's server count the tokens, or estimate them.")
    ] = True,
) -> None:
    """Show exactly what an agent's model would be sent now, and count its tokens. Nothing is written.

    The model is not asked. Its server counts the tokens free of charge, where it can: Anthropic's, OpenAI's,
    llama.cpp's, vLLM's. It is sent the prompt for that, but only once you have agreed to running the
    organisation (`lemming trust`). Else, and with --no-count, the tokens are estimated from the bytes.

    With --json also the schema that constrains the answer, the limits of the call, and the request's body.

    \b
    Examples:
      lemming prompt editor
      lemming prompt editor --json | jq .tokens
    """
    base = here.org
    find_agent(base, agent)
    preview = preview_tick(base, load_settings(base))
    if not takes_turns(preview.snapshot.agent(agent), preview.snapshot.config):
        raise UsageError(f"others speak for {agent}; no model is ever asked", hint=f"lemming inbox {agent}")
    prompted = preview.prompted(agent)
    inputs = prompted.inputs
    sent = sent_prompt(preview.snapshot, inputs)
    size = measure_prompt(sent, list_parts(prompted, sent), asks_server=count and is_agreed(base))
    if here.shows("prompt", {**as_json_prompt(inputs), **_sent_as_json(sent, size)}):
        return
    tell(_prompt_in_words(preview, inputs, size), style="dim")
    if why := warn_of_tools(inputs.agent, preview.snapshot.config):
        tell(f"warning: {why}", style="yellow")
    show_messages(inputs)
    _show_further(sent)
    _show_size(sent, size)


def show_messages(inputs: TurnInputs) -> None:
    """Print the messages of a turn's first call, each under its role."""
    for message in inputs.question:
        show(painted(f"--- {message['role']}", "bold"))
        show_text(describe_message(message))


def _show_further(sent: SentPrompt) -> None:
    """Print what is sent beside the messages: a line for each tool, and one for each other field."""
    further = sent.further
    if tools := further.pop("tools", None):
        show(painted(f"--- tools ({len(tools)})", "bold"))
        for tool in tools:
            show(to_line(tool))
    if further:
        show(painted("--- beside them", "bold"))
        for key, value in further.items():
            show(f"{key}: {to_line(value)}")


def _show_size(sent: SentPrompt, size: PromptSize) -> None:
    """Print a table of the prompt's tokens by part."""
    if not size.tokens:
        return
    about = "" if size.are_parts_exact else "about "
    rows = [
        [name, f"{about}{count:,}", f"{100 * count / size.tokens:.0f} %"]
        for name, count in size.parts.items()
    ]
    how = "as the server counts" if size.counted_by == "server" else "estimated from the bytes"
    show(painted(f"--- tokens, {how}", "bold"))
    show_table(["PART", "TOKENS", "SHARE"], [*rows, ["all", _total(size), ""]])
    show(f"boilerplate ({FORM} and {FRAME}): {100 * size.boilerplate:.0f} %")


def _total(size: PromptSize) -> str:
    return f"{'' if size.counted_by == 'server' else 'about '}{size.tokens:,}"


def _sent_as_json(sent: SentPrompt, size: PromptSize) -> dict[str, Any]:
    counts = {
        "all": size.tokens,
        "counted_by": size.counted_by,
        "parts": dict(size.parts),
        "are_parts_exact": size.are_parts_exact,
        "boilerplate": round(size.boilerplate, 3),
    }
    return {"tokens": counts, "body": sent.body}


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
        "messages": inputs.question,
        "schema": inputs.schema,
    }


def _prompt_in_words(preview: Preview, inputs: TurnInputs, size: PromptSize) -> str:
    """Return one line about a prompt: for when, for which model, how long, and what may still change."""
    name = inputs.agent.name
    parts = [f"{name}, tick {inputs.tick}, {inputs.model.provider} {inputs.model.model}".rstrip()]
    parts.append(f"{_total(size)} tokens")
    if size.why:
        parts.append(f"not counted: {one_line(size.why, 200)}")
    if name in preview.plan.not_due:
        agent, config = preview.survey.agents[name], preview.snapshot.config
        coming = next_turn(preview.snapshot.org, agent, config, preview.tick + 1, since=preview.plan.since)
        parts.append(f"not due until {coming.words} ({HOW_TO_RUN.format(name)})")
    elif name in preview.plan.skipped:
        parts.append(preview.plan.skipped[name])
    if others := preview.waits_for(name):
        parts.append(f"plus what {', '.join(others)} will write before it in this tick")
    return "; ".join(parts)


def show_next_tick(base: OrgPath, agents: Sequence[str] = (), *, as_json: bool) -> None:
    """Show the next tick: who would fire, in what order, and what each would be sent."""
    preview = preview_tick(base, load_settings(base), agents)
    if as_json:
        show_json("tick_started", preview.plan.as_json())
    else:
        _tell_plan(preview)
    for name in preview.plan.order:
        _show_turn(preview, name, as_json=as_json)
    if not as_json:
        tell("dry run: no model was asked and nothing was written")


def _tell_plan(preview: Preview) -> None:
    continued = " (continued)" if preview.is_interrupted else ""
    tell(f"tick {preview.tick}{continued}: {', '.join(preview.plan.order) or 'nobody is due'}", style="bold")
    for name, why in preview.plan.broken.items():
        tell(f"  {name}: broken: {one_line(why, 400)}")


def _show_turn(preview: Preview, name: str, *, as_json: bool) -> None:
    why = preview.reason_of(name)
    reason = "" if why.takes_turn else why.text
    if as_json:
        if reason:
            show_json("no_turn", {"agent": name, "tick": preview.tick, "reason": reason})
        else:
            show_json("prompt", as_json_prompt(preview.inputs_regardless(name)))
        return
    show(painted(f"=== {name}", "bold"))
    if reason:
        show(f"no turn: {reason}")
    else:
        show_messages(preview.inputs_regardless(name))
    if others := preview.waits_for(name):
        show(f"(and whatever {', '.join(others)} would write before it in this tick)")
    show()
