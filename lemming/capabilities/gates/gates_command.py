"""`lemming gates`: list gates, and explain decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from lemming.capabilities.gates.default_gates import standard_gates
from lemming.capabilities.gates.gate_settings import get_gates
from lemming.capabilities.gates.gates_screen import GATES
from lemming.commands.command_context import CommandContext, argument, make_command_group, make_screen_command, option
from lemming.commands.terminal import one_line, print_data, print_notice, print_pretty_json, style_text
from lemming.commands.tools import parse_arguments
from lemming.commands.trust import load_settings
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import dump_pretty, parse, to_line
from lemming.kernel.journal.turn_report import Then
from lemming.kernel.org.changing import edit_file
from lemming.kernel.org.config import ORG_FILE, Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_installed_plugins

if TYPE_CHECKING:
    from lemming.capabilities.gates.call_explanation import CallPreview, GatePreview


_GATE_ACTIONS: dict[Then, str] = {
    "pass": "allows it",
    "warn": "warns",
    "rewrite": "rewrites it",
    "block": "blocks it",
    "ask": "asks a person",
    "stop": "ends the turn",
}
"""Description of each action of a gate."""

_CALL_OUTCOMES: dict[Then, str] = {
    "pass": "it runs",
    "block": "it does not run; the model is told the reason",
    "ask": "it waits for approval by a person",
    "stop": "it does not run, and the turn ends",
}
_SENTENCE_WIDTH = 300
AgentName = Annotated[str, argument("AGENT", "Agent that makes the call.", completes_agents=True)]


app = make_command_group("List gates and explain what they decide about a call.", default=make_screen_command(GATES))
app.add_screen("list", GATES)


@app.subcommand("explain")
def explain(
    context: CommandContext,
    agent: AgentName,
    tool: Annotated[str, argument("TOOL", "Tool to call.")],
    arguments: Annotated[list[str] | None, argument("[ARGS]", "Arguments: a JSON object, or KEY=VALUE pairs.")] = None,
    trust: Annotated[
        str | None, option("--trust-label LABEL", "Trust label of the turn. Default: the agent's own.")
    ] = None,
) -> None:
    """Explain what the gates decide about a call, with reasons.

    Nothing is called. A gate with a function or a judge is listed, and the function or judge is not run.

    \b
    Examples:
      lemming gates explain ada shell command="git push"
      lemming gates explain ada file_write '{"path": "shared/x", "content": "y"}' --trust-label outside
    """
    from lemming.capabilities.gates.call_explanation import build_tool_context, explain_call, find_agent

    base, config, survey = _open_survey(context)
    calling_agent = find_agent(survey, agent)
    current_time = timestamp(SystemClock().now())
    call_context = build_tool_context(base, config, calling_agent, current_time)
    preview = explain_call(call_context, config, survey, tool, _parse_arguments(arguments or []), trust)
    if not context.print_as_json("call_explained", _preview_to_json(preview)):
        _print_preview(preview)


@app.subcommand("defaults")
def show_standard(
    context: CommandContext, write: Annotated[bool, option("--write", "Add them to config/org.json.")] = False
) -> None:
    """Print the recommended gates. They restrict turns that have seen untrusted text.

    \b
    Examples:
      lemming gates defaults
      lemming gates defaults --write
    """
    if write:
        base = context.org
        _write_standard(base)
        print_notice(f"{ORG_FILE} has these gates now; next: `lemming gates list`, then `lemming validate`")
    if not context.print_as_json("standard_gates", standard_gates()):
        print_pretty_json(standard_gates())


def _write_standard(base: Organisation) -> None:
    """Add the recommended gates to the settings. Raises `UsageError` if the settings have gates already."""
    if get_gates(load_config(base).org):
        hint = "print the table with `lemming gates defaults` and copy the gates you need"
        raise UsageError(f"{ORG_FILE} already has gates", hint=hint)
    with edit_file(base, ORG_FILE) as edit:
        document: dict[str, Any] = parse(edit.raw, allow_bom=True)
        table = standard_gates()
        trust = document.get("trust")
        document["trust"] = table["trust"] if trust is None else trust
        document["gates"] = table["gates"]
        edit.publish(dump_pretty(document))


def _open_survey(context: CommandContext) -> tuple[Organisation, Config, Survey]:
    """Open the organisation with settings, plugins and agents."""
    base = context.org
    config = load_settings(base)
    load_installed_plugins()
    return base, config, survey_agents(base)


def _parse_arguments(typed_args: list[str]) -> dict[str, Any]:
    """Parse the arguments of a call typed by the user."""
    if len(typed_args) == 1 and typed_args[0].lstrip().startswith("{"):
        return parse_arguments([], typed_args[0])
    return parse_arguments(typed_args, None)


def _preview_to_json(preview: CallPreview) -> dict[str, Any]:
    steps = [
        {
            "line": step.line,
            "then": step.then,
            "why": step.reason,
            "asks": step.undecided_by,
            "gate": step.gate.file_value,
        }
        for step in preview.steps
    ]
    return {
        "agent": preview.agent,
        "tool": preview.tool,
        "class": preview.tool_class,
        "granted": not preview.refusal,
        "why_not_granted": preview.refusal,
        "trust": preview.trust or None,
        "then": None if preview.refusal else preview.then,
        "line": preview.line,
        "why": preview.reason,
        "args": preview.args,
        "args_after": preview.args_after,
        "wrong": preview.argument_error,
        "persons": [*preview.persons],
        "expires": preview.expires[0] if len(preview.expires) == 1 else [*preview.expires] or None,
        "steps": steps,
        "results": [*preview.results],
        "elsewhere": [{"trust": label, "then": then, "line": line} for label, then, line in preview.other_labels],
    }


def _print_preview(preview: CallPreview) -> None:
    """Print the steps and the outcome of a previewed call."""
    label_text = f" at trust {preview.trust}" if preview.trust else ""
    print_data(
        style_text(f"{preview.agent} calls {preview.tool} ({preview.tool_class or 'not known'}){label_text}", "bold")
    )
    if preview.refusal:
        print_data(f"no gate is evaluated: {preview.refusal}")
        return
    for step in preview.steps:
        print_data(f"  {step.line}  {_describe_step(step)}")
    if preview.is_rewritten:
        print_data(f"  arguments after the gates: {one_line(to_line(preview.args_after))}")
    is_invalid = preview.argument_error and preview.then in ("pass", "ask")  # no person is asked about a failing call
    print_data(
        f"it would fail: {one_line(preview.argument_error, _SENTENCE_WIDTH)}"
        if is_invalid
        else _describe_outcome(preview)
    )
    for step in preview.undecided_gates:
        print_data(f"unless {step.undecided_by} says otherwise: {step.line} then {_GATE_ACTIONS[step.gate.then]}")
    for line in preview.results if preview.then in ("pass", "ask") else ():
        print_data(f"its result is checked by {line}")
    for label, then, line in preview.other_labels:
        print_data(f"at trust {label}: {_CALL_OUTCOMES[then]}{f' ({line})' if line else ''}")


def _describe_step(step: GatePreview) -> str:
    if step.undecided_by:
        return f"asks {step.undecided_by}"
    if step.then is None:
        return "does not apply"
    return f"{_GATE_ACTIONS[step.then]}{f': {one_line(step.reason, _SENTENCE_WIDTH)}' if step.reason else ''}"


def _describe_outcome(preview: CallPreview) -> str:
    line_text = f" ({preview.line})" if preview.line else " (no gate stops it)"
    if preview.then != "ask":
        return f"{_CALL_OUTCOMES[preview.then]}{line_text}"
    if not preview.persons:
        return f"it is refused: it needs approval, and no person can approve it{line_text}"
    times = (f"{limit} ticks" if isinstance(limit, int) else limit for limit in preview.expires)
    limit_text = f", for {' or '.join(times)}" if preview.expires else ""
    return f"it waits for the approval of {' or '.join(preview.persons)}{limit_text}{line_text}"
