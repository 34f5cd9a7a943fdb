"""How answers of Anthropic's API are read. Pure: no connection, no SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lemming.capabilities.hosted.native import ANTHROPIC, arguments_of, in_runs, kept_of, made
from lemming.capabilities.hosted.schemas import unwrap_reply
from lemming.kernel.llm.tokens import tokens_at, tokens_in
from lemming.kernel.providers import Finish, Reply

_FINISHES: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


Json = dict[str, Any]

LEAST_CACHED_TOKENS = 1024
"""The shortest prompt that any model of this API caches; some need 2,048 or 4,096 and ignore a mark below."""


def wire_tool(tool: Json) -> Json:
    """Return a tool in the API's form."""
    return {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}


def mark_constant_half(fields: Json, cache: str) -> Json:
    """Return the fields of a request whose instructions and tools, the same in every turn, are to be cached.

    With "auto" only where they are so large that the API keeps them: a mark below that has no effect, and
    one above it saves as soon as the agent asks again within five minutes. Tools stand before the
    instructions in what is cached, so one mark at its end is for all of it.
    """
    if cache == "auto" and _constant_tokens(fields) < LEAST_CACHED_TOKENS:
        return fields
    mark = {"cache_control": {"type": "ephemeral", "ttl": "5m" if cache == "auto" else cache}}
    if "system" in fields:
        return {**fields, "system": [{"type": "text", "text": fields["system"], **mark}]}
    if "tools" in fields:
        return {**fields, "tools": [*fields["tools"][:-1], {**fields["tools"][-1], **mark}]}
    return fields


def _constant_tokens(fields: Json) -> int:
    """Return an estimate of the tokens of instructions and tools, of tools only where it depends on them."""
    system: Json = {"role": "system", "content": fields.get("system", "")}
    tokens = tokens_in([system])
    return tokens if tokens >= LEAST_CACHED_TOKENS else tokens_in([{**system, "tools": fields.get("tools")}])


def wire_messages(messages: Sequence[Json]) -> Iterator[Json]:
    """Yield messages in the API's form, in which results that follow each other are one message."""
    for run in in_runs(messages):
        first = run[0]
        if first["role"] == "tool":
            yield {"role": "user", "content": [_result(message) for message in run]}
        elif kept := kept_of(first, ANTHROPIC):
            yield {"role": "assistant", "content": kept}
        elif calls := first.get("calls"):
            text = [{"type": "text", "text": first["content"]}] if first["content"].strip() else []
            yield {"role": "assistant", "content": [*text, *map(_use, calls)]}
        else:
            yield {"role": first["role"], "content": first["content"]}


def _result(message: Json) -> Json:
    error = {} if message.get("success", True) else {"is_error": True}
    return {"type": "tool_result", "tool_use_id": message["call"], "content": message["content"], **error}


def _use(call: Json) -> Json:
    return {"type": "tool_use", "id": call["id"], "name": call["tool"], "input": arguments_of(call)}


@dataclass(frozen=True)
class _Block:
    type: str
    text: str = ""
    id: Any = None
    name: Any = None
    input: Any = None
    thinking: str = ""
    signature: Any = None
    data: Any = None

    def again(self, call: Json | None) -> list[Json]:
        """Return the block as the next request of the turn has it; `call` is the call that it makes."""
        if call is not None:
            return [_use(call)]
        if self.type == "text" and self.text.strip():  # an empty one would be refused
            return [{"type": "text", "text": self.text}]
        if self.type == "thinking":
            return [{"type": "thinking", "thinking": self.thinking, "signature": self.signature}]
        return [{"type": self.type, "data": self.data}] if self.type == "redacted_thinking" else []


@dataclass(frozen=True)
class Message:
    """An answer: the parts of it that are read."""

    content: list[_Block]
    stop_reason: Any = None
    usage: Any = None  # an answer is paid for, whatever is odd about these
    model: Any = None
    id: Any = None

    def reply(self, request_id: str | None = None, model_name: str = "") -> Reply:
        """Return the answer with its usage."""
        return Reply(
            text=unwrap_reply("".join(block.text for block in self.content if block.type == "text")),
            input_tokens=self._input_tokens(),
            output_tokens=tokens_at(self.usage, "output_tokens"),
            cached_tokens=tokens_at(self.usage, "cache_read_input_tokens"),
            written_tokens=tokens_at(self.usage, "cache_creation_input_tokens"),
            finish=_FINISHES.get(str(self.stop_reason), "stop"),
            model=str(self.model or model_name),
            request_id=str(request_id or self.id or ""),
            **self._native(),
        )

    def _native(self) -> Json:
        """Return the fields of a `Reply` that are about tool calls and thinking.

        What the model thought is signed, and has to come back as it was while its calls are answered.
        """
        uses = [block for block in self.content if block.type == "tool_use" and isinstance(block.name, str)]
        calls = made((block.id, block.name, block.input) for block in uses)
        by_block = {id(block): call for block, call in zip(uses, calls, strict=True)}
        kept = [again for block in self.content for again in block.again(by_block.get(id(block)))]
        thoughts = [block.thinking for block in self.content if block.type == "thinking" and block.thinking]
        return {
            "calls": calls,
            "thinking": "\n\n".join(thoughts),
            "kept": {ANTHROPIC: kept} if calls else None,
        }

    def _input_tokens(self) -> int | None:
        """Return the whole prompt's tokens: this API counts those read from a cache, or put there, apart."""
        fresh = tokens_at(self.usage, "input_tokens")
        apart = ("cache_read_input_tokens", "cache_creation_input_tokens")
        return None if fresh is None else fresh + sum(tokens_at(self.usage, key) or 0 for key in apart)
