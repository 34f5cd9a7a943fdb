"""`lemming tools`: the tools there are, what one takes, a call of one as an agent makes it, and a new one."""

from __future__ import annotations

import keyword
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lemming.commands.options import Here, Limit, Trust, argument, noun, object_typed, option
from lemming.commands.screen import counted, one_line, painted, show, show_text, tell
from lemming.commands.trust import load_settings, require_agreement
from lemming.kernel.agents import Agent, load_agent, survey_agents
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import OUTCOME_CODES, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, nearest, parse
from lemming.kernel.base.patterns import is_named
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files import fs
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import send
from lemming.kernel.org.config import Org, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.registry import load_installed_plugins
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import WITH_TOOLS, takes_turns, warn_of_tools
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.kernel.tools import SHIPPED, Tool, ToolResult, toolset_of
from lemming.kernel.tools.calls import call_tool
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.tools.toolset import Toolset
from lemming.service.add_item import add_to_resume, add_to_settings

PATTERN = "tools/*.py"
_TEXT = '''\
"""Tools of this organisation: docs/tools.md."""

from lemming.tools import RecoverableError, ToolContext, tool


@tool(tool_class="read", repeatable=True, independent=True)
def {name}(text: str, letters: int = 1) -> int:
    """Count the words of a text. A model reads this line, so say what the tool is for.

    Args:
        text: The text.
        letters: How many letters a word must have to be counted.
    """
    if letters < 1:
        raise RecoverableError("letters must be at least 1")  # the model reads this, word for word
    return sum(len(word) >= letters for word in text.split())


# A parameter that is annotated with ToolContext is filled in by the engine; the model does not see it:
#
# @tool
# def remember(ctx: ToolContext, note: str) -> str:
#     """Keep a note."""
#     ctx.state["notes"] = [*ctx.state.get("notes", []), note]
#     return f"{{len(ctx.state['notes'])}} notes are kept"
'''


class WrittenTool(NamedTuple):
    """What was written: the file (empty: it was there already), and who may call the tool now, if anybody."""

    file: str
    is_new: bool
    agent: str


def new_tool(base: Organisation, name: str, agent: str | None) -> WrittenTool:
    """Write `tools/<name>.py`, have such files loaded, and let an agent call it: this one, or the only one.

    If the file is there already, an agent that is named may call it from then on. Raises `UsageError` for
    a name that is none, and for a file that is there where no agent is named.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(f'"{name}" is no name for a function', hint="letters, digits and _, a letter first")
    file = f"tools/{name}.py"
    caller = load_agent(base, agent) if agent else _only_agent(base)
    is_new = fs.create(Path(base), file, _TEXT.format(name=name).encode())
    if not (is_new or agent):
        hint = f"take another name; or let an agent call it: lemming tools new {name} --agent AGENT"
        raise UsageError(f"{file} is there already", hint=hint)
    if not any(Path(file).match(pattern) for pattern in load_config(base).org.tool_files):
        add_to_settings(base, ("tool_files",), PATTERN)
    if caller and not any(is_named(name, it) for it in caller.permissions.tools):
        add_to_resume(base, caller.name, ("permissions", "tools"), name)
    return WrittenTool(file, is_new, caller.name if caller else "")


def _only_agent(base: Organisation) -> Agent | None:
    config = load_config(base)
    found = [agent for agent in survey_agents(base).agents.values() if takes_turns(agent, config)]
    return found[0] if len(found) == 1 else None


app = noun("See the tools there are, call one as an agent does, write a new one.")

Name = Annotated[str, argument("NAME", "The tool's name.")]
AsAgent = Annotated[str | None, option("--agent AGENT", "As whom, or for whom.", of_agents=True)]

COLUMNS = {
    "TOOL": "tool", "CLASS": "class", "FROM": "from", "WHO MAY CALL IT": lambda it: ", ".join(it["agents"]),
    "WHAT IT DOES": "description",
}  # fmt: skip


@app.verb("list")
def list_tools(here: Here, agent: AsAgent = None, limit: Limit = None) -> None:
    """List the tools there are, where they come from, and who may call them.

    \b
    Examples:
      lemming tools list
      lemming tools list --agent planner
    """
    base, settings = _opened(here)
    agents = survey_agents(base).agents
    chosen = [_agent(base, agent)] if agent else list(agents.values())
    toolset = toolset_of(settings, base)
    there = _all_of(toolset, [agent] if agent else list(agents))
    may = [[it.name for it in chosen if _may(tool, it, toolset, settings)] for tool in there]
    found = [_facts(*each) for each in zip(there, may, strict=True) if each[1] or not agent]
    here.lists("tool", found, COLUMNS, limit)


@app.verb("show")
def show_tool(here: Here, name: Name, agent: AsAgent = None) -> None:
    """Show what a model is told of a tool, and what the engine knows of it."""
    base, settings = _opened(here)
    toolset, agents = toolset_of(settings, base), survey_agents(base).agents
    tool = _tool(toolset, name, _agent(base, agent) if agent else None)
    may = [it.name for it in agents.values() if _may(tool, it, toolset, settings)]
    if here.shows("tool", _facts(tool, may)):
        return
    limit_s = settings.tool_timeout_s if tool.timeout_s is None else tool.timeout_s
    repeated = "may be run again after a crash" if tool.repeatable else "is not run again after a crash"
    show(f"{painted(tool.name, 'bold')}  {tool.tool_class}, from {_from(tool)}")
    show_text(tool.description)
    show("")
    beside = "; those of one reply run at once" if tool.parallel else ""
    show(f"a call may take {limit_s:g} s, and {repeated}{beside}")
    show(f"may be called by: {', '.join(may) or 'nobody: name it in permissions.tools of a resume'}")
    show("arguments:")
    required = tool.parameters.get("required", [])
    for key, schema in tool.parameters.get("properties", {}).items():
        need = "required" if key in required else "optional"
        told = {word: value for word, value in schema.items() if word != "description"}
        show(f"  {key}  {need}, {compact(told).decode()}  {one_line(schema.get('description', ''))}")


@app.verb("call")
def call(
    here: Here,
    name: Name,
    given: Annotated[
        list[str] | None, argument("KEY=VALUE...", "Arguments: JSON, else taken as text.")
    ] = None,
    agent: AsAgent = None,
    args: Annotated[str | None, option("--args JSON", "All arguments.")] = None,
    yes: Annotated[
        bool, option("--yes -y", "Write what it wants written; run it if it reaches outside.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Call a tool as an agent does, with the same checks, and show what it would write.

    Without --yes nothing is written, and a tool that is not repeatable, which may do something outside, is
    not run: its arguments are only checked.

    \b
    Examples:
      lemming tools call file_list --agent planner path=shared
      lemming tools call forecast --agent planner --args '{"city": "Oslo"}' --yes
    """
    base = here.org
    require_agreement(base, trusts=trust)
    arguments = arguments_from(given or [], args)
    if yes:
        with open_org(base, command="tools call") as runtime:
            result = _called(runtime, name, agent, arguments, writes=True)
    else:
        result = _called(Runtime(base), name, agent, arguments, writes=False)
        base.close()
    if not here.shows("tool_called", _as_json(name, result)):
        _show_result(result, written=yes)
    if not result.success:
        raise typer.Exit(1)


@app.verb("new")
def new(
    here: Here,
    name: Annotated[str, argument("NAME", "The new tool's name.")],
    agent: Annotated[
        str | None, option("--agent AGENT", "Let this agent call it. Default: the only one.")
    ] = None,
) -> None:
    """Write tools/NAME.py, a function with @tool to begin with, and let an agent call it.

    Without --agent that is the only agent that there is. A file that is there already stays as it is.

    \b
    Examples:
      lemming tools new forecast --agent planner
    """
    base = here.org
    written = new_tool(base, name, agent)
    if here.shows("tool_file", {"file": written.file, "is_new": written.is_new, "agent": written.agent}):
        return
    show(str(Path(base) / written.file))
    if written.agent:
        tell(f"{written.agent} may call it (permissions.tools of its resume)")
        caller = load_agent(base, written.agent)
        if why := warn_of_tools(caller, load_config(base)):
            tell(f"warning: {why}; {WITH_TOOLS}", style="yellow")
    else:
        agents = ", ".join(survey_agents(base).agents)
        tell(f"nobody may call it yet: lemming tools new {name} --agent ONE of {agents}")
    example = "" if not written.is_new else ' text="one two three"'
    called = f"lemming tools call {name}{f' --agent {written.agent}' if written.agent else ''}{example}"
    tell(f"edit it; then `{called}`")


def _opened(here: Here) -> tuple[Organisation, Org]:
    base = here.org
    settings = load_settings(base).org
    load_installed_plugins()
    return base, settings


def _agent(base: Organisation, name: str) -> Agent:
    agents = survey_agents(base).agents
    if name not in agents and name not in survey_agents(base).broken:
        raise UsageError(f'there is no agent "{name}"', hint=nearest(name, list(agents)))
    return load_agent(base, name)


def _all_of(toolset: Toolset, agents: list[str]) -> list[Tool]:
    """Return the tools of all, and those that only some of these agents have, by name."""
    tools = {id(tool): tool for tool in toolset.values()}
    for name in agents:
        own = toolset.of(name)
        tools.update({id(own[each]): own[each] for each in own if each not in toolset})
    return sorted(tools.values(), key=lambda tool: (tool.name, tool.origin))


def _may(tool: Tool, agent: Agent, toolset: Toolset, settings: Org) -> bool:
    of_agent = toolset.of(agent.name).get(tool.name)
    is_same = of_agent is not None and of_agent.origin == tool.origin
    return is_same and not tool.why_refused(agent, settings)


def _tool(toolset: Toolset, name: str, agent: Agent | None) -> Tool:
    if agent is not None:
        return toolset.of(agent.name).find(name)
    for own in toolset.agents_with_more.values():
        if name in own and name not in toolset:
            return own[name]
    return toolset.find(name)


def _from(tool: Tool) -> str:
    return "LeMMing" if tool.name in SHIPPED else tool.origin


def _facts(tool: Tool, may: list[str]) -> dict[str, Any]:
    return {
        "tool": tool.name,
        "class": tool.tool_class,
        "description": tool.description,
        "from": _from(tool),
        "repeatable": tool.repeatable,
        "parallel": tool.parallel,
        "timeout_s": tool.timeout_s,
        "parameters": tool.parameters,
        "agents": may,
    }


def arguments_from(given: list[str], args: str | None) -> dict[str, Any]:
    """Return the arguments of a call as they were typed. Raises `UsageError`."""
    found = {} if args is None else object_typed(args, "--args", '{"city": "Oslo"}')
    for word in given:
        key, is_there, text = word.partition("=")
        if not is_there:
            raise UsageError(f'"{word}" is no argument', hint="write KEY=VALUE")
        try:
            found[key] = parse(text)
        except JsonProblem:
            found[key] = text
    return found


def _called(
    runtime: Runtime, name: str, agent: str | None, arguments: dict[str, Any], *, writes: bool
) -> ToolResult:
    """Return what a call gives; with `writes`, what it wants written is."""
    base = runtime.org
    settings = runtime.load_config().org
    load_installed_plugins()
    toolset = toolset_of(settings, base)
    caller = _agent(base, agent or _only_caller(base, toolset, settings, name))
    now = timestamp(SystemClock().now())
    tick = load_tick(base)
    context = ToolContext(agent=caller, org=base, settings=settings, now=now, tick=tick, began_at=now)
    tool = toolset.allowed(caller, settings).get(name)
    if tool is not None and not writes and not tool.repeatable:
        tool.check(arguments)
        why = f"{name} may do something outside and was not run; its arguments are right. --yes runs it"
        return ToolResult(False, why, outcome="skipped")
    result = call_tool(name, arguments, context)
    result = replace(result, output=redact_values(result.output))
    if writes:
        _write(context, result)
    return result


def _only_caller(base: Organisation, toolset: Toolset, settings: Org, name: str) -> str:
    agents = survey_agents(base).agents.values()
    may = [it.name for it in agents if name in toolset.allowed(it, settings)]
    if len(may) == 1:
        return may[0]
    if not may:
        _tool(toolset, name, None)
        hint = f'put "{name}" into permissions.tools of a resume; `lemming agents list` has the agents'
        raise UsageError(f"no agent may call {name}", hint=hint)
    hint = f"--agent NAME; it may be called by: {', '.join(may)}"
    raise UsageError(f"as whom is {name} to be called?", hint=hint)


def _write(context: ToolContext, result: ToolResult) -> None:
    """Write what a call wants written, as the engine would at the end of its turn."""
    base, name = context.org, context.agent.name
    if result.passed_on:  # first, so that no allowance is there twice
        state = read_state(base, name)
        amend_state(base, name, replace(state, passed_on=state.passed_on + result.passed_on))
    for effect in result.effects:
        apply_effect(context.base, effect)
    for entry in result.entries:
        about: dict[str, Any] = {"kind": entry.kind, "payload": entry.payload, "tags": entry.tags}
        send(base, name, tick=context.tick, created_at=context.now, **about)


def _as_json(name: str, result: ToolResult) -> dict[str, Any]:
    return {
        "tool": name,
        "success": result.success,
        "outcome": result.outcome,
        "code": OUTCOME_CODES[result.outcome],
        "output": result.output,
        "files": [effect.place for effect in result.effects],
        "entries": [entry._asdict() for entry in result.entries],
        "attempts": result.attempts,
    }


def _show_result(result: ToolResult, *, written: bool) -> None:
    if result.output:
        show_text(result.output)
    if not result.success:
        tell(f"{result.outcome} {OUTCOME_CODES[result.outcome]}", style="yellow")
    does = "wrote" if written else "would write"
    for effect in result.effects:
        if effect.removes:
            tell(f"{'took' if written else 'would take'} {effect.place} away")
        else:
            tell(f"{does} {effect.place}: {counted(len(effect.content), 'byte')}")
    for entry in result.entries:
        tell(f"{does} an entry of kind {entry.kind}: {one_line(compact(entry.payload).decode())}")
    if (result.effects or result.entries) and not written:
        tell("--yes writes it")
