"""Derive a tool's arguments from a function's parameters: the JSON Schema, and the validation of a call.

Arguments are coerced if nothing is lost (`"3"` becomes 3), because small models write such values. Tools
defined as classes do not coerce.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json

from lemming.ext import ConfigError, Problem
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.tools.tool_context import ToolContext

DESCRIPTION_CHARS = 2000


class ParsedDocstring(NamedTuple):
    """A parsed docstring: the description of the function, and of its parameters by name."""

    text: str
    parameters: dict[str, str]


def parse_docstring(function: Callable[..., Any]) -> ParsedDocstring:
    """Return the parsed docstring of a function, without empty descriptions."""
    from docstring_parser import ParseError, parse

    docstring = inspect.getdoc(function) or ""
    try:
        parsed = parse(docstring)
    except ParseError:
        return ParsedDocstring(_to_one_line(docstring)[:DESCRIPTION_CHARS], {})
    text = "\n".join(part.strip() for part in (parsed.short_description, parsed.long_description) if part)
    descriptions = {
        parameter.arg_name.lstrip("*"): _to_one_line(parameter.description or "") for parameter in parsed.params
    }
    return ParsedDocstring(
        text[:DESCRIPTION_CHARS], {name: description for name, description in descriptions.items() if description}
    )


def _to_one_line(text: str) -> str:
    return " ".join(text.split())


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MAX_PROBLEMS, _MAX_VALUE_CHARS = 20, 80


class InvalidToolFunction(ConfigError):
    """Raised for a function unusable as a tool. The message gives the reason; `where` is `file:line`."""

    def __init__(self, message: str, *, where: str, hint: str = "") -> None:
        file, _, line = where.rpartition(":")
        problem = Problem(message, file, int(line), 1, hint=hint, code=self.code)
        super().__init__(message, where=where, hint=hint, problems=(problem,))


class ToolSignature:
    """The parameters of a function: arguments from the model, and parameters receiving the `ToolContext`."""

    def __init__(self, function: Callable[..., Any], descriptions: Mapping[str, str], location: str) -> None:
        self._where, self._name = location, function.__name__
        try:
            parameters = [*inspect.signature(function, eval_str=True).parameters.values()]
        except (AttributeError, ImportError, NameError, SyntaxError, TypeError, ValueError) as error:
            message = f"the type hints of {self._name} cannot be evaluated: {type(error).__name__}: {error}"
            raise InvalidToolFunction(message, where=self._where) from error
        self.contexts = [parameter.name for parameter in parameters if _is_context(parameter.annotation)]
        self._arguments = [parameter for parameter in parameters if parameter.name not in self.contexts]
        for parameter in self._arguments:
            self._require_plain(parameter)
        self._model = self._make_model(descriptions)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without references."""
        schema_json = self._model.model_json_schema(schema_generator=_PlainSchema)
        inlined = _inline_refs(schema_json, schema_json.pop("$defs", {}), ())
        return {key: value for key, value in inlined.items() if key != "title" and value != {}}

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as the function's types. Raise `ValueError` with every invalid argument."""
        try:
            raw = dump_compact(arguments)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from error
        try:
            checked = self._model.model_validate_json(raw)
        except ValidationError as error:
            messages = [_describe_error(item) for item in error.errors(include_url=False)]
            suffix = f"; and {len(messages) - _MAX_PROBLEMS} more" if len(messages) > _MAX_PROBLEMS else ""
            raise ValueError("; ".join(messages[:_MAX_PROBLEMS]) + suffix) from error
        names = {f"argument_{index}": parameter.name for index, parameter in enumerate(self._arguments)}
        return {names[field]: getattr(checked, field) for field in checked.model_fields_set}

    def _require_plain(self, parameter: inspect.Parameter) -> None:
        name, hint = parameter.name, ""
        if parameter.kind not in _BY_NAME:
            stars = str(parameter).partition(name)[0]
            reason = "must not be variadic" if stars else "must not be positional-only"
            hint = "name each parameter, or use a list or a dict"
            raise InvalidToolFunction(f"{stars}{name} of {self._name} {reason}", where=self._where, hint=hint)
        if parameter.annotation is parameter.empty:
            hint = f"write {name}: str, or another type"
            raise InvalidToolFunction(
                f'parameter "{name}" of {self._name} must have a type', where=self._where, hint=hint
            )

    def _make_model(self, descriptions: Mapping[str, str]) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for index, parameter in enumerate(self._arguments):
            field = Field(alias=parameter.name, description=descriptions.get(parameter.name) or None)
            default = ... if parameter.default is parameter.empty else parameter.default
            # Names of our own: a parameter may have a name that pydantic claims ("json", "_x").
            fields[f"argument_{index}"] = Annotated[parameter.annotation, field], default
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=False)
        try:
            model: type[BaseModel] = create_model("arguments", __config__=config, **fields)
            model.model_json_schema(schema_generator=_PlainSchema)
        except PydanticUserError as error:
            message = f"a parameter of {self._name} must have a type that JSON can express: {error.message}"
            raise InvalidToolFunction(message.partition("\n")[0].partition(". Set ")[0], where=self._where) from error
        return model


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(map(_is_context, typing.get_args(annotation)))
    return annotation is ToolContext


class _PlainSchema(GenerateJsonSchema):
    """Schema generator without titles and without defaults outside JSON: titles only repeat names."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _inline_refs(schema: Any, definitions: Mapping[str, Any], enclosing: tuple[str, ...]) -> Any:
    """Return a schema with each `$ref` replaced by its target. A recursive reference becomes any value."""
    if isinstance(schema, list):
        return [_inline_refs(item, definitions, enclosing) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("$ref", "")
    if isinstance(named, str) and (name := named.removeprefix("#/$defs/")) in definitions:
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        target = {} if name in enclosing else _inline_refs(definitions[name], definitions, (*enclosing, name))
        return {**{key: value for key, value in target.items() if key != "title"}, **siblings}
    return {key: _inline_refs(value, definitions, enclosing) for key, value in schema.items()}


def _describe_error(item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "missing":
        return f'"{path}" is required'
    if item["type"] == "extra_forbidden":
        return f'unknown argument "{path}"'
    message = item["msg"]
    return f'"{path}": {message[0].lower()}{message[1:]}, got {_describe_value(item["input"])}'


def _describe_value(value: Any) -> str:
    try:
        text = to_json(value, fallback=repr).decode("utf-8", "replace")
    except ValueError:
        text = type(value).__name__
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"
