"""Pydantic's model of a tool's arguments: for signatures beyond plain JSON types, and for what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema


class ArgumentModel:
    """The arguments that some parameters of a function take by name."""

    def __init__(self, parameters: Sequence[inspect.Parameter], *, is_open: bool) -> None:
        fields: dict[str, Any] = {
            # Fields have names of our own: a signature may use one that pydantic claims ("json", "_x").
            f"argument_{index}": (_annotation(parameter), _default(parameter))
            for index, parameter in enumerate(parameters)
        }
        config = ConfigDict(extra="allow" if is_open else "forbid")
        self._model: type[BaseModel] = create_model("arguments", __config__=config, **fields)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        schema = self._model.model_json_schema(schema_generator=_WithoutTitles)
        del schema["title"]
        if not schema["properties"]:
            del schema["properties"]
        return schema

    def check(self, raw: bytes) -> dict[str, Any]:
        """Return arguments, which come as JSON, as the types of the signature; raise `ValueError`.

        Nothing is coerced but what JSON cannot say: a date, a path or a tuple may come as text or a list.
        """
        try:
            checked = self._model.model_validate_json(raw, strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False)[:5]
            raise ValueError("; ".join(_sentence(item) for item in problems)) from error
        fields = type(checked).model_fields
        named = {
            fields[name].alias or name: getattr(checked, name)
            for name in checked.model_fields_set & {*fields}
        }
        return {**named, **(checked.model_extra or {})}


def _annotation(parameter: inspect.Parameter) -> Any:
    is_unknown = parameter.annotation is parameter.empty or isinstance(parameter.annotation, str)
    kind = Any if is_unknown else parameter.annotation
    told = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, dict)]  # `about`
    limits = {name: value for note in told for name, value in note.items()}
    return Annotated[kind, Field(alias=parameter.name, **limits)]


def _default(parameter: inspect.Parameter) -> Any:
    return ... if parameter.default is parameter.empty else parameter.default


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
