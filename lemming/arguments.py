"""What a tool's signature says about its arguments: a JSON Schema for the prompt, and a check."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class WrongArguments(ValueError):
    """The arguments of a call do not fit the signature; the message says which and why."""


@dataclass(frozen=True)
class Arguments:
    """The arguments a function takes by name. `given` are the names that the engine fills in itself."""

    model: type[BaseModel]
    schema: dict[str, Any]
    given: tuple[str, ...]

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the types of the signature; raise `WrongArguments`.

        Nothing is coerced but what JSON cannot say: a date, a path or a tuple may come as text or a list.
        """
        if taken := [name for name in self.given if name in arguments]:
            raise WrongArguments(f'"{taken[0]}" is filled in by the engine')
        try:
            checked = self.model.model_validate_json(to_json(arguments), strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False)[:5]
            raise WrongArguments("; ".join(_sentence(item) for item in problems)) from error
        except ValueError as error:  # to_json: something that is not JSON at all
            raise WrongArguments(f"not JSON: {error}") from error
        fields = type(checked).model_fields
        named = {
            fields[name].alias or name: getattr(checked, name)
            for name in checked.model_fields_set & {*fields}
        }
        return {**named, **(checked.model_extra or {})}


@cache
def arguments_of(function: Callable[..., Any], skip: int) -> Arguments:
    """Return the arguments of a function behind its first `skip` parameters, which the engine fills in."""
    parameters = list(_signature(function).parameters.values())
    given = tuple(parameter.name for parameter in parameters[:skip])
    fields: dict[str, Any] = {
        # Fields have names of our own, because a signature may use one that pydantic claims ("json", "_x").
        f"argument_{index}": (
            Annotated[_annotation(parameter), Field(alias=parameter.name)],
            _default(parameter),
        )
        for index, parameter in enumerate(parameters[skip:])
        if parameter.kind in _NAMED
    }
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    config = ConfigDict(extra="allow" if is_open else "forbid")
    model = create_model("arguments", __config__=config, **fields)
    return Arguments(model, _schema(model), given)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:  # a type that only a type checker imports: such an argument is not checked
        return inspect.signature(function)


def _annotation(parameter: inspect.Parameter) -> Any:
    is_unknown = parameter.annotation is parameter.empty or isinstance(parameter.annotation, str)
    return Any if is_unknown else parameter.annotation


def _default(parameter: inspect.Parameter) -> Any:
    return ... if parameter.default is parameter.empty else parameter.default


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_WithoutTitles)
    del schema["title"]
    if not schema["properties"]:
        del schema["properties"]
    return schema


class _WithoutTitles(GenerateJsonSchema):
    """Titles repeat the name of what they stand at; in a prompt they are noise."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _sentence(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "missing":
        return f'"{name}" is required'
    if item["type"] == "extra_forbidden":
        return f'unknown argument "{name}"'
    return f'"{name}": {item["msg"][0].lower()}{item["msg"][1:]}'
