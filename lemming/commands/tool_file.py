"""A new file of tools, and the lines of `config/org.json` and of a resume that it needs."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import NamedTuple

from lemming.agents import Agent, load_agent, survey_agents
from lemming.base.errors import UsageError
from lemming.base.patterns import is_named
from lemming.files import fs
from lemming.org.config import load_config
from lemming.org.organisation import Organisation
from lemming.service.add_item import add_to_resume, add_to_settings
from lemming.tick.plan import takes_turns

PATTERN = "tools/*.py"
_TEXT = '''\
"""Tools of this organisation: docs/tools.md."""

from lemming.tools import RecoverableError, ToolContext, tool


@tool(tool_class="read", repeatable=True, independent=True)
def {name}(text: str, times: int = 1) -> str:
    """Repeat a text. A model reads this line, so say what the tool is for.

    Args:
        text: What is repeated.
        times: How often.
    """
    if times < 1:
        raise RecoverableError("times must be at least 1")  # the model reads this, word for word
    return " ".join([text] * times)


# A parameter that is annotated with ToolContext is filled in by the engine; the model does not see it:
#
# @tool
# def remember(ctx: ToolContext, note: str) -> str:
#     """Keep a note."""
#     ctx.state["notes"] = [*ctx.state.get("notes", []), note]
#     return f"{{len(ctx.state['notes'])}} notes are kept"
'''


class Written(NamedTuple):
    """What was written: the file (empty: it was there already), and who may call the tool now, if anybody."""

    file: str
    is_new: bool
    agent: str


def new_tool(base: Organisation, name: str, agent: str | None) -> Written:
    """Write `tools/<name>.py`, have such files loaded, and let an agent call it: this one, or the only one.

    Of a file that is there already, an agent that is named gets leave to call it. Raises `UsageError` for a
    name that is none, and for a file that is there where no agent is named.
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
    return Written(file, is_new, caller.name if caller else "")


def _only_agent(base: Organisation) -> Agent | None:
    config = load_config(base)
    found = [agent for agent in survey_agents(base).agents.values() if takes_turns(agent, config)]
    return found[0] if len(found) == 1 else None
