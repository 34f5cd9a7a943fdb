"""Errors in the code of a capability, with capability, file and line: wrong declarations, and values of a wrong type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from lemming.kernel.turn.turn_effects import Effect

PAGE = "docs/capabilities.md"


class HookError(TypeError):
    """A hook of a capability breaks the rules for hooks. It fails the turn; the message has the place."""


def capability_error(name: str, hook: Callable[..., Any], problem: str) -> HookError:
    """Return the error that fails a turn because a hook of a capability breaks the rules for hooks."""
    while isinstance(hook, partial):
        hook = hook.func
    return HookError(f"{name}.{getattr(hook, '__name__', 'intercept')}{_place(hook)} {problem}")


def check_json(name: str, hook: Callable[..., Any], value: Any, expected: str) -> None:
    """Check that a hook returned a JSON object.

    Raises:
        HookError: The value is another one, or holds one that JSON does not have.
    """
    if not isinstance(value, dict):
        got = type(value).__name__
        raise capability_error(name, hook, f"must return {expected}, got {got}: see {PAGE}")
    for problem in _find_non_json(value, ""):
        raise capability_error(name, hook, f"must return {expected}, got {problem}")


def _find_non_json(value: Any, pointer: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"the key {key!r} of type {type(key).__name__} at {pointer or '/'}: keys are texts"
            yield from _find_non_json(item, f"{pointer}/{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _find_non_json(item, f"{pointer}/{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{value} at {pointer}: JSON has no such number"
    elif not (value is None or isinstance(value, (str, bool, int, float))):
        yield f"{type(value).__name__} at {pointer}: convert it to JSON"


def check_declaration(capability: Any, base: type) -> None:
    """Check the class of a plugin's capability.

    Raises:
        TypeError: A hook or attribute is misspelled, has other parameters, or an attribute has a wrong type.
    """
    from difflib import get_close_matches  # only imported with a plugin

    kind = type(capability)
    members = {
        name: vars(item)[name] for item in reversed(kind.__mro__) if item not in base.__mro__ for name in vars(item)
    }
    public = [name for name in vars(base) if not name.startswith("_")] + ["name"]
    for name, value in members.items():
        if name.startswith("_") or name in public:
            continue
        if matches := get_close_matches(name, public, 1, 0.8):
            raise _declaration_error(kind, f"has no hook {name!r}: did you mean {matches[0]!r}?", value)
    if not isinstance(getattr(capability, "name", None), str):
        raise _declaration_error(kind, 'must have a name: write `name = "..."` in the class')
    for name in ("handles", "after", "facts", "reads", "describes"):
        if not isinstance(value := getattr(capability, name), (tuple, list)):
            raise _declaration_error(kind, f"must have a tuple as `{name}`, got {value!r}: write `({value!r},)`")
    for effect in capability.handles:
        if not (isinstance(effect, type) and issubclass(effect, Effect)):
            raise _declaration_error(kind, f"must list classes of effects in `handles`, got {effect!r}")
    _check_parameters(kind, base, members)
    overrides = members.keys() & {"intercept", "interceptor", "preparer"}
    if overrides == {"intercept"} and not capability.handles:
        raise _declaration_error(kind, "has `intercept` and no `handles`: list the effects that it gets")
    if capability.handles and not overrides and not (members.keys() & {"wrap_turn", "reduce"}):
        raise _declaration_error(kind, "has `handles` and no `intercept`: the hook that gets these effects")


def _check_parameters(kind: type, base: type, members: Mapping[str, Any]) -> None:
    from inspect import isfunction, signature

    for name in members.keys() & vars(base).keys():
        function, original = members[name], vars(base)[name]
        if name.startswith("_") or not (isfunction(function) and isfunction(original)):
            continue
        parameters = [*signature(original).parameters]
        keywords = {"turn": None} if name == "intercept" else {}  # the kernel passes it by name
        try:
            signature(function).bind(*parameters[: len(parameters) - len(keywords)], **keywords)
        except TypeError as error:
            declaration = f"{name}({', '.join(parameters)})"
            raise _declaration_error(kind, f"must declare {declaration}: {error}", function) from error


def _declaration_error(kind: type, problem: str, value: Any = None) -> TypeError:
    return TypeError(f"{kind.__module__}.{kind.__qualname__}{_place(value)} {problem}; see {PAGE}")


def _place(value: Any) -> str:
    code = getattr(value, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
