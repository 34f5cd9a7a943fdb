"""A new file of tools, and the lines of `config/org.json` and of a resume that it needs."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Any

from lemming.agents import RESUME_LIMIT_BYTES, decode_resume, load_agent
from lemming.base import paths
from lemming.base.jsontext import parse, pretty
from lemming.base.patterns import is_named
from lemming.errors import UsageError
from lemming.files import fs
from lemming.files.lock import changing
from lemming.org.config import load_config
from lemming.org.organisation import Organisation

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


def new_tool(base: Organisation, name: str, agent: str | None) -> tuple[str, list[str]]:
    """Write `tools/<name>.py`; return its path, and what is still missing for an agent to call it.

    With `agent`, that is added. Raises `UsageError` for a name that is none, and for a file that is there.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(f'"{name}" is no name for a function', hint="letters, digits and _, a letter first")
    file = f"tools/{name}.py"
    resume = None if agent is None else load_agent(base, agent)
    if not fs.create(Path(base), file, _TEXT.format(name=name).encode()):
        raise UsageError(f"{file} is there already", hint="take another name, or edit it")
    missing = []
    if not any(Path(file).match(pattern) for pattern in load_config(base).org.tool_files):
        if resume is None:
            missing.append(f'"tool_files": ["{PATTERN}"] in config/org.json')
        else:
            _add(base, "", paths.ORG_FILE, ("tool_files",), PATTERN)
    if resume is None:
        missing.append(f'"{name}" in permissions.tools of agents/NAME/resume.json')
    elif not any(is_named(name, it) for it in resume.permissions.tools):
        _add(base, resume.name, paths.resume_file(resume.name), ("permissions", "tools"), name)
    return file, missing


def _add(base: Organisation, agent: str, file: str, keys: tuple[str, ...], item: str) -> None:
    """Add an item to a list in a file of settings, which stays as it was but for that."""
    with changing(Path(base), paths.agent_folder(agent) if agent else "config"):
        try:
            raw = fs.read_bytes(base / file, RESUME_LIMIT_BYTES)
        except FileNotFoundError:
            raw = b"{}"
        plain: dict[str, Any] = parse(raw, allow_bom=True)
        inside = plain
        for key in keys[:-1]:
            inside = inside.setdefault(key, {})
        inside[keys[-1]] = [*inside.get(keys[-1], []), item]
        content = pretty(plain)
        if agent:
            decode_resume(agent, content)
        fs.publish(Path(base), file, content)
