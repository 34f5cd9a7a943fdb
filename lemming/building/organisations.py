"""An organisation out of Python values: the same document as `lemming apply`, with functions as tools."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.exchange.applying import changes_of, new, there, write
from lemming.exchange.one_file import wanted_of
from lemming.exchange.template import template_files
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation

if TYPE_CHECKING:
    from lemming.building.plans import PlanFile

__all__ = ["Organisation", "build", "source_of"]
Words = Mapping[str, Any]

_HEAD = "from lemming.tools import RecoverableError, ToolContext, tool\n\n\n"


def build(
    folder: str | os.PathLike[str],
    *,
    agents: Mapping[str, str | Words | PlanFile],
    models: Mapping[str, Words] | None = None,
    settings: Words | None = None,
    files: Mapping[str, Any] | None = None,
) -> Organisation:
    """Make an organisation in a folder, or change the one that is there, and return it.

    The words are those of docs/AGENT_GUIDE.md, and what they do not name stays as it is. A tool may be a
    function, whose source is written to `tools/NAME.py`: it brings its own imports along, in its body. The
    word `plan`, or an agent that is one, takes a plan of `lemming.building.plans`.
    Raises `UsageError` and `ConfigError` for what is wrong, with its place, and writes nothing then.
    """
    base = Path(folder).expanduser().absolute()
    texts = dict(files or {})
    said = {name: _with_names(words, texts) for name, words in agents.items()}
    parts = {"agents": said, "models": models, "settings": settings, "files": texts}
    document = {part: value if part == "agents" else dict(value) for part, value in parts.items() if value}
    template: dict[str, bytes] = {}
    org = Organisation(base)
    if (base / "agents").is_dir():
        names, around = there(org, load_config(org))
    else:
        template = template_files("empty")
        names, around = new()
    write(base, changes_of(base, wanted_of(document, "build()", names, around), template))
    return org


def _with_names(words: str | Words | PlanFile, texts: dict[str, Any]) -> str | dict[str, Any]:
    """Return an agent's words with the names of functions in their place; their sources go to the files."""
    if isinstance(words, str):
        return words
    if not isinstance(words, Mapping):  # an agent that is only a plan
        words = {"plan": words}
    plan: Any = words.get("plan")
    if hasattr(plan, "functions"):
        words = {**words, "plan": plan.as_json()}
        texts |= {f"tools/{function.__name__}.py": source_of(function) for function in plan.functions}
    tools = words.get("tools", [])
    tools = tools if isinstance(tools, list | tuple) else [tools]
    if not any(map(callable, tools)):
        return dict(words)
    for function in filter(callable, tools):
        texts[f"tools/{function.__name__}.py"] = source_of(function)
    return {**words, "tools": [it.__name__ if callable(it) else it for it in tools]}


def source_of(function: Callable[..., Any]) -> str:
    """Return the file of a tool that is this function. Raises `UsageError` for one that cannot be a file."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise UsageError(f"the source of {function!r} is not there", hint="write it into a file") from error
    if not source.lstrip().startswith(("def ", "async def ", "@")):
        hint = "a function with `def`, a docstring and types; docs/tools.md"
        raise UsageError(f"{function!r} cannot be a tool's file", hint=hint)
    return f"{_HEAD}{source}" if source.startswith("@") else f"{_HEAD}@tool\n{source}"
