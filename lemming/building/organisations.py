"""An organisation out of Python values: the same document as `lemming apply`, with functions as tools."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from lemming.exchange.applying import changes_of, new, there, write, write_new
from lemming.exchange.one_file import wanted_of
from lemming.exchange.template import template_files
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files.whole_folder import finish_put
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import tool_of_function
from lemming.kernel.tools import SHIPPED
from lemming.kernel.tools.declared import declared, tool

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
    texts, functions = dict(files or {}), _Functions()
    named = {name: _with_names(words, functions) for name, words in agents.items()}
    for path, source in functions.files.items():
        if texts.setdefault(path, source) != source:
            raise UsageError(f"{path} is in files, and holds a function", hint="give one another name")
    parts = {"agents": named, "models": models, "settings": settings, "files": texts}
    document = {part: value if part == "agents" else dict(value) for part, value in parts.items() if value}
    template: dict[str, bytes] = {}
    org = Organisation(base)
    finish_put(base)
    if (base / "agents").is_dir():
        names, around = there(org, load_config(org))
    else:
        template = template_files("empty")
        names, around = new()
    changes = changes_of(base, wanted_of(document, "build()", names, around), template)
    write_new(base, changes) if template else write(base, changes)
    return org


class _Functions:
    """The functions that agents have as tools: one file each, whoever has it."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._places: dict[str, str] = {}

    def add(self, function: Callable[..., Any]) -> str:
        """Add a function, and return its name as a tool.

        Raises `UsageError` for another function of a name that is there, and `ConfigError` for one that
        cannot be a tool.
        """
        source = source_of(function)
        made = tool_of_function(_marked(function))
        place = f"{inspect.getsourcefile(function) or 'its module'}:{function.__code__.co_firstlineno}"
        if made.name in SHIPPED:
            hint = f'give it another name, or grant the one that ships: "{made.name}"'
            raise UsageError(
                f'a tool called "{made.name}" ships, as the function does', where=place, hint=hint
            )
        path = f"tools/{function.__name__}.py"
        for known in {path, made.name} & self._places.keys():
            if self.files.get(path) != source:
                both = f"{self._places[known]} and {place}"
                raise UsageError(
                    f'two functions are called "{made.name}": {both}', hint="give one of them another name"
                )
        self.files[path] = source
        self._places |= {path: place, made.name: place}
        name: str = made.name
        return name


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as `@tool` has it, which its file will say; the caller's stays as it is."""
    if declared(function) is not None or not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return tool(update_wrapper(copy, function))


def _with_names(words: str | Words | PlanFile, functions: _Functions) -> str | dict[str, Any]:
    """Return an agent's words with the names of functions in their place."""
    if isinstance(words, str):
        return words
    if not isinstance(words, Mapping):  # an agent that is only a plan
        words = {"plan": words}
    plan: Any = words.get("plan")
    if hasattr(plan, "functions"):
        words = {**words, "plan": plan.as_json()}
        for function in plan.functions:
            functions.add(function)
    tools = words.get("tools", [])
    tools = tools if isinstance(tools, list | tuple) else [tools]
    if not any(map(callable, tools)):
        return dict(words)
    return {**words, "tools": [functions.add(it) if callable(it) else it for it in tools]}


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
