"""Pydantic models of tool arguments, for signatures beyond plain JSON types and for error messages."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema


class ArgumentModel:
    """Model of the named arguments of a function."""

    def __init__(self, parameters: Sequence[inspect.Parameter], *, is_open: bool) -> None:
        fields: dict[str, Any] = {
            # Fields have names of our own: a signature may use a name that pydantic claims ("json", "_x").
            f"argument_{index}": (_annotation(item), ... if item.default is item.empty else item.default)
            for index, item in enumerate(parameters)
        }
        config = ConfigDict(extra="allow" if is_open else "forbid")
        self._model: type[BaseModel] = create_model("arguments", __config__=config, **fields)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        schema = self._model.model_json_schema(schema_generator=_SchemaWithoutTitles)
        del schema["title"]
        if not schema["properties"]:
            del schema["properties"]
        return schema

    def parse_json(self, raw: bytes) -> dict[str, Any]:
        """Parse JSON arguments into the types of the signature. Raises `ValueError`.

        Only types without a JSON form are coerced: a date, a path or a tuple may come as text or a list.
        """
        try:
            checked = self._model.model_validate_json(raw, strict=True)
        except ValidationError as error:
            problems = error.errors(include_url=False)[:5]
            raise ValueError("; ".join(_describe_error(item) for item in problems)) from error
        fields = type(checked).model_fields
        values = {fields[name].alias or name: getattr(checked, name) for name in checked.model_fields_set & {*fields}}
        return {**values, **(checked.model_extra or {})}


def _annotation(parameter: inspect.Parameter) -> Any:
    is_unknown = parameter.annotation is parameter.empty or isinstance(parameter.annotation, str)
    kind = Any if is_unknown else parameter.annotation
    limit_notes = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, dict)]  # `about`
    limits = {name: value for note in limit_notes for name, value in note.items()}
    return Annotated[kind, Field(alias=parameter.name, **limits)]


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Schema generator without titles: they repeat names and add noise to a prompt."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _describe_error(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "missing":
        return f'"{name}" is required'
    if item["type"] == "extra_forbidden":
        return f'unknown argument "{name}"'
    return f'"{name}": {item["msg"][0].lower()}{item["msg"][1:]}'
