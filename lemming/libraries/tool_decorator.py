"""The `@tool` decorator: turn a function into a tool from its signature, hints, docstring and options.

This module holds the options only; `capabilities.toolbox.functions` reads and runs the function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, TypedDict, TypeVar, Unpack, get_args, overload

from lemming.kernel.base.entry_kinds import OnError, ToolClass
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.plugins.plugin_registry import MARK

TOOL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
TOOL_NAME_RULE = "a tool's name has 1 to 63 letters, digits, _, - and ., and starts with a letter or digit"

NEEDS = (
    "needs repeatable=True (a kill leaves open which of the calls were made) and not "
    'on_error="stop" (the other calls have already started)'
)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class ToolDeclaration:
    """Options of `@tool(...)`. Missing options have the most restrictive defaults, as for a class."""

    name: str = ""
    description: str = ""
    tool_class: ToolClass = "execute"
    repeatable: bool = False
    timeout_s: float | None = None
    attempts: int = 3
    on_error: OnError = "return"
    cache_ticks: int = 0
    independent: bool = False
    parallel: bool = False
    reads: Sequence[str] | None = None
    writes: Sequence[str] | None = None
    places: Sequence[str] = ()
    process: bool = True
    success_is_news: bool = True

    def __post_init__(self) -> None:
        for value, allowed in ((self.tool_class, ToolClass), (self.on_error, OnError)):
            if value not in get_args(allowed):
                hint = did_you_mean(str(value), list(get_args(allowed)))
                raise ValueError(f"@tool: {value!r} is none of {', '.join(get_args(allowed))}{_hint_suffix(hint)}")
        if self.name and not TOOL_NAME.match(self.name):
            raise ValueError(f"@tool: {self.name!r}: {TOOL_NAME_RULE}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"@tool: timeout_s must be more than 0, got {self.timeout_s}")
        if not 1 <= self.attempts <= 10:
            raise ValueError(f"@tool: attempts must be from 1 to 10, got {self.attempts}")
        if self.cache_ticks < 0:
            raise ValueError(f"@tool: cache_ticks must be at least 0, got {self.cache_ticks}")
        if self.parallel and (not self.repeatable or self.on_error == "stop"):
            raise ValueError(f"@tool: parallel=True {NEEDS}")
        for places in (self.reads, self.writes):
            if isinstance(places, str):
                raise ValueError(f'@tool: reads and writes must be lists of places: write ["{places}"]')
        if isinstance(self.places, str):
            raise ValueError(f'@tool: places must be a list of parameters: write ["{self.places}"]')

    def register(self, function: Callable[..., Any]) -> None:
        """Register the function with the options, while a plugin's module is loading."""
        import_module("lemming.kernel.tools").ToolRegistry.register(function)


class ToolOptions(TypedDict, total=False):
    """Options accepted by `@tool(...)`: see docs/tools.md."""

    name: str
    description: str
    tool_class: ToolClass
    repeatable: bool
    timeout_s: float | None
    attempts: int
    on_error: OnError
    cache_ticks: int
    independent: bool
    parallel: bool
    reads: Sequence[str] | None
    writes: Sequence[str] | None
    places: Sequence[str]
    process: bool
    success_is_news: bool


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Turn a function into a tool; the function stays callable. `options`: see docs/tools.md.

    Raises `TypeError` and `ValueError` for invalid options.

    >>> @tool(repeatable=True)
    ... def double(number: int) -> int:
    ...     "Double a number."
    ...     return 2 * number
    >>> double(2), get_declaration(double).repeatable
    (4, True)
    """
    option_names = [option_field.name for option_field in fields(ToolDeclaration)]
    for key in options:
        if key not in option_names:
            raise TypeError(
                f"@tool takes no {key!r}{_hint_suffix(did_you_mean(key, option_names))}; it takes {', '.join(option_names)}"
            )
    declaration = ToolDeclaration(**options)

    def attach_declaration(target: Any) -> Any:
        if not inspect.isfunction(target):
            raise TypeError(f"@tool must decorate a function, got {target!r}")
        setattr(target, MARK, declaration)
        return target

    return attach_declaration if function is None else attach_declaration(function)


def get_declaration(target: object) -> ToolDeclaration | None:
    """Return the `@tool` options of a function, or None for any other object."""
    declaration = vars(target).get(MARK) if inspect.isfunction(target) else None
    return declaration if isinstance(declaration, ToolDeclaration) else None


def _hint_suffix(hint: str) -> str:
    return f" ({hint})" if hint else ""
