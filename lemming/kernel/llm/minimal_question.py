"""The smallest question with one part of a request: whether a server refuses the part, or what is asked.

A refusal may be about one conversation (a message too many, a result in the wrong place), and says nothing of
the server then. What it refuses of a question that has nothing else in it, it does not take.
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
_OF_SCHEMAS = ("json_schema", "json_object")
_OF_TOOLS = ("tools", "encrypted_content")
_MOST_TOKENS = 16


def minimal_question(request: Request, part: str) -> Request:
    """Return the smallest question that has this part of a request, without what is left out already."""
    message: Message = {"role": "user", "content": 'Reply with {"ok": true}.'}
    if part in _OF_TOOLS:
        message["tools"] = [_TOOL]
    return Request(
        request.model_name,
        [message],
        temperature=request.temperature if part == "temperature" else None,
        schema=_SCHEMA if part in _OF_SCHEMAS else None,
        max_output_tokens=min(_MOST_TOKENS, request.max_output_tokens),
        deadline_s=request.deadline_s,
        agent=request.agent,
        tick=request.tick,
        step=request.step,
        without=request.without,
        turn_s=request.turn_s,
    )
