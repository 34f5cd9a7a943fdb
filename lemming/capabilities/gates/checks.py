"""Functions that gates ask by name (`"check": "no_prices"`): a plugin registers them with `@check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lemming.capabilities.gates.looking import Check, Json
from lemming.kernel.base.deadlines import Deadline, LeftBehind, run_on_thread
from lemming.kernel.base.jsontext import compact, nearest, parse
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.plugins.registry import offered, register
from lemming.kernel.turn.places import Found as Found
from lemming.kernel.turn.places import FunctionBroke

DEADLINE_S = 10.0
NONE_SHIP: Mapping[str, str] = {}
Function = Callable[[Json], Any]
F = TypeVar("F", bound=Function)


def check(function: F) -> F:
    """Register a function for gates under its own name; for modules that are plugins.

    It is given what the gate looks at (docs/gates.md), and returns None when it finds nothing, a text that
    says what it found, or `Found(why, content)` with what a rewrite is to put in its place.
    """
    name = function.__name__
    register("check", name, function, defined_by=function, shipped=NONE_SHIP)
    return function


def checks_of(plugins: tuple[str, ...]) -> Mapping[str, Function]:
    """Return the functions of an organisation that names these plugins, by name."""
    return offered("check", plugins, dict)


def asking(plugins: tuple[str, ...]) -> Check:
    """Return how gates ask the functions of an organisation; each has ten seconds."""

    def ask(name: str, seen: Json) -> Found | None:
        functions = checks_of(plugins)
        if name not in functions:
            hint = nearest(name, [*functions]) or "@check in a plugin registers one"
            raise FunctionBroke(f'there is no function "{name}": {hint}')
        given = parse(compact(seen))  # its own, to do with as it likes
        try:
            # Somebody's own code may hang: then it is left behind, and the gate blocks.
            deadline = Deadline(DEADLINE_S)
            said = run_on_thread(lambda: functions[name](given), deadline, name=f"lemming-gate-{name}")
        except LeftBehind:
            raise FunctionBroke(f"{name} took longer than {DEADLINE_S:g} s") from None
        except (Exception, SystemExit) as error:
            raise FunctionBroke(words_of(error)) from error
        return _found(name, said)

    return ask


def _found(name: str, said: Any) -> Found | None:
    if said is None or isinstance(said, Found):
        return said
    if isinstance(said, str):
        return Found(said)
    raise FunctionBroke(f"{name} returned {type(said).__name__}, not None, a text or Found")
