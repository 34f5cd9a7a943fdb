"""What a function returned, as the text that a model reads."""

from __future__ import annotations

from typing import Any

from lemming.base.errors import ToolError
from lemming.tools import ToolResult


def text_of(value: Any, tool: str) -> str:
    """Return any value as text: a text as it is, nothing for None, all else as JSON. Raises `ToolError`.

    Dataclasses, models, enumerations, dates, paths and bytes become what pydantic makes of them in JSON;
    what it does not know, its `str`.
    """
    from pydantic_core import PydanticSerializationError, to_json

    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    try:
        text = to_json(value, fallback=str, bytes_mode="utf8", inf_nan_mode="strings").decode("utf-8")
    except UnicodeDecodeError:
        text = repr(value)
    except (ValueError, PydanticSerializationError, RecursionError) as error:
        raise ToolError(f"{tool}: what it returned cannot be told: {error}") from error
    plain = text[1:-1]
    return plain if text[:1] == text[-1:] == '"' and "\\" not in plain and len(text) > 1 else text


def as_result(value: Any, tool: str) -> ToolResult:
    """Return what a function returned as a result; a `ToolResult` is one already."""
    if isinstance(value, ToolResult):
        return ToolResult(bool(value.success), text_of(value.output, tool), outcome=value.outcome)
    return ToolResult(True, text_of(value, tool))
