"""Validate the declarations of tool classes before any call."""

from __future__ import annotations

from typing import Any, get_args

from lemming.kernel.base.entry_kinds import ToolClass


def require_usable(tool: Any) -> None:
    """Raise `TypeError` with the reason for an unusable tool."""
    from pydantic.errors import PydanticUserError

    if not getattr(tool, "name", "") or not getattr(tool, "description", ""):
        raise TypeError(f"{type(tool).__name__} needs a name and a description")
    about = f'tool "{tool.name}"'
    if type(tool).__hash__ is None:
        raise TypeError(f"{about} has no hash: a dataclass needs @dataclass(eq=False)")
    if tool.tool_class not in get_args(ToolClass):
        raise TypeError(f"{about}: tool_class is {tool.tool_class!r}: {get_args(ToolClass)}")
    if tool.parallel and not tool.repeatable:
        raise TypeError(
            f"{about}: parallel needs repeatable: a kill leaves open which of its calls were made"
        )
    if tool.timeout_s is not None and not tool.timeout_s > 0:
        raise TypeError(f"{about}: timeout_s is {tool.timeout_s}; it must be more than 0")
    try:
        parameters = tool.parameters
    except PydanticUserError as error:
        raise TypeError(f"{about}: an argument's type cannot come from JSON: {error}") from error
    if tool.has_custom_schema:
        _require_valid_schema(about, parameters)
    properties = parameters.get("properties", {})
    for name in tool.place_arguments:
        if name not in properties and not parameters.get("additionalProperties"):
            argument_names = ", ".join(properties) or "none"
            raise TypeError(
                f'{about}: place_arguments names "{name}", which is no argument: {argument_names}'
            )


def _require_valid_schema(about: str, parameters: Any) -> None:
    from lemming.kernel.base.json_schema.schema_violations import (
        find_schema_flaw,  # only where somebody wrote a schema
    )

    if not isinstance(parameters, dict):
        raise TypeError(f"{about}: parameters is a {type(parameters).__name__}, and no JSON Schema")
    flaw, inside = find_schema_flaw(parameters)
    if flaw:
        raise TypeError(f"{about}: parameters{inside}: no JSON Schema: {flaw}")
