"""What a tool's signature says about its arguments: a JSON Schema for the prompt, and a check.

Signatures of plain JSON types, as the tools that ship have them, are read here; all others by pydantic, whose
import and models cost as much as all the rest of a short tick (docs/decisions/0010). What does not fit is
pydantic's to tell, too. Neither the schema nor the check may differ from what pydantic says.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from lemming.kernel.base.jsontext import compact, near
from lemming.kernel.files.fitting import Fitter, Misfit, fitter_of

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
    "description": (
        "description",
        (Any, str, int, float, bool, list[Any], list[str], dict[str, Any], str | None),
    ),
    "ge": ("minimum", (int, float)),
    "min_length": ("minLength", (str,)),
    "max_length": ("maxLength", (str,)),
}
"""What an annotation with `about` may say, as JSON Schema has it, and of which types."""


MOST_NAMED = 8
"""So many arguments of a call are held against those that there are: a flood of names must not take time."""


class WrongArguments(ValueError):
    """The arguments of a call do not fit the signature; the message says which and why."""


@cache
def arguments_of(function: Callable[..., Any], skip: int) -> Arguments:
    """Return the arguments of a function behind its first `skip` parameters, which the engine fills in."""
    return Arguments(function, skip)


def require_fitting(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise `WrongArguments` for what does not satisfy a schema that somebody wrote by hand."""
    from lemming.kernel.base.json_schema.violations import misfits  # only where there is one

    if wrong := misfits(schema, arguments):
        raise WrongArguments("; ".join(wrong))


def arguments_hint(schema: dict[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return what tells a model how to call a tool: its arguments, and the one that it surely meant.

    >>> schema = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
    >>> arguments_hint(schema, {"argument": "Oslo"}).split("; ")[0]
    '"argument": did you mean "city"?'
    """
    known = schema.get("properties", {})
    unknown = [str(name)[:80] for name in islice(arguments, MOST_NAMED) if name not in known]
    free = [name for name in known if name not in arguments]
    required = [name for name in schema.get("required", ()) if name not in arguments]
    meant = {name: found for name in unknown if (found := near(name, free))}
    if len(unknown) == len(required) == 1:  # nothing else can be meant
        meant = meant or {unknown[0]: required[0]}
    hints = [f'"{name}": did you mean "{found}"?' for name, found in meant.items()]
    return "; ".join([*hints[:3], f"arguments: {compact(schema).decode()}"])


class Arguments:
    """The arguments a function takes by name."""

    def __init__(self, function: Callable[..., Any], skip: int) -> None:
        parameters = list(_signature(function).parameters.values())
        self._given = [parameter.name for parameter in parameters[:skip]]
        self._named = [parameter for parameter in parameters[skip:] if parameter.kind in _NAMED]
        self._is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._is_plain = not self._is_open and all(map(_is_plain, self._named))

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        if not self._is_plain:
            return self._model.schema()
        properties = {parameter.name: _schema(parameter) for parameter in self._named}
        required = [parameter.name for parameter in self._named if parameter.default is parameter.empty]
        return {
            "additionalProperties": False,
            **({"properties": properties} if properties else {}),
            **({"required": required} if required else {}),
            "type": "object",
        }

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the types of the signature; raise `WrongArguments`.

        Nothing is coerced but what JSON cannot say: a date, a path or a tuple may come as text or a list.
        """
        from pydantic_core import from_json, to_json

        if taken := [name for name in self._given if name in arguments]:
            raise WrongArguments(f'"{taken[0]}" is filled in by the engine')
        try:
            raw = to_json(arguments)
        except ValueError as error:  # something that is not JSON at all
            raise WrongArguments(f"not JSON: {error}") from error
        try:
            return self._fitted(from_json(raw))
        except Misfit:
            return self._validated(raw)

    def _fitted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._is_plain:
            raise Misfit
        fitters, required = self._fitters
        if not required <= arguments.keys() <= fitters.keys():
            raise Misfit
        return {name: fitters[name](value) for name, value in arguments.items()}

    @cached_property
    def _fitters(self) -> tuple[dict[str, Fitter], set[str]]:
        """How each argument is checked, and those that must be there."""
        fitters = {parameter.name: fitter_of(*_kind_of(parameter)) for parameter in self._named}
        return fitters, {parameter.name for parameter in self._named if parameter.default is parameter.empty}

    def _validated(self, raw: bytes) -> dict[str, Any]:
        try:
            return self._model.check(raw)
        except ValueError as error:
            raise WrongArguments(str(error)) from error

    @cached_property
    def _model(self) -> ArgumentModel:
        from lemming.kernel.tools.argument_models import ArgumentModel

        return ArgumentModel(self._named, is_open=self._is_open)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a type that only a type checker imports: such an argument is not checked
        return inspect.signature(function)


def _is_plain(parameter: inspect.Parameter) -> bool:
    kind, told = _kind_of(parameter)
    if kind not in tuple(_SCHEMAS) or not isinstance(told, dict):  # a type need not have a hash
        return False
    default = parameter.default
    has_plain_default = default is parameter.empty or type(default) is kind
    has_plain_default |= (kind is Any and default is None) or (kind == list[str] and default == [])
    return has_plain_default and all(name in _KEYWORDS and kind in _KEYWORDS[name][1] for name in told)


def _kind_of(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """Return a parameter's type, and what an annotation with `about` says of it."""
    if typing.get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation, {}
    kind, *told = typing.get_args(parameter.annotation)
    return kind, told[0] if len(told) == 1 else None


def _schema(parameter: inspect.Parameter) -> dict[str, Any]:
    kind, told = _kind_of(parameter)
    schema = _SCHEMAS[kind] | {_KEYWORDS[name][0]: value for name, value in told.items()}
    if parameter.default is not parameter.empty:
        schema["default"] = parameter.default
    return dict(sorted(schema.items()))
