"""Derive a JSON Schema and a validator of arguments from a tool's signature.

Signatures of plain JSON types, as in shipped tools, are handled here; all other signatures by pydantic,
because the import and models of pydantic cost as much as a short tick (docs/decisions.md, decision 10). Error messages
also come from pydantic. Schema and validation must not differ from pydantic's.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from lemming.kernel.base.jsontext import closest_match, dump_compact
from lemming.kernel.files.fast_decoder import Fitter, TypeMismatch, limited_fitter

if TYPE_CHECKING:
    from lemming.kernel.tools.argument_models import ArgumentModel

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SCHEMAS: dict[Any, dict[str, Any]] = {
    Any: {},
    dict[str, Any]: {"additionalProperties": True, "type": "object"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list[Any]: {"items": {}, "type": "array"},
    list[str]: {"items": {"type": "string"}, "type": "array"},
    str | None: {"anyOf": [{"type": "string"}, {"type": "null"}]},
}
_KEYWORDS = {
    "description": ("description", (Any, str, int, float, bool, list[Any], list[str], dict[str, Any], str | None)),
    "ge": ("minimum", (int, float)),
    "min_length": ("minLength", (str,)),
    "max_length": ("maxLength", (str,)),
}
"""Keywords of JSON Schema allowed in `about`, with their types."""


MAX_SUGGESTIONS = 8
"""Maximum arguments that are compared with known names: a flood of names must not take time."""


class ArgumentMismatch(ValueError):
    """Arguments of a call do not fit the signature; the message names each argument and the reason."""


@cache
def get_arguments(function: Callable[..., Any], skip: int) -> Arguments:
    """Return the arguments of a function after its first `skip` parameters, which the engine provides."""
    return Arguments(function, skip)


def require_valid_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise `ArgumentMismatch` for arguments that violate a hand-written schema."""
    from lemming.kernel.base.json_schema.schema_violations import describe_violations  # only where there is one

    if violations := describe_violations(schema, arguments):
        raise ArgumentMismatch("; ".join(violations))


def make_arguments_hint(schema: dict[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return a hint for a model: suggestions for unknown argument names, and the arguments of the tool.

    >>> schema = dict(properties={"city": {"type": "string"}}, required=["city"])
    >>> hint = make_arguments_hint(schema, {"argument": "Oslo"})
    >>> hint.partition(";")[0]
    '"argument": did you mean "city"?'
    """
    properties = schema.get("properties", {})
    unknown = [str(name)[:80] for name in islice(arguments, MAX_SUGGESTIONS) if name not in properties]
    free = [name for name in properties if name not in arguments]
    required = [name for name in schema.get("required", ()) if name not in arguments]
    suggestions = {name: similar for name in unknown if (similar := closest_match(name, free))}
    if len(unknown) == len(required) == 1:  # the only possible meaning
        suggestions = suggestions or {unknown[0]: required[0]}
    hints = [f'"{name}": did you mean "{similar}"?' for name, similar in suggestions.items()]
    return "; ".join([*hints[:3], f"arguments: {dump_compact(schema).decode()}"])


class Arguments:
    """The named arguments of a function."""

    def __init__(self, function: Callable[..., Any], skip: int) -> None:
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError:  # a type that only a type checker imports: such an argument is not checked
            signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._engine_names = [parameter.name for parameter in parameters[:skip]]
        self._parameters = [parameter for parameter in parameters[skip:] if parameter.kind in _NAMED]
        self._required = [parameter.name for parameter in self._parameters if parameter.default is parameter.empty]
        self._is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._is_plain = not self._is_open and all(map(_is_plain, self._parameters))

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        if not self._is_plain:
            return self._model.schema()
        properties = {parameter.name: _parameter_schema(parameter) for parameter in self._parameters}
        required = self._required
        return {
            "additionalProperties": False,
            **({"properties": properties} if properties else {}),
            **({"required": required} if required else {}),
            "type": "object",
        }

    def parse_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments converted to the types of the signature. Raises `ArgumentMismatch`.

        Only types without a JSON form are coerced: a date, a path or a tuple may come as text or a list.
        """
        from pydantic_core import from_json, to_json

        if reserved_names := [name for name in self._engine_names if name in arguments]:
            raise ArgumentMismatch(f'"{reserved_names[0]}" is filled in by the engine')
        try:
            raw = to_json(arguments)
        except ValueError as error:  # something that is not JSON at all
            raise ArgumentMismatch(f"not JSON: {error}") from error
        parsed = from_json(raw)
        if self._is_plain and {*self._required} <= parsed.keys() <= self._fitters.keys():
            with suppress(TypeMismatch):
                return {name: self._fitters[name](value) for name, value in parsed.items()}
        try:
            return self._model.parse_json(raw)
        except ValueError as error:
            raise ArgumentMismatch(str(error)) from error

    @cached_property
    def _fitters(self) -> dict[str, Fitter]:
        return {parameter.name: limited_fitter(*_parameter_type(parameter)) for parameter in self._parameters}

    @cached_property
    def _model(self) -> ArgumentModel:
        from lemming.kernel.tools.argument_models import ArgumentModel

        return ArgumentModel(self._parameters, is_open=self._is_open)


def _is_plain(parameter: inspect.Parameter) -> bool:
    kind, limits = _parameter_type(parameter)
    if kind not in tuple(_SCHEMAS) or not isinstance(limits, dict):  # a type need not have a hash
        return False
    default = parameter.default
    has_plain_default = default is parameter.empty or type(default) is kind
    has_plain_default |= (kind is Any and default is None) or (kind == list[str] and default == [])
    return has_plain_default and all(name in _KEYWORDS and kind in _KEYWORDS[name][1] for name in limits)


def _parameter_type(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """Return a parameter's type, and the keywords of its `about` annotation."""
    if typing.get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation, {}
    kind, *notes = typing.get_args(parameter.annotation)
    return kind, notes[0] if len(notes) == 1 else None


def _parameter_schema(parameter: inspect.Parameter) -> dict[str, Any]:
    kind, limits = _parameter_type(parameter)
    schema = _SCHEMAS[kind] | {_KEYWORDS[name][0]: value for name, value in limits.items()}
    if parameter.default is not parameter.empty:
        schema["default"] = parameter.default
    return dict(sorted(schema.items()))
