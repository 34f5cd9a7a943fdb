"""`@tool`: makes a function a tool, by what the function's signature, hints and docstring say, and by this.

Here stands only what was said; reading the function, and running it, is for `capabilities.toolbox.functions`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, TypedDict, TypeVar, Unpack, get_args, overload

from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.kinds import OnError, ToolClass
from lemming.kernel.plugins.registry import MARK

TOOL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
TOOL_NAME_RULE = "a tool's name has 1 to 63 letters, digits, _, - and ., and starts with a letter or digit"

NEEDS = (
    'needs repeatable=True (a kill leaves open which of the calls were made), and not on_error="stop" (the '
    "others have begun by then)"
)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What `@tool(...)` said. What it did not say is taken to be the worst, as for a class."""

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
                hint = nearest(str(value), list(get_args(allowed)))
                raise ValueError(f"@tool: {value!r} is none of {', '.join(get_args(allowed))}{_also(hint)}")
        if self.name and not TOOL_NAME.match(self.name):
            raise ValueError(f"@tool: {self.name!r}: {TOOL_NAME_RULE}")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"@tool: timeout_s is {self.timeout_s}; it must be more than 0")
        if not 1 <= self.attempts <= 10:
            raise ValueError(f"@tool: attempts is {self.attempts}; it must be from 1 to 10")
        if self.cache_ticks < 0:
            raise ValueError(f"@tool: cache_ticks is {self.cache_ticks}; it must be at least 0")
        if self.parallel and (not self.repeatable or self.on_error == "stop"):
            raise ValueError(f"@tool: parallel=True {NEEDS}")
        for places in (self.reads, self.writes):
            if isinstance(places, str):
                raise ValueError(f'@tool: reads and writes are lists of places: write ["{places}"]')
        if isinstance(self.places, str):
            raise ValueError(f'@tool: places is a list of parameters: write ["{self.places}"]')

    def register(self, function: Callable[..., Any]) -> None:
        """Register the function that said this, as a plugin's module is loaded."""
        import_module("lemming.kernel.tools").ToolRegistry.register(function)


class Said(TypedDict, total=False):
    """What may be said in `@tool(...)`: see docs/tools.md."""

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
def tool(**said: Unpack[Said]) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **said: Any) -> Any:
    """Make a function a tool; it stays a function that can be called. `said`: see docs/tools.md.

    Raises `TypeError` and `ValueError` for what cannot be said of a tool.

    >>> @tool(repeatable=True)
    ... def double(number: int) -> int:
    ...     "Double a number."
    ...     return 2 * number
    >>> double(2), declared(double).repeatable
    (4, True)
    """
    known = [each.name for each in fields(Declared)]
    for key in said:
        if key not in known:
            raise TypeError(
                f"@tool takes no {key!r}{_also(nearest(key, known))}; it takes {', '.join(known)}"
            )
    about = Declared(**said)

    def mark(marked: Any) -> Any:
        if not inspect.isfunction(marked):
            raise TypeError(f"@tool makes a function a tool, and not {marked!r}")
        setattr(marked, MARK, about)
        return marked

    return mark if function is None else mark(function)


def declared(thing: object) -> Declared | None:
    """Return what `@tool` said of a function; None for anything else."""
    said = vars(thing).get(MARK) if inspect.isfunction(thing) else None
    return said if isinstance(said, Declared) else None


def _also(hint: str) -> str:
    return f" ({hint})" if hint else ""
