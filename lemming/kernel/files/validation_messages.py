"""Messages for values that do not fit their type."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_compact, parse
from lemming.kernel.files.fast_decoder import TypeMismatch, extension_keys, field_types, fit_value, get_extension_key
from lemming.kernel.files.unknown_keys import nested_dataclasses

if TYPE_CHECKING:
    pass


def describe_validation_error(item: Any) -> str:
    """Return one item of a `ValidationError` as a plain sentence."""
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    if kind in ("dataclass_type", "dict_type", "model_type"):
        return f"expected an object, got {describe_kind(value)}"
    if kind == "value_error":  # our own error, which explains more than a type
        return str(context["error"])
    if kind == "literal_error":
        return f"expected {context['expected']}, got {_show(value)}"
    expected = {
        "int_type": "a whole number", "int_parsing": "a whole number", "string_type": "text",
        "float_type": "a number", "float_parsing": "a number",
        "bool_type": "true or false", "list_type": "a list",
        "greater_than_equal": f"a number of at least {context.get('ge')}",
        "greater_than": f"a number above {context.get('gt')}",
        "less_than_equal": f"a number of at most {context.get('le')}",
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
    keys = nested_dataclasses(expected) if _is_object(expected) else ()
    return f"write an object; its keys: {', '.join(keys)}" if keys else ""


def _is_object(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _iter_guesses(expected: Any, value: Any) -> Iterator[Any]:
    """Yield guesses at the intended value; a guess need not have the expected type."""
    if isinstance(value, str):
        with contextlib.suppress(JsonProblem):  # "3", "true"
            yield parse(value.encode())
    if isinstance(value, (str, int, float)):
        yield [value]
        if not isinstance(value, bool):
            yield str(value)
        if _is_object(expected):
            yield {next(iter(nested_dataclasses(expected))): value}
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
