"""A server that calls tools as the real ones do: it answers what the test says, in each API's own form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from loopback import Loopback, Quiet

Json = dict[str, Any]
Called = tuple[str, str, str]
"""Id, name, and arguments as the model wrote them."""


@dataclass
class NativeServer(Loopback):
    """The server, from `start` to `stop`. `answers` are given one after the other, the last one for ever."""

    answers: list[Json] = field(default_factory=list)
    received: list[Json] = field(default_factory=list)
    status: int = 0
    """The status of each answer; 0: 400 for one that is an error, else 200."""


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        native = self.server.owner
        native.received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        answer = native.answers.pop(0) if len(native.answers) > 1 else native.answers[0]
        body = json.dumps(answer).encode()
        self.send_response(native.status or (400 if "error" in answer else 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def chat(text: str | None, *calls: Called, thought: str = "", finish: str = "") -> Json:
    """Return an answer of the chat completions API."""
    made = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    message |= {"reasoning_content": thought} if thought else {}
    reason = finish or ("tool_calls" if made else "stop")
    choice = {"index": 0, "finish_reason": reason, "message": message}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": None}


def responses(text: str | None, *calls: Called, thought: str = "", finish: str = "") -> Json:
    """Return an answer of the responses API."""
    summary = [{"type": "summary_text", "text": thought}]
    items: list[Json] = []
    if thought:
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"})
    if text:
        parts = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "id": "m1", "role": "assistant", "content": parts})
    items += [{"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n, "arguments": a} for i, n, a in calls]
    ended: Json = {"status": "completed"}
    if finish == "length":
        ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return {"id": "r1", "model": "m", "output": items, **ended}


def messages(text: str | None, *calls: Called, thought: str = "", finish: str = "") -> Json:
    """Return an answer of Anthropic's API, in which arguments are an object already."""
    blocks: list[Json] = [{"type": "thinking", "thinking": thought, "signature": "sig"}] if thought else []
    blocks += [{"type": "text", "text": text}] if text else []
    for identity, name, arguments in calls:
        blocks.append({"type": "tool_use", "id": identity, "name": name, "input": _object(arguments)})
    reason = {"length": "max_tokens"}.get(finish) or ("tool_use" if calls else "end_turn")
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks,
        "stop_reason": reason, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def ollama(text: str | None, *calls: Called, thought: str = "", finish: str = "") -> Json:
    """Return an answer of Ollama, whose calls have no ids."""
    made = [{"function": {"name": n, "arguments": _object(a)}} for _, n, a in calls]
    message = {"role": "assistant", "content": text or "", **({"tool_calls": made} if made else {})}
    message |= {"thinking": thought} if thought else {}
    return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True,
            "done_reason": finish or "stop"}  # fmt: skip


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


NativeServer.handler = _Handler
