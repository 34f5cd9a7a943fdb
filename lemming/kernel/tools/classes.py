"""Classes that are to be tools: what each must say of itself before a call of it is made."""

from __future__ import annotations

from typing import Any, get_args

from lemming.kernel.base.kinds import ToolClass


def require_usable(tool: Any) -> None:
    """Raise `TypeError` for a tool that is not usable, with the reason."""
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
    if tool.says_parameters:
        _require_sound(about, parameters)
    named = parameters.get("properties", {})
    for name in tool.place_arguments:
        if name not in named and not parameters.get("additionalProperties"):
            known = ", ".join(named) or "none"
            raise TypeError(f'{about}: place_arguments names "{name}", which is no argument: {known}')


def _require_sound(about: str, parameters: Any) -> None:
    from lemming.kernel.base.json_schema.violations import flaw_of  # only where somebody wrote a schema

    if not isinstance(parameters, dict):
        raise TypeError(f"{about}: parameters is a {type(parameters).__name__}, and no JSON Schema")
    flaw, inside = flaw_of(parameters)
    if flaw:
        raise TypeError(f"{about}: parameters{inside}: no JSON Schema: {flaw}")
