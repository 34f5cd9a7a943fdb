"""Streamed answers: text deltas are passed on, and events are assembled to a complete answer. Pure.

Formats: server-sent events (HTML standard, section 9.2), and the events of OpenAI and Anthropic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from lemming.capabilities.hosted_models.native_formats import split_content
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.libraries.streaming import DeltaCallback

Json = dict[str, Any]


class AnswerStream(Protocol):
    """Answer assembled from events."""

    def feed(self, event: Json) -> None:
        """Process an event."""

    def to_response(self) -> Json:
        """Return the complete answer, as without streaming."""
        ...


async def assemble_stream(lines: AsyncIterator[str], stream: AnswerStream) -> bytes:
    """Return an answer in server-sent events as a complete body. Raises: Unavailable for malformed events."""
    async for line in lines:
        if not line.startswith("data:") or line[5:].strip() in ("", "[DONE]"):
            continue
        try:
            event = parse(line[5:])
        except JsonProblem as error:
            raise Unavailable(f"not an answer: {error}") from error
        try:
            if isinstance(event, dict):
                stream.feed(event)
        except (AttributeError, KeyError, TypeError) as error:
            raise Unavailable(f"not an answer: {redacted_excerpt(repr(event), 80)}") from error
    return dump_compact(stream.to_response())


class OllamaLineStream:
    """Stream of Ollama: a JSON object per line."""

    def __init__(self, on_delta: DeltaCallback) -> None:
        self._on_delta, self._buffer, self._last = on_delta, b"", Json()
        self._texts: dict[str, str] = {}
        self._calls: list[Any] = []

    def feed(self, chunk: bytes) -> None:
        """Process some bytes."""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            self._feed_line(line)

    def _feed_line(self, line: bytes) -> None:
        try:
            event = parse(line)
            _raise_stream_error(event)
            message = event.get("message") or {}
        except (JsonProblem, AttributeError) as error:
            excerpt_text = redacted_excerpt(line.decode("utf-8", "replace"), 80)
            raise Unavailable(f"not an answer: {excerpt_text!r}") from error
        self._last = event
        for name in ("content", "thinking"):
            if isinstance(text := message.get(name), str):
                self._texts[name] = self._texts.get(name, "") + text
        self._on_delta(str(message.get("content") or ""))
        calls = message.get("tool_calls")
        self._calls += calls if isinstance(calls, list) else []

    def to_response(self) -> bytes:
        """Return the complete answer. Raises: Unavailable if the stream ended early."""
        if self._buffer.strip():
            self._feed_line(self._buffer)
        if not self._last.get("done"):
            raise Unavailable("the answer ended in the middle")
        calls = {"tool_calls": self._calls} if self._calls else {}
        return dump_compact({**self._last, "message": {**self._texts, **calls}})


def _raise_stream_error(event: Json) -> None:
    error = event.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else error
        raise Unavailable(str(message or "the server gave up"))


class ChatStream:
    """Stream of OpenAI's chat completions."""

    def __init__(self, on_delta: DeltaCallback) -> None:
        self._on_delta = on_delta
        self._body: Json = {}
        self._message: Json = {"content": None}
        self._calls: dict[Any, Json] = {}
        self._finish: Any = None

    def feed(self, event: Json) -> None:
        """Process an event. Raises: Unavailable for an error event."""
        _raise_stream_error(event)
        self._body |= {key: event[key] for key in ("id", "model", "usage") if event.get(key) is not None}
        for choice in event.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            self._add_delta(choice.get("delta") or {})

    def _add_delta(self, delta: Json) -> None:
        content, thought = split_content(delta.get("content"))
        pieces = {**delta, "content": content or None}
        if thought:
            pieces["reasoning"] = thought
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(piece := pieces.get(name), str):
                self._message[name] = (self._message.get(name) or "") + piece
                if name == "content":
                    self._on_delta(piece)
        if details := delta.get("reasoning_details"):
            self._message["reasoning_details"] = [*self._message.get("reasoning_details", ()), *details]
        for number, call in enumerate(delta.get("tool_calls") or ()):
            self._add_call_delta(call, number)
        if isinstance(function := delta.get("function_call"), dict):  # the form before `tool_calls`
            self._add_call_delta({"function": function}, 0)

    def _add_call_delta(self, call: Json, number: int) -> None:
        """Add a piece of a call. Another id at the same index starts another call: some servers number no calls."""
        index = call.get("index", number)
        current_call, identity = self._calls.get(index), call.get("id")
        if current_call and identity and current_call["id"] and identity != current_call["id"]:
            self._calls[f"{index} {current_call['id']}"] = self._calls.pop(index)
            current_call = None
        if current_call is None:
            current_call = self._calls[index] = {"id": None, "function": {"name": "", "arguments": ""}}
        current_call["id"] = identity or current_call["id"]
        for name, piece in (call.get("function") or {}).items():
            if isinstance(piece, str):
                current_call["function"][name] = current_call["function"].get(name, "") + piece
            elif isinstance(piece, dict):  # arguments that are an object come at once
                current_call["function"][name] = piece

    def to_response(self) -> Json:
        """Return the complete answer. Raises: Unavailable if the stream ended early."""
        if self._finish is None:
            raise Unavailable("the answer ended in the middle")
        calls = {"tool_calls": [*self._calls.values()]} if self._calls else {}
        choice = {"message": {**self._message, **calls}, "finish_reason": self._finish}
        return {**self._body, "choices": [choice]}


class ResponsesStream:
    """Stream of OpenAI's responses API. The last event holds the complete answer."""

    def __init__(self, on_delta: DeltaCallback) -> None:
        self._on_delta = on_delta
        self._answer: Any = None

    def feed(self, event: Json) -> None:
        """Process an event. Raises: Unavailable for an error event."""
        match event.get("type"):
            case "error":
                raise Unavailable(str(event.get("message") or "the server gave up"))
            case "response.output_text.delta":
                self._on_delta(str(event.get("delta", "")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._answer = event.get("response")

    def to_response(self) -> Json:
        """Return the complete answer. Raises: Unavailable if the stream ended early."""
        if not isinstance(self._answer, dict):
            raise Unavailable("the answer ended in the middle")
        return self._answer


class MessageStream:
    """Stream of Anthropic's messages."""

    def __init__(self, on_delta: DeltaCallback) -> None:
        self._on_delta = on_delta
        self._message: Json = {}
        self._blocks: dict[Any, Json] = {}
        self._is_complete = False

    def feed(self, event: Json) -> None:
        """Process an event. Raises: Unavailable for an error event."""
        match event.get("type"):
            case "message_start":
                self._message = dict(event.get("message") or {})
            case "content_block_start":
                self._blocks[event.get("index")] = dict(event.get("content_block") or {})
            case "content_block_delta":
                self._add_delta(self._blocks.setdefault(event.get("index"), {}), event.get("delta") or {})
            case "message_delta":
                self._message |= event.get("delta") or {}
                self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
            case "message_stop":
                self._is_complete = True
            case "error":
                _raise_stream_error(event)

    def _add_delta(self, block: Json, delta: Json) -> None:
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                self._on_delta(delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                block["json"] = block.get("json", "") + delta["partial_json"]

    def to_response(self) -> Json:
        """Return the complete answer. Raises: Unavailable if the stream ended early."""
        if not self._is_complete:
            raise Unavailable("the answer ended in the middle")
        blocks = [block for _, block in sorted(self._blocks.items())]
        # The arguments of a call have been assembled as text.
        return {
            **self._message,
            "content": [{**block, "input": block["json"]} if "json" in block else block for block in blocks],
        }
