"""`lemming tools`: list, show, call and create tools."""

from __future__ import annotations

import keyword
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lemming.commands.command_context import (
    CommandContext,
    Limit,
    Trust,
    argument,
    find_agent,
    make_command_group,
    option,
    parse_json_object,
)
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_data,
    print_json,
    print_notice,
    print_text,
    print_warning,
    style_text,
)
from lemming.commands.trust import load_settings, require_workspace_trust
from lemming.kernel.agents import Agent, load_agent, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import OUTCOME_CODES, DiskError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import Tool, ToolResult, get_toolset
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.toolset import Toolset
from lemming.libraries.lenient_json import parse_or_default
from lemming.libraries.outbox_files import write_person_entry
from lemming.libraries.settings_edits import append_item
from lemming.operations.open_org import open_org
from lemming.queries.model_readiness import WITH_TOOLS, small_model_warning
from lemming.queries.screens.screen import ScreenResult
from lemming.queries.screens.tools_screen import TOOLS, ToolRow, can_call, format_origin, list_tool_rows

_TOOL_FILES_PATTERN = "tools/*.py"

app = make_command_group("List, show, call and create tools.")

Name = Annotated[str, argument("NAME", "Name of the tool.")]
AsAgent = Annotated[str | None, option("--agent AGENT", "Agent whose permissions apply.")]


@app.subcommand("list")
def list_tools(context: CommandContext, agent: AsAgent = None, limit: Limit = None) -> None:
    """List tools, their origin and the agents that may call them.

    \b
    Examples:
      lemming tools list
      lemming tools list --agent planner
    """
    base, settings = _open_org(context)
    context.print_screen(TOOLS, ScreenResult(list_tool_rows(base, settings, agent)), limit)


@app.subcommand("show")
def show_tool(context: CommandContext, name: Name, agent: AsAgent = None) -> None:
    """Show a tool's description, parameters and settings."""
    base, settings = _open_org(context)
    toolset, agents = get_toolset(settings, base), survey_agents(base).agents
    tool = _require_tool(toolset, name, find_agent(base, agent) if agent else None)
    callers = [tool_row.name for tool_row in agents.values() if can_call(tool, tool_row, toolset, settings)]
    print_json("tool", TOOLS.to_json(ToolRow(tool, callers)))
    limit_s = settings.tool_timeout_s if tool.timeout_s is None else tool.timeout_s
    repeat_text = "may be repeated after a crash" if tool.repeatable else "is not repeated after a crash"
    print_data(f"{style_text(tool.name, 'bold')}  {tool.tool_class}, from {format_origin(tool)}")
    print_text(tool.description)
    print_data("")
    parallel_text = "; calls of one reply run in parallel" if tool.parallel else ""
    print_data(f"a call has a time limit of {limit_s:g} s, and {repeat_text}{parallel_text}")
    print_data(f"available to: {', '.join(callers) or 'no agent; add it to permissions.tools of a resume'}")
    print_data("arguments:")
    required = tool.parameters.get("required", [])
    for key, schema in tool.parameters.get("properties", {}).items():
        requirement = "required" if key in required else "optional"
        constraints = {keyword: value for keyword, value in schema.items() if keyword != "description"}
        about = one_line(schema.get("description", ""))
        print_data(f"  {key}  {requirement}, {dump_compact(constraints).decode()}  {about}")


@app.subcommand("call")
def call(
    context: CommandContext,
    name: Name,
    pairs: Annotated[list[str] | None, argument("KEY=VALUE...", "Arguments; values are JSON or plain text.")] = None,
    agent: AsAgent = None,
    args: Annotated[str | None, option("--args JSON", "All arguments as one JSON object.")] = None,
    yes: Annotated[bool, option("--yes -y", "Apply its effects, and run tools with outside effects.")] = False,
    trust: Trust = False,
) -> None:
    """Call a tool as an agent, with the same checks, and show its effects.

    Without --yes, nothing is written, and a tool that is not repeatable is not run because of possible
    outside effects: only the arguments are checked.

    \b
    Examples:
      lemming tools call file_list --agent planner path=shared
      lemming tools call forecast --agent planner --args '{"city": "Oslo"}' --yes
    """
    base = context.org
    require_workspace_trust(base, is_trusted=trust)
    arguments = parse_arguments(pairs or [], args)
    if yes:
        with open_org(base, command="tools call") as runtime:
            result = _run_call(runtime, name, agent, arguments, applies_effects=True)
    else:
        result = _run_call(Runtime(base), name, agent, arguments, applies_effects=False)
        base.close()
    code = OUTCOME_CODES[result.outcome]
    facts = {"tool": name, "success": result.success, "outcome": result.outcome, "code": code, "output": result.output}
    files = [effect.path_key for effect in result.effects]
    entries = [entry._asdict() for entry in result.entries]
    print_json("tool_called", {**facts, "files": files, "entries": entries, "attempts": result.attempts})
    _print_result(result, is_applied=yes)
    if not result.success:
        raise typer.Exit(1)


@app.subcommand("new")
def new(
    context: CommandContext,
    name: Annotated[str, argument("NAME", "Name of the new tool.")],
    agent: Annotated[str | None, option("--agent AGENT", "Agent that may call it. Default: the only agent.")] = None,
) -> None:
    """Create tools/NAME.py with an example function. An agent gets permission to call the tool.

    Without --agent, the caller is the only agent of the organisation. An existing file is not changed.

    \b
    Examples:
      lemming tools new forecast --agent planner
    """
    base = context.org
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        message = f'the name of a function must consist of letters, digits and _, got "{name}"'
        raise UsageError(message, hint="start it with a letter")
    file, survey, config = f"tools/{name}.py", survey_agents(base), load_config(base)
    active_agents = [load_agent(base, agent)] if agent else [*filter(config.has_model_turns, survey.agents.values())]
    caller = active_agents[0] if len(active_agents) == 1 else None
    template = Path(__file__).with_name("tool_template.txt").read_text("utf-8")
    is_new = fs.create(Path(base), file, template.replace("{name}", name).encode())
    if not (is_new or agent):
        hint = f"choose another name, or let an agent call it: lemming tools new {name} --agent AGENT"
        raise UsageError(f"{file} already exists", hint=hint)
    try:
        if not any(Path(file).match(pattern) for pattern in config.org.tool_files):
            append_item(base, None, ("tool_files",), _TOOL_FILES_PATTERN)
        if caller and not any(is_match(name, tool_row) for tool_row in caller.permissions.tools):
            append_item(base, caller.name, ("permissions", "tools"), name)
    except DiskError:  # a repeat would be refused: the file exists
        if is_new:
            fs.remove(Path(base), file)
        raise
    print_json("tool_file", {"file": file, "is_new": is_new, "agent": caller.name if caller else ""})
    print_data(str(Path(base) / file))
    if caller:
        print_notice(f"{caller.name} may call it (permissions.tools of its resume)")
        if tool_warning := small_model_warning(load_agent(base, caller.name), load_config(base)):
            print_warning(f"warning: {tool_warning}; {WITH_TOOLS}")
    else:
        agents = ", ".join(survey_agents(base).agents)
        print_notice(f"no agent may call it yet: lemming tools new {name} --agent ONE of {agents}")
    example = ' text="one two three"' if is_new else ""
    command_line = f"lemming tools call {name}{f' --agent {caller.name}' if caller else ''}{example}"
    print_notice(f"edit it; then `{command_line}`")


def _open_org(context: CommandContext) -> tuple[Organisation, OrgSettings]:
    base = context.org
    settings = load_settings(base).org
    load_installed_plugins()
    return base, settings


def _require_tool(toolset: Toolset, name: str, agent: Agent | None) -> Tool:
    if agent is not None:
        return toolset.for_agent(agent.name).find(name)
    for agent_tools in toolset.toolsets_by_agent.values():
        if name in agent_tools and name not in toolset:
            return agent_tools[name]
    return toolset.find(name)


def parse_arguments(pairs: list[str], json_text: str | None) -> dict[str, Any]:
    """Parse the typed arguments of a call. Raises `UsageError`."""
    arguments = {} if json_text is None else parse_json_object(json_text, "--args", '{"city": "Oslo"}')
    for pair in pairs:
        key, equals_sign, text = pair.partition("=")
        if not equals_sign:
            raise UsageError(f'an argument must be KEY=VALUE, got "{pair}"')
        arguments[key] = parse_or_default(text, text)
    return arguments


def _run_call(
    runtime: Runtime, name: str, agent: str | None, arguments: dict[str, Any], *, applies_effects: bool
) -> ToolResult:
    """Call a tool and return the result; with `applies_effects`, apply the effects, as at the end of a turn."""
    base = runtime.org
    settings = runtime.load_config().org
    load_installed_plugins()
    toolset = get_toolset(settings, base)
    if not agent:
        agents = survey_agents(base).agents.values()
        callers = [tool_row.name for tool_row in agents if name in toolset.allowed_tools(tool_row, settings)]
        if not callers:
            _require_tool(toolset, name, None)
            hint = f'add "{name}" to permissions.tools in a resume; see the agents with `lemming agents list`'
            raise UsageError(f"no agent may call {name}", hint=hint)
        if len(callers) > 1:
            hint = f"add --agent NAME; agents that may call it: {', '.join(callers)}"
            raise UsageError(f"{name} requires --agent", hint=hint)
        agent = callers[0]
    caller = find_agent(base, agent)
    current_time = timestamp(SystemClock().now())
    tick = load_tick(base)
    context = ToolContext(agent=caller, org=base, settings=settings, now=current_time, tick=tick, began_at=current_time)
    tool = toolset.allowed_tools(caller, settings).get(name)
    if tool is not None and not applies_effects and not tool.repeatable:
        tool.parse_arguments(arguments)
        explanation = f"{name} can have outside effects and was not run; the arguments are valid. --yes runs it"
        return ToolResult(False, explanation, outcome="skipped")
    result = call_tool(name, arguments, context)
    result = replace(result, output=redact_values(result.output))
    if not applies_effects:
        return result
    if result.passed_on:  # first, so that no allowance is there twice
        state = read_state(base, caller.name)
        amend_state(base, caller.name, replace(state, passed_on=state.passed_on + result.passed_on))
    for effect in result.effects:
        apply_effect(context.base, effect)
    for entry in result.entries:
        entry_keys: dict[str, Any] = {"kind": entry.kind, "payload": entry.payload, "tags": entry.tags}
        write_person_entry(base, caller.name, tick=tick, created_at=current_time, **entry_keys)
    return result


def _print_result(result: ToolResult, *, is_applied: bool) -> None:
    if result.output:
        print_text(result.output)
    if not result.success:
        print_notice(f"{result.outcome} {OUTCOME_CODES[result.outcome]}", style="yellow")
    verb = "wrote" if is_applied else "would write"
    for effect in result.effects:
        removal = f"{'removed' if is_applied else 'would remove'} {effect.path_key}"
        size = format_count(len(effect.content), "byte")
        print_notice(removal if effect.removes else f"{verb} {effect.path_key}: {size}")
    for entry in result.entries:
        print_notice(f"{verb} an entry of kind {entry.kind}: {one_line(dump_compact(entry.payload).decode())}")
    if (result.effects or result.entries) and not is_applied:
        print_notice("--yes applies these changes")
