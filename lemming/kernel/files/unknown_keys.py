"""Wrong keys and values of a JSON file: detection, positions, messages and suggestions. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import (
    JsonProblem,
    correct_typo,
    did_you_mean,
    dump_compact,
    escape_pointer_key,
    parse,
)
from lemming.kernel.files.fast_decoder import (
    TypeMismatch,
    extension_keys,
    field_types,
    fit_value,
    get_extension_key,
    load_extension_keys,
)

UnknownKeyPolicy = Literal["kept", "at the top", "none"]
"""Places of unknown keys that are warnings instead of errors: anywhere; at the top, except for typos and
misplaced keys; nowhere."""
UNKNOWN_KEY = "LMG-301"
FOREIGN_PREFIX = "x-"
"""Keys of a file's top level that begin so are for other programs: kept, and no mistake."""


def unknown_keys(plain: dict[str, Any], kind: Any) -> Iterator[Problem]:
    """Yield a warning for every key that the type does not have, at any depth."""
    if _is_flat(kind) and plain.keys() <= _nested_dataclasses(kind).keys():  # as nearly every entry
        return iter(())
    get_locations = dict if typing.get_origin(kind) is dict else partial(_key_locations, kind)
    return _unknown_keys(plain, kind, "", get_locations)


def is_fatal(problem: Problem, kind: Any, policy: UnknownKeyPolicy) -> bool:
    """Return True if an unknown key makes the whole file invalid."""
    key = problem.pointer[1:]
    if policy != "at the top" or "/" in key:
        return policy != "kept"
    return key in _key_locations(kind) or bool(correct_typo(key, [*_nested_dataclasses(kind), *extension_keys(kind)]))


def with_hints(problems: Sequence[Problem], unknown: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems with suggestions: a missing key may be a misspelt unknown key."""
    return tuple(_with_renamed_key(_with_number(problem), unknown) for problem in problems)


_BOUND = re.compile(r"expected a number (of at least|of at most|above) (-?[0-9.]+), got ")

_IN_QUOTES = re.compile(r'expected a (?:whole )?number, got "[^"]*[0-9]')


def _with_number(problem: Problem) -> Problem:
    """Return a problem with a hint: the nearest allowed number, or the format of numbers."""
    if problem.hint:
        return problem
    if bound := _BOUND.match(problem.message):
        phrase = {"of at least": "or more", "of at most": "or less", "above": "is too little"}[bound[1]]
        number = bound[2].removesuffix(".0")
        return replace(problem, hint=f"{number} {phrase}" if bound[1] == "above" else f"write {number} {phrase}")
    if _IN_QUOTES.match(problem.message):
        return replace(problem, hint="write the number without quotes and without a unit")
    return problem


def _with_renamed_key(problem: Problem, unknown: Sequence[Problem]) -> Problem:
    required, _, _ = problem.message.partition(" required: ")
    if required == problem.message:
        return problem
    keys = problem.message.split('"')[1::2]
    parent = problem.pointer.rpartition("/")[0] if len(keys) == 1 else problem.pointer
    for other in unknown:
        key_parent, _, key = other.pointer.rpartition("/")
        if key_parent == parent and (suggestion := correct_typo(key, keys)):
            return replace(problem, hint=f'rename "{key}" to "{suggestion}"')
    return problem


def _unknown_keys(
    plain: dict[str, Any], kind: Any, pointer: str, get_locations: Callable[[], Mapping[str, Sequence[str]]]
) -> Iterator[Problem]:
    if typing.get_origin(kind) is dict:
        for key, value in plain.items():
            if isinstance(value, dict):
                yield from _unknown_keys(value, typing.get_args(kind)[1], f"{pointer}/{key}", get_locations)
        return
    declared_keys, extensions = _nested_dataclasses(kind), extension_keys(kind)
    for key, value in plain.items():
        key_pointer = f"{pointer}/{escape_pointer_key(key)}"
        if key not in declared_keys and not pointer and key.startswith(FOREIGN_PREFIX):
            continue
        if key in extensions:
            hint = get_extension_key(kind, key).type
            yield from _find_unknown_keys(value, _inner_dataclass(hint), hint, key_pointer, get_locations)
        elif key not in declared_keys:
            elsewhere, names = " or ".join(get_locations().get(key, [])), [*declared_keys, *extensions]
            hint = f"move it to {elsewhere}" if elsewhere and not correct_typo(key, names) else ""
            keys = f"known keys: {', '.join(names)}" if names else "remove it: there are no keys here"
            hint = hint or did_you_mean(key, names) or keys
            yield Problem(f'unknown key "{key}"', pointer=key_pointer, hint=hint, severity="warning", code=UNKNOWN_KEY)
        else:
            yield from _find_unknown_keys(value, declared_keys[key], field_types(kind)[key], key_pointer, get_locations)


def _find_unknown_keys(
    value: Any, inner: Any, hint: Any, pointer: str, get_locations: Callable[[], Mapping[str, Sequence[str]]]
) -> Iterator[Problem]:
    """Yield the unknown keys in the value of a key. `inner` is the dataclass of the value, if any."""
    if isinstance(value, dict) and (value_type := inner or _table_type(hint)):
        yield from _unknown_keys(value, value_type, pointer, get_locations)
    elif isinstance(value, list) and inner:
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from _unknown_keys(item, inner, f"{pointer}/{index}", get_locations)


@cache
def _is_flat(kind: Any) -> bool:
    """Return True if no key of a type holds an object with declared keys."""
    if typing.get_origin(kind) is dict or extension_keys(kind) or any(_nested_dataclasses(kind).values()):
        return False
    return not any(map(_table_type, field_types(kind).values()))


@cache
def _nested_dataclasses(kind: Any) -> Mapping[str, Any]:
    """Map each key of a dataclass to the dataclass its value holds, or to None."""
    return {key: _inner_dataclass(hint) for key, hint in field_types(kind).items()}


def _table_type(hint: Any) -> Any:
    """Return the type of a table with dataclass values, as `dict[str, Line]`, or None for any other type."""
    is_table = typing.get_origin(hint) is dict and dataclasses.is_dataclass(typing.get_args(hint)[1])
    return hint if is_table else None


@cache
def _key_locations(kind: Any) -> Mapping[str, Sequence[str]]:
    """Map each possible key of a file of this type to its locations, as `permissions.tools`."""
    locations: dict[str, list[str]] = {}
    for path in _iter_key_paths(kind):
        parent, _, key = path.rpartition(".")
        locations.setdefault(key, []).append(path if parent else "the top level")
    return locations


def _iter_key_paths(kind: Any, prefix: str = "") -> Iterator[str]:
    for key, inner in _nested_dataclasses(kind).items():
        yield f"{prefix}{key}"
        if inner and typing.get_origin(field_types(kind)[key]) is not list:
            yield from _iter_key_paths(inner, f"{prefix}{key}.")
    for key, extension in load_extension_keys(kind):
        yield f"{prefix}{key}"
        inner = _inner_dataclass(extension.type)
        if inner and typing.get_origin(extension.type) is not list:
            yield from _iter_key_paths(inner, f"{prefix}{key}.")


def _inner_dataclass(hint: Any) -> Any:
    """Return the dataclass inside `X`, `X | None` or `list[X]`, or None."""
    if dataclasses.is_dataclass(hint):
        return hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType, list):
        return next(filter(None, map(_inner_dataclass, typing.get_args(hint))), None)
    return None


def describe_validation_error(item: Any) -> str:
    """Return one item of a `ValidationError` as a plain sentence."""
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    if kind in ("dataclass_type", "dict_type", "model_type"):
        return f"expected an object, got {describe_kind(value)}"
    if kind == "value_error":  # our own error, which explains more than a type
        return str(context["error"])
    if kind.endswith(("too_short", "too_long")):
        bound, number = next((key, context[key]) for key in ("min_length", "max_length") if key in context)
        unit = "character" if isinstance(value, str) else "item"
        least = f"at {'least' if bound == 'min_length' else 'most'} {number} {unit}{'' if number == 1 else 's'}"
        return f"expected {least}, got {len(value) if isinstance(value, (str, list, dict)) else describe_kind(value)}"
    if kind == "literal_error":
        return f"expected {context['expected']}, got {_show(value)}"
    expected = {
        "int_type": "a whole number", "int_parsing": "a whole number", "string_type": "text",
        "float_type": "a number", "float_parsing": "a number",
        "bool_type": "true or false", "list_type": "a list",
        "greater_than_equal": f"a number of at least {context.get('ge')}",
        "greater_than": f"a number above {context.get('gt')}",
        "less_than_equal": f"a number of at most {context.get('le')}",
        "less_than": f"a number below {context.get('lt')}", "finite_number": "a finite number",
    }.get(kind)  # fmt: skip
    return f"expected {expected}, got {_show(value)}" if expected else f"{item['msg']}, got {_show(value)}"


def suggest_value(expected: Any, value: Any) -> str:
    """Return a suggestion for a value of the wrong type, or an empty string."""
    if isinstance(value, str) and (options := [option for option in typing.get_args(expected) if type(option) is str]):
        return did_you_mean(value, options)
    for candidate in (guess for guess in _iter_guesses(expected, value) if type(guess) is not type(value)):
        with contextlib.suppress(TypeMismatch):
            fit_value(expected, candidate)
            return f"write {dump_compact(candidate).decode()[:100]}"
    keys = _nested_dataclasses(expected) if _is_object(expected) else ()
    return f"write an object; its keys: {', '.join(keys)}" if keys else ""


def _is_object(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


_TRUTH_WORDS = {"yes": True, "on": True, "no": False, "off": False}


def _iter_guesses(expected: Any, value: Any) -> Iterator[Any]:
    """Yield guesses at the intended value; a guess need not have the expected type."""
    if isinstance(value, float) and value.is_integer():
        yield int(value)
    if isinstance(value, str):
        if value.lower() in _TRUTH_WORDS:
            yield _TRUTH_WORDS[value.lower()]
        with contextlib.suppress(JsonProblem):  # "3", "true"
            yield parse(value.encode())
    if isinstance(value, (str, int, float)):
        yield [value]
        if not isinstance(value, bool):
            yield str(value)
        if _is_object(expected):
            yield {next(iter(_nested_dataclasses(expected))): value}
    if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
        yield "\n".join(value)


def resolve_type(kind: Any, path: Sequence[str | int]) -> Any:
    """Return the type of the value at a path in a file, without `None`."""
    for part in path:
        if _is_object(kind):
            key = str(part)
            kind = get_extension_key(kind, key).type if key in extension_keys(kind) else field_types(kind)[key]
        elif args := typing.get_args(kind):
            kind = args[-1]
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(inner for inner in typing.get_args(kind) if inner is not type(None))
    return kind


def describe_kind(value: Any) -> str:
    """Return the JSON type of a value as words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return describe_kind(value)
    if isinstance(value, str):
        return f'"{value[:60]}"'
    return dump_compact(value).decode()[:60]


def summary(problems: tuple[Problem, ...]) -> str:
    """Return the first problem, with the number of further problems."""
    first = str(problems[0])
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more)"
