"""A function's parameters as the arguments of a tool: their JSON Schema, and the check of a call.

Other than for classes, arguments are coerced as far as nothing is lost (`"3"` is a 3): small models write so.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import compact
from lemming.kernel.tools.context import ToolContext

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PROBLEMS_TOLD, _GOT_CHARS = 20, 80


class BadFunction(ConfigError):
    """A function that cannot be a tool; the message says why, `where` is `file:line`."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        file, _, line = where.rpartition(":")
        problem = Problem(message, file, int(line), 1, hint=hint, code=self.code)
        super().__init__(message, where=where, hint=hint, problems=(problem,))


class Signature:
    """The arguments that a function takes from a model, and the parameters that get the `ToolContext`."""

    def __init__(self, function: Callable[..., Any], told: Mapping[str, str], where: str) -> None:
        self._where, self._name = where, function.__name__
        parameters = list(self._parameters(function).values())
        self.contexts = [each.name for each in parameters if _is_context(each.annotation)]
        self._named = [each for each in parameters if each.name not in self.contexts]
        for each in self._named:
            self._require_plain(each)
        self._model = self._make_model(told)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, in one piece: nothing in it refers to another part."""
        made = self._model.model_json_schema(schema_generator=_Plain)
        whole = _in_one_piece(made, made.pop("$defs", {}), ())
        return {key: value for key, value in whole.items() if key != "title" and value != {}}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the function's own types; raise `ValueError` that names each that is wrong."""
        try:
            raw = compact(arguments)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        try:
            checked = self._model.model_validate_json(raw)
        except ValidationError as error:
            raise ValueError(self._sentences(error)) from error
        names = {f"argument_{index}": each.name for index, each in enumerate(self._named)}
        return {names[field]: getattr(checked, field) for field in checked.model_fields_set}

    def _sentences(self, error: ValidationError) -> str:
        found = [_sentence(item) for item in error.errors(include_url=False)]
        more = f"; and {len(found) - _PROBLEMS_TOLD} more" if len(found) > _PROBLEMS_TOLD else ""
        return "; ".join(found[:_PROBLEMS_TOLD]) + more

    def _parameters(self, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(function, eval_str=True).parameters
        except (AttributeError, ImportError, NameError, SyntaxError, TypeError, ValueError) as error:
            what = f"the hints of {self._name} cannot be read: {type(error).__name__}: {error}"
            raise BadFunction(what, where=self._where) from error

    def _require_plain(self, parameter: inspect.Parameter) -> None:
        name, hint = parameter.name, ""
        if parameter.kind not in _BY_NAME:
            stars = str(parameter).partition(name)[0]
            why = "takes any number of arguments" if stars else "cannot be given by name"
            hint = "name each parameter, or take a list or a dict"
            raise BadFunction(f"{stars}{name} of {self._name} {why}", where=self._where, hint=hint)
        if parameter.annotation is parameter.empty:
            hint = f"write {name}: str, or what it is"
            raise BadFunction(f'parameter "{name}" of {self._name} has no type', where=self._where, hint=hint)

    def _make_model(self, told: Mapping[str, str]) -> type[BaseModel]:
        fields: dict[str, Any] = {
            # Names of our own: a parameter may have one that pydantic claims ("json", "_x").
            f"argument_{index}": (
                Annotated[each.annotation, _field(each.name, told.get(each.name, ""))],
                ... if each.default is each.empty else each.default,
            )
            for index, each in enumerate(self._named)
        }
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=False)
        try:
            model: type[BaseModel] = create_model("arguments", __config__=config, **fields)
            model.model_json_schema(schema_generator=_Plain)
        except PydanticUserError as error:
            what = f"a parameter of {self._name} has a type that cannot come from JSON: {error.message}"
            raise BadFunction(what.partition("\n")[0].partition(". Set ")[0], where=self._where) from error
        return model


def _field(name: str, description: str) -> Any:
    return Field(alias=name, description=description) if description else Field(alias=name)


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(map(_is_context, typing.get_args(annotation)))
    return annotation is ToolContext


class _Plain(GenerateJsonSchema):
    """Titles repeat the name of what they stand at, and a default may be no JSON: both are left out."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _in_one_piece(schema: Any, parts: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema with what `$ref` names put in its place; inside itself, a part is any value."""
    if isinstance(schema, list):
        return [_in_one_piece(each, parts, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("$ref", "")
    if isinstance(named, str) and (name := named.removeprefix("#/$defs/")) in parts:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        whole = {} if name in inside else _in_one_piece(parts[name], parts, (*inside, name))
        return {**{key: value for key, value in whole.items() if key != "title"}, **rest}
    return {key: _in_one_piece(value, parts, inside) for key, value in schema.items()}


def _sentence(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "missing":
        return f'"{place}" is required'
    if item["type"] == "extra_forbidden":
        return f'unknown argument "{place}"'
    said = item["msg"]
    return f'"{place}": {said[0].lower()}{said[1:]}, got {_got(item["input"])}'


def _got(value: Any) -> str:
    try:
        text = to_json(value, fallback=repr).decode("utf-8", "replace")
    except ValueError:
        text = type(value).__name__
    return text if len(text) <= _GOT_CHARS else f"{text[:_GOT_CHARS]}…"
