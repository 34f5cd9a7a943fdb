"""Validate the declarations of tool classes before any call."""

from __future__ import annotations

from typing import Any, get_args

from lemming.kernel.base.entry_kinds import ToolClass


def require_usable(tool: Any) -> None:
    """Raise `TypeError` with the reason for an unusable tool."""
    from pydantic.errors import PydanticUserError

    if not getattr(tool, "name", "") or not getattr(tool, "description", ""):
        raise TypeError(f"{type(tool).__name__} must have a name and a description")
    about = f'tool "{tool.name}"'
    if type(tool).__hash__ is None:
        raise TypeError(f"{about} must be hashable: a dataclass needs @dataclass(eq=False)")
    if tool.tool_class not in get_args(ToolClass):
        raise TypeError(f"{about}: tool_class must be one of {get_args(ToolClass)}, got {tool.tool_class!r}")
    if tool.parallel and not tool.repeatable:
        raise TypeError(f"{about}: a parallel tool must be repeatable: a kill leaves open which of its calls were made")
    if tool.timeout_s is not None and not tool.timeout_s > 0:
        raise TypeError(f"{about}: timeout_s must be more than 0, got {tool.timeout_s}")
    try:
        parameters = tool.parameters
    except PydanticUserError as error:
        raise TypeError(f"{about}: an argument must have a type for JSON: {error}") from error
    if tool.has_custom_schema:
        _require_valid_schema(about, parameters)
    properties = parameters.get("properties", {})
    for name in tool.place_arguments:
        if name not in properties and not parameters.get("additionalProperties"):
            argument_names = ", ".join(properties) or "none"
            raise TypeError(f'{about}: place_arguments must name arguments ({argument_names}), got "{name}"')


def _require_valid_schema(about: str, parameters: Any) -> None:
    from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw  # only with a schema by hand

    if not isinstance(parameters, dict):
        raise TypeError(f"{about}: parameters must be a JSON Schema, got {type(parameters).__name__}")
    flaw, inside = find_schema_flaw(parameters)
    if flaw:
        raise TypeError(f"{about}: parameters{inside} must be a JSON Schema: {flaw}")
