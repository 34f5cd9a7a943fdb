"""Prompts and answers in the form that OpenTelemetry's conventions have for messages, as JSON text.

Only made where somebody asks for content. Format: gen-ai-input-messages.json and its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lemming.base.jsontext import compact
from lemming.journal.records import ModelReplied
from lemming.providers import Message

_FINISH = {"stop": "stop", "length": "length", "refusal": "content_filter", "too_large": "length"}


def instructions_in(messages: Sequence[Message]) -> str:
    """Return the system's messages of a prompt as parts."""
    return _text([_said(it["content"]) for it in messages if it["role"] == "system"])


def messages_in(messages: Sequence[Message]) -> str:
    """Return the other messages of a prompt: role and parts of each."""
    return _text([{"role": it["role"], "parts": [*_parts(it)]} for it in messages if it["role"] != "system"])


def reply_in(record: ModelReplied) -> str:
    """Return a model's answer: what it said, what it thought, the calls that it made."""
    thought = [{"type": "reasoning", "content": record.thinking}] if record.thinking else []
    said = [_said(record.text)] if record.text else []
    parts = [*thought, *said, *map(_call, record.calls)]
    return _text([{"role": "assistant", "parts": parts, "finish_reason": _FINISH[record.finish]}])


def arguments_of(args: Any) -> str:
    """Return the arguments of a call of a tool; empty when nothing tells them."""
    return "" if args is None else compact(args).decode()


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "tool_call_response", "id": message.get("call"), "response": message["content"]}
        return
    if message["content"]:
        yield _said(message["content"])
    yield from map(_call, message.get("calls", ()))


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "id": call["id"], "name": call["tool"], "arguments": call["args"]}


def _text(plain: list[dict[str, Any]]) -> str:
    return compact(plain).decode() if plain else ""
