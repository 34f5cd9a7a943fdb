"""The replies of a stand-in model, in the shapes of four APIs, streamed and not. model_servers.py has the script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Pieces = Iterator[tuple[str, dict[str, Any]]]
"""Server-sent events: name and body."""


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes."""

    tool: str
    input: dict[str, Any]
    number: int

    def identify(self, replies: int) -> str:
        return f"call_{replies}_{self.number}"


@dataclass(frozen=True)
class Reply:
    """What a step makes the model answer, for each API to write in its own shape."""

    replies: int
    model: str
    text: str
    calls: list[Call]
    usage: tuple[int, int, int, int]


class AnthropicApi:
    """Anthropic Messages."""

    def count_replies(self, body: dict[str, Any]) -> int:
        # Claude Code puts a reply of its own behind a conversation that was interrupted.
        replies = [message for message in body.get("messages", []) if message["role"] == "assistant"]
        return sum("No response requested." not in str(message["content"]) for message in replies)

    def list_tools(self, body: dict[str, Any]) -> list[str]:
        return [str(tool.get("name")) for tool in body.get("tools", [])]

    def build(self, reply: Reply) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
        for call in reply.calls:
            number = call.identify(reply.replies).replace("call", "toolu")
            blocks.append({"type": "tool_use", "id": number, "name": call.tool, "input": call.input})
        read, written, cached, cache_written = reply.usage
        return {
            "id": f"msg_{reply.replies}", "type": "message", "role": "assistant", "model": reply.model,
            "content": blocks, "stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None,
            "usage": {
                "input_tokens": read - cached - cache_written, "output_tokens": written,
                "cache_creation_input_tokens": cache_written, "cache_read_input_tokens": cached,
            },
        }  # fmt: skip

    def stream(self, message: dict[str, Any]) -> Pieces:
        start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        yield "message_start", {"message": start}
        for index, block in enumerate(message["content"]):
            empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
            yield "content_block_start", {"index": index, "content_block": empty}
            if block["type"] == "text":
                for word in split_words(block["text"]):
                    yield "content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": word}}
            else:
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"delta": end, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
        yield "message_stop", {}


class ResponsesApi:
    """OpenAI Responses."""

    def count_replies(self, body: dict[str, Any]) -> int:
        # A reply of the model is a run of its items between two items of the user or of a tool.
        calls = ("function_call", "custom_tool_call", "local_shell_call", "reasoning")
        kinds = [item.get("type") in calls or item.get("role") == "assistant" for item in body.get("input", [])]
        return sum(kind and not (place and kinds[place - 1]) for place, kind in enumerate(kinds))

    def list_tools(self, body: dict[str, Any]) -> list[str]:
        return [str(tool.get("name") or tool.get("type")) for tool in body.get("tools", [])]

    def build(self, reply: Reply) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        if reply.text:
            content = [{"type": "output_text", "text": reply.text, "annotations": []}]
            items.append({"type": "message", "id": f"msg_{reply.replies}", "role": "assistant", "content": content})
        for call in reply.calls:
            number = call.identify(reply.replies)
            named = {"type": "function_call", "id": f"fc_{number}", "call_id": number, "name": call.tool}
            items.append({**named, "arguments": json.dumps(call.input)})
        read, written, cached, _ = reply.usage
        usage = {
            "input_tokens": read, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + written,
        }  # fmt: skip
        named = {"id": f"resp_{reply.replies}", "object": "response", "created_at": 0, "model": reply.model}
        return {**named, "status": "completed", "usage": usage, "output": items}

    def stream(self, response: dict[str, Any]) -> Pieces:
        yield "response.created", {"response": {**response, "status": "in_progress", "output": [], "usage": None}}
        for index, item in enumerate(response["output"]):
            empty = {**item, "content": []} if item["type"] == "message" else item
            yield "response.output_item.added", {"output_index": index, "item": empty}
            if item["type"] == "message":
                place = {"output_index": index, "content_index": 0, "item_id": item["id"]}
                for word in split_words(item["content"][0]["text"]):
                    yield "response.output_text.delta", {**place, "delta": word}
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield "response.completed", {"response": response}


class ChatApi:
    """OpenAI chat completions."""

    def count_replies(self, body: dict[str, Any]) -> int:
        return sum(message["role"] == "assistant" for message in body.get("messages", []))

    def list_tools(self, body: dict[str, Any]) -> list[str]:
        return [str(tool.get("function", {}).get("name")) for tool in body.get("tools", [])]

    def build(self, reply: Reply) -> dict[str, Any]:
        calls = [
            {"id": call.identify(reply.replies), "type": "function",
             "function": {"name": call.tool, "arguments": json.dumps(call.input)}}
            for call in reply.calls
        ]  # fmt: skip
        message = {"role": "assistant", "content": reply.text or None, **({"tool_calls": calls} if calls else {})}
        read, written, cached, _ = reply.usage
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        named = {"id": f"chatcmpl-{reply.replies}", "object": "chat.completion", "created": 0, "model": reply.model}
        return {**named, "choices": [choice], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}}}

    def stream(self, completion: dict[str, Any]) -> Pieces:
        named = {"id": completion["id"], "object": "chat.completion.chunk", "created": 0, "model": completion["model"]}
        choice = completion["choices"][0]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word} for word in split_words(choice["message"]["content"] or "")]
        calls = choice["message"].get("tool_calls", [])
        deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
        for delta in deltas:
            yield "", {**named, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield "", {**named, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
        yield "", {**named, "choices": [], "usage": completion["usage"]}


class GeminiApi:
    """Gemini's generateContent."""

    def count_replies(self, body: dict[str, Any]) -> int:
        return sum(content.get("role") == "model" for content in body.get("contents", []))

    def list_tools(self, body: dict[str, Any]) -> list[str]:
        tools = body.get("tools", [])
        return [str(entry.get("name")) for tool in tools for entry in tool.get("functionDeclarations", [])]

    def build(self, reply: Reply) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text else []
        parts += [{"functionCall": {"name": call.tool, "args": call.input}} for call in reply.calls]
        read, written, cached, _ = reply.usage
        usage = {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written}
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        used = {"usageMetadata": {**usage, "cachedContentTokenCount": cached}}
        return {"candidates": [candidate], **used, "modelVersion": reply.model}

    def stream(self, response: dict[str, Any]) -> Pieces:
        for part in response["candidates"][0]["content"]["parts"]:
            for piece in [{"text": text} for text in split_words(part["text"])] if "text" in part else [part]:
                yield "", {"candidates": [{"content": {"role": "model", "parts": [piece]}, "index": 0}]}
        content = {"role": "model", "parts": [{"text": ""}]}
        yield "", {**response, "candidates": [{**response["candidates"][0], "content": content}]}


Api = AnthropicApi | ResponsesApi | ChatApi | GeminiApi


def find_api(path: str) -> Api | None:
    """Return the API that a path belongs to, with or without `/v1`."""
    bare = path.partition("?")[0]
    if bare.endswith("/messages"):
        return AnthropicApi()
    if bare.endswith("/responses"):
        return ResponsesApi()
    if bare.endswith("/chat/completions"):
        return ChatApi()
    return GeminiApi() if bare.endswith(("generateContent", "streamGenerateContent")) else None


def split_words(text: str) -> list[str]:
    """Return the pieces in which a text is streamed; joined they are the text."""
    return re.findall(r"\S*\s*", text)[:-1]
