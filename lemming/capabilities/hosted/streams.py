"""Answers that come in events, heard as they are written, put together to what they would be at once. Pure.

Formats: server-sent events (HTML standard, section 9.2), and what OpenAI and Anthropic send in them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from lemming.capabilities.hosted.native import split_content
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.llm.streaming import Hear

Json = dict[str, Any]


class Stream(Protocol):
    """An answer that comes in events."""

    def take(self, event: Json) -> None:
        """Take one event."""

    def whole(self) -> Json:
        """Return the answer as it would have come at once."""
        ...


async def put_together(lines: AsyncIterator[str], stream: Stream) -> bytes:
    """Return an answer that comes in server-sent events as the body it would have been at once."""
    async for event in events_in(lines):
        try:
            stream.take(event)
        except (AttributeError, KeyError, TypeError) as error:
            raise Unavailable(f"not an answer: {excerpt(repr(event), 80)}") from error
    return compact(stream.whole())


class LinesOfAnswer:
    """A stream of Ollama: a JSON object a line."""

    def __init__(self, hear: Hear) -> None:
        self._hear, self._rest, self._last = hear, b"", Json()
        self._texts: dict[str, str] = {}
        self._calls: list[Any] = []

    def take(self, piece: bytes) -> None:
        """Take some bytes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in filter(bytes.strip, lines):
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            event = parse(line)
            _refuse_error(event)
            message = event.get("message") or {}
        except (JsonProblem, AttributeError) as error:
            shown = excerpt(line.decode("utf-8", "replace"), 80)
            raise Unavailable(f"not an answer: {shown!r}") from error
        self._last = event
        for name in ("content", "thinking"):
            if isinstance(text := message.get(name), str):
                self._texts[name] = self._texts.get(name, "") + text
        self._hear(str(message.get("content") or ""))
        calls = message.get("tool_calls")
        self._calls += calls if isinstance(calls, list) else []

    def whole(self) -> bytes:
        """Return the answer as it would have come at once; raise `Unavailable` when it was cut."""
        if self._rest.strip():
            self._line(self._rest)
        if not self._last.get("done"):
            raise Unavailable("the answer ended in the middle")
        calls = {"tool_calls": self._calls} if self._calls else {}
        return compact({**self._last, "message": {**self._texts, **calls}})


async def events_in(lines: AsyncIterator[str]) -> AsyncIterator[Json]:
    """Yield the JSON objects of a stream of server-sent events; raise `Unavailable` for what is none."""
    async for line in lines:
        if not line.startswith("data:") or line[5:].strip() in ("", "[DONE]"):
            continue
        try:
            event = parse(line[5:])
        except JsonProblem as error:
            raise Unavailable(f"not an answer: {error}") from error
        if isinstance(event, dict):
            yield event


def _refuse_error(event: Json) -> None:
    error = event.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else error
        raise Unavailable(str(message or "the server gave up"))


class ChatStream:
    """A stream of OpenAI's chat completions."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._body: Json = {}
        self._message: Json = {"content": None}
        self._calls: dict[Any, Json] = {}
        self._finish: Any = None

    def take(self, event: Json) -> None:
        """Take one event; raise `Unavailable` where it tells of an error."""
        _refuse_error(event)
        self._body |= {key: event[key] for key in ("id", "model", "usage") if event.get(key) is not None}
        for choice in event.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            self._delta(choice.get("delta") or {})

    def _delta(self, delta: Json) -> None:
        content, thought = split_content(delta.get("content"))
        pieces = {**delta, "content": content or None}
        if thought:
            pieces["reasoning"] = thought
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(piece := pieces.get(name), str):
                self._message[name] = (self._message.get(name) or "") + piece
                if name == "content":
                    self._hear(piece)
        if details := delta.get("reasoning_details"):
            self._message["reasoning_details"] = [*self._message.get("reasoning_details", ()), *details]
        for number, call in enumerate(delta.get("tool_calls") or ()):
            self._call(call, number)
        if isinstance(function := delta.get("function_call"), dict):  # the form before `tool_calls`
            self._call({"function": function}, 0)

    def _call(self, call: Json, number: int) -> None:
        """Take a piece of a call. Another id at an index begins another call: some servers count none."""
        index = call.get("index", number)
        made, identity = self._calls.get(index), call.get("id")
        if made and identity and made["id"] and identity != made["id"]:
            self._calls[f"{index} {made['id']}"] = self._calls.pop(index)
            made = None
        if made is None:
            made = self._calls[index] = {"id": None, "function": {"name": "", "arguments": ""}}
        made["id"] = identity or made["id"]
        for name, piece in (call.get("function") or {}).items():
            if isinstance(piece, str):
                made["function"][name] = made["function"].get(name, "") + piece
            elif isinstance(piece, dict):  # arguments that are an object come at once
                made["function"][name] = piece

    def whole(self) -> Json:
        """Return the answer as it would have come at once; raise `Unavailable` when it was cut."""
        if self._finish is None:
            raise Unavailable("the answer ended in the middle")
        calls = {"tool_calls": [*self._calls.values()]} if self._calls else {}
        choice = {"message": {**self._message, **calls}, "finish_reason": self._finish}
        return {**self._body, "choices": [choice]}


class ResponseStream:
    """A stream of OpenAI's responses API, whose last event holds the whole answer."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._answer: Any = None

    def take(self, event: Json) -> None:
        """Take one event; raise `Unavailable` where it tells of an error."""
        match event.get("type"):
            case "error":
                raise Unavailable(str(event.get("message") or "the server gave up"))
            case "response.output_text.delta":
                self._hear(str(event.get("delta", "")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._answer = event.get("response")

    def whole(self) -> Json:
        """Return the answer as it would have come at once; raise `Unavailable` when it was cut."""
        if not isinstance(self._answer, dict):
            raise Unavailable("the answer ended in the middle")
        return self._answer


class MessageStream:
    """A stream of Anthropic's messages."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._message: Json = {}
        self._blocks: dict[Any, Json] = {}
        self._is_whole = False

    def take(self, event: Json) -> None:
        """Take one event; raise `Unavailable` where it tells of an error."""
        match event.get("type"):
            case "message_start":
                self._message = dict(event.get("message") or {})
            case "content_block_start":
                self._blocks[event.get("index")] = dict(event.get("content_block") or {})
            case "content_block_delta":
                self._delta(self._blocks.setdefault(event.get("index"), {}), event.get("delta") or {})
            case "message_delta":
                self._message |= event.get("delta") or {}
                self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
            case "message_stop":
                self._is_whole = True
            case "error":
                _refuse_error(event)

    def _delta(self, block: Json, delta: Json) -> None:
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                self._hear(delta["text"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                block["json"] = block.get("json", "") + delta["partial_json"]

    def whole(self) -> Json:
        """Return the answer as it would have come at once; raise `Unavailable` when it was cut."""
        if not self._is_whole:
            raise Unavailable("the answer ended in the middle")
        return {**self._message, "content": [_block(block) for _, block in sorted(self._blocks.items())]}


def _block(block: Json) -> Json:
    """Return a block with the arguments of its call as they were put together."""
    written = block.get("json")
    return block if written is None else {**block, "input": written}
