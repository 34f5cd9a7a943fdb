"""The smallest prompt with one part of a request, to test if a server rejects the part or the content.

A rejection may concern one conversation (a message too many, a misplaced result) and is then unrelated to the
server. A part rejected in a minimal prompt is not supported by the server.
"""

from __future__ import annotations

from typing import Any

from lemming.kernel.providers import Message, Request

_TOOL = {
    "name": "note",
    "description": "Write a word down.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_SCHEMA_PARTS = ("json_schema", "json_object")
_TOOL_PARTS = ("tools", "encrypted_content")
_MAX_TOKENS = 16


def minimal_prompt(request: Request, part: str) -> Request:
    """Return the smallest request with one part of a request, without the parts already left out."""
    message: Message = {"role": "user", "content": 'Reply with {"ok": true}.'}
    if part in _TOOL_PARTS:
        message["tools"] = [_TOOL]
    return Request(
        request.model_name,
        [message],
        temperature=request.temperature if part == "temperature" else None,
        schema=_SCHEMA if part in _SCHEMA_PARTS else None,
        max_output_tokens=min(_MAX_TOKENS, request.max_output_tokens),
        deadline_s=request.deadline_s,
        agent=request.agent,
        tick=request.tick,
        step=request.step,
        without=request.without,
        turn_s=request.turn_s,
    )
