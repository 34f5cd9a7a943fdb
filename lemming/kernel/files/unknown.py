"""Keys of a JSON file that its type does not know: which, where, and what was meant. Pure."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import escaped, meant, near, nearest
from lemming.kernel.files.fitting import further_key, further_keys, further_of, types_by_key

Unknown = Literal["kept", "at the top", "none"]
"""Where a file may have keys that its type does not know: anywhere, in which case they are warnings; at its
top, but for one that is a known key with a slip, or has its place elsewhere; nowhere."""
UNKNOWN_KEY = "LMG-301"
OTHERS = "x-"
"""Keys of a file's top level that begin so are for other programs: kept, and no mistake."""


def unknown_keys(plain: dict[str, Any], kind: Any) -> Iterator[Problem]:
    """Yield a warning for every key that the type does not have, at any depth."""
    if _is_flat(kind) and plain.keys() <= keys_of(kind).keys():  # as nearly every entry
        return iter(())
    places = dict if typing.get_origin(kind) is dict else partial(_places_of, kind)
    return _unknown_keys(plain, kind, "", places)


def must_be_known(problem: Problem, kind: Any, unknown: Unknown) -> bool:
    """Return whether a key that the type does not know makes the file one that is not understood."""
    key = problem.pointer[1:]
    if unknown != "at the top" or "/" in key:
        return unknown != "kept"
    return key in _places_of(kind) or bool(meant(key, [*keys_of(kind), *further_of(kind)]))


def with_hints(problems: Sequence[Problem], unknown: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return problems with what to write: a key that is missing may be an unknown one beside it."""
    return tuple(_with_renamed_key(_with_number(problem), unknown) for problem in problems)


_BOUND = re.compile(r"expected a number (of at least|of at most|above) (-?[0-9.]+), found ")

_IN_QUOTES = re.compile(r'expected a (?:whole )?number, found "[^"]*[0-9]')


def _with_number(problem: Problem) -> Problem:
    """Return a problem with the nearest number that would do, or with how a number is written."""
    if problem.hint:
        return problem
    if bound := _BOUND.match(problem.message):
        word = {"of at least": "or more", "of at most": "or less", "above": "is too little"}[bound[1]]
        number = bound[2].removesuffix(".0")
        return replace(problem, hint=f"{number} {word}" if bound[1] == "above" else f"write {number} {word}")
    if _IN_QUOTES.match(problem.message):
        return replace(problem, hint="write the number alone: without quotes and without a unit")
    return problem


def _with_renamed_key(problem: Problem, unknown: Sequence[Problem]) -> Problem:
    required, _, _ = problem.message.partition(" required: ")
    if required == problem.message:
        return problem
    keys = problem.message.split('"')[1::2]
    above = problem.pointer.rpartition("/")[0] if len(keys) == 1 else problem.pointer
    for other in unknown:
        place, _, key = other.pointer.rpartition("/")
        if place == above and (wanted := near(key, keys)):
            return replace(problem, hint=f'rename "{key}" to "{wanted}"')
    return problem


def _unknown_keys(
    plain: dict[str, Any], kind: Any, pointer: str, places: Callable[[], Mapping[str, Sequence[str]]]
) -> Iterator[Problem]:
    if typing.get_origin(kind) is dict:
        for key, value in plain.items():
            if isinstance(value, dict):
                yield from _unknown_keys(value, typing.get_args(kind)[1], f"{pointer}/{key}", places)
        return
    known, further = keys_of(kind), further_of(kind)
    for key, value in plain.items():
        here = f"{pointer}/{escaped(key)}"
        if key not in known and not pointer and key.startswith(OTHERS):
            continue
        if key in further:
            hint = further_key(kind, key).type
            yield from _unknown_below(value, _dataclass_in(hint), hint, here, places)
        elif key not in known:
            elsewhere, names = " or ".join(places().get(key, [])), [*known, *further]
            hint = f"move it to {elsewhere}" if elsewhere and not meant(key, names) else ""
            hint = hint or nearest(key, names) or f"known keys: {', '.join(names)}"
            yield Problem(
                f'unknown key "{key}"', pointer=here, hint=hint, severity="warning", code=UNKNOWN_KEY
            )
        else:
            yield from _unknown_below(value, known[key], types_by_key(kind)[key], here, places)


def _unknown_below(
    value: Any, inner: Any, hint: Any, here: str, places: Callable[[], Mapping[str, Sequence[str]]]
) -> Iterator[Problem]:
    """Yield the unknown keys in the value of a key of this type; `inner`: the dataclass that it holds."""
    if isinstance(value, dict) and (below := inner or _table_of(hint)):
        yield from _unknown_keys(value, below, here, places)
    elif isinstance(value, list) and inner:
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from _unknown_keys(item, inner, f"{here}/{index}", places)


@cache
def _is_flat(kind: Any) -> bool:
    """Return whether no key of a type holds an object whose keys are known."""
    if typing.get_origin(kind) is dict or further_of(kind) or any(keys_of(kind).values()):
        return False
    return not any(map(_table_of, types_by_key(kind).values()))


@cache
def keys_of(kind: Any) -> Mapping[str, Any]:
    """Map each key of a dataclass to the dataclass its value holds, or to None."""
    return {key: _dataclass_in(hint) for key, hint in types_by_key(kind).items()}


def _table_of(hint: Any) -> Any:
    """Return the type of a table whose lines are dataclasses, such as `dict[str, Line]`; None for another."""
    is_table = typing.get_origin(hint) is dict and dataclasses.is_dataclass(typing.get_args(hint)[1])
    return hint if is_table else None


@cache
def _places_of(kind: Any) -> Mapping[str, Sequence[str]]:
    """Map each key that a file of this type may have to where it stands, such as `permissions.tools`."""
    places: dict[str, list[str]] = {}
    for path in _paths_in(kind):
        above, _, key = path.rpartition(".")
        places.setdefault(key, []).append(path if above else "the top level")
    return places


def _paths_in(kind: Any, above: str = "") -> Iterator[str]:
    for key, inner in keys_of(kind).items():
        yield f"{above}{key}"
        if inner and typing.get_origin(types_by_key(kind)[key]) is not list:
            yield from _paths_in(inner, f"{above}{key}.")
    for key, it in further_keys(kind):
        yield f"{above}{key}"
        inner = _dataclass_in(it.type)
        if inner and typing.get_origin(it.type) is not list:
            yield from _paths_in(inner, f"{above}{key}.")


def _dataclass_in(hint: Any) -> Any:
    """Return the dataclass inside `X`, `X | None` or `list[X]`; None when there is none."""
    if dataclasses.is_dataclass(hint):
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType, list):
        return next(filter(None, map(_dataclass_in, typing.get_args(hint))), None)
    return None
