"""Build an organisation from Python values: the document of `lemming apply`, with functions as tools."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

from lemming.import_export.apply_document import (
    apply_writes,
    load_existing_defaults,
    load_template,
    make_new_defaults,
    plan_writes,
    write_new_org,
)
from lemming.import_export.org_document import parse_org
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.tools import SHIPPED
from lemming.libraries.atomic_folder import finish_staging
from lemming.libraries.tool_decorator import get_declaration, tool

__all__ = ["Organisation", "build", "make_tool_file"]
Shorthand = Mapping[str, Any]


PlanFile = Any
"""A plan of `lemming.capabilities.plans.plan_builder`: the content of its file, and its functions."""
_HEAD = "from lemming.tools import RecoverableError, ToolContext, tool\n\n\n"


def build(
    folder: str | os.PathLike[str],
    *,
    agents: Mapping[str, str | Shorthand | PlanFile],
    models: Mapping[str, Shorthand] | None = None,
    settings: Shorthand | None = None,
    files: Mapping[str, Any] | None = None,
) -> Organisation:
    """Create or change an organisation in a folder, and return it.

    The keys are described in docs/AGENT_GUIDE.md; anything not mentioned stays unchanged. A tool may be a
    function: its source is written to `tools/NAME.py`, and its body must contain its imports. The key `plan`,
    or an agent that is only a plan, takes a plan of `lemming.capabilities.plans.plan_builder`. Raises `UsageError` and
    `ConfigError` with the location of a problem, and then writes nothing.
    """
    base = Path(folder).expanduser().absolute()
    texts, functions = dict(files or {}), _FunctionTools()
    named = {name: _replace_functions(shorthand, functions) for name, shorthand in agents.items()}
    for path, source in functions.files.items():
        if texts.setdefault(path, source) != source:
            raise UsageError(f"{path} is already in files, and a function has the same path", hint="rename one of them")
    parts = {"agents": named, "models": models, "settings": settings, "files": texts}
    document = {part: value if part == "agents" else dict(value) for part, value in parts.items() if value}
    template: dict[str, bytes] = {}
    org = Organisation(base)
    finish_staging(base)
    if (base / "agents").is_dir():
        names, context = load_existing_defaults(org, load_config(org))
    else:
        template = load_template("empty")
        names, context = make_new_defaults()
    changes = plan_writes(base, parse_org(document, "build()", names, context), template)
    write_new_org(base, changes) if template else apply_writes(base, changes)
    return org


class _FunctionTools:
    """Functions used as tools by agents: a file per function, shared by all its agents."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._locations: dict[str, str] = {}

    def add(self, function: Callable[..., Any]) -> str:
        """Add a function and return its tool name.

        Raises `UsageError` for a different function of the same name, and `ConfigError` for a function
        unusable as a tool.
        """
        source, declared = make_tool_file(function), function
        if get_declaration(function) is None and isinstance(function, FunctionType):
            # A copy with `@tool`, as in its file; the caller's function stays unchanged.
            code, namespace, closure = function.__code__, function.__globals__, function.__closure__
            copy = FunctionType(code, namespace, function.__name__, function.__defaults__, closure)
            copy.__kwdefaults__ = function.__kwdefaults__
            declared = tool(update_wrapper(copy, function))
        function_tool = load_provided("function_tools", "function")(declared)
        location = f"{inspect.getsourcefile(function) or 'its module'}:{function.__code__.co_firstlineno}"
        if function_tool.name in SHIPPED:
            hint = f'rename the function, or grant the tool of LeMMing: "{function_tool.name}"'
            message = f'the function has the name of a tool of LeMMing: "{function_tool.name}"'
            raise UsageError(message, where=location, hint=hint)
        path = f"tools/{function.__name__}.py"
        for name_key in {path, function_tool.name} & self._locations.keys():
            if self.files.get(path) != source:
                message = f'two functions have the name "{function_tool.name}"'
                raise UsageError(f"{message}: {self._locations[name_key]} and {location}", hint="rename one of them")
        self.files[path] = source
        self._locations |= {path: location, function_tool.name: location}
        return str(function_tool.name)


def _replace_functions(shorthand: str | Shorthand | PlanFile, functions: _FunctionTools) -> str | dict[str, Any]:
    if hasattr(shorthand, "functions"):  # an agent that is only a plan
        shorthand = {"plan": shorthand}
    if not isinstance(shorthand, Mapping):  # a text; anything else is refused with its place
        return shorthand
    plan: Any = shorthand.get("plan")
    if hasattr(plan, "functions"):
        shorthand = {**shorthand, "plan": plan.as_json()}
        for function in plan.functions:
            functions.add(function)
    tools = shorthand.get("tools", [])
    tools = tools if isinstance(tools, list | tuple) else [tools]
    if not any(map(callable, tools)):
        return dict(shorthand)
    return {**shorthand, "tools": [functions.add(item) if callable(item) else item for item in tools]}


def make_tool_file(function: Callable[..., Any]) -> str:
    """Return the content of a tool file for a function. Raises `UsageError` for an unusable function."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise UsageError(f"the source of {function!r} does not exist", hint="write the function into a file") from error
    if not source.lstrip().startswith(("def ", "async def ", "@")):
        hint = "write a function with `def`, a docstring and types: docs/tools.md"
        raise UsageError(f"{function!r} cannot be the file of a tool", hint=hint)
    return f"{_HEAD}{source}" if source.startswith("@") else f"{_HEAD}@tool\n{source}"
