"""A server that writes its answers piece by piece, in each API's own form, and breaks off on cue.

The first part of a request's path is what goes wrong: `http://127.0.0.1:PORT/<scenario>/v1/chat/completions`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loopback import Loopback, Quiet

Json = dict[str, Any]
ANSWER = '{"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "it is fine"}'
PIECES = [ANSWER[at : at + 9] for at in range(0, len(ANSWER), 9)]


@dataclass
class StreamServer(Loopback):
    """The server, from `start` to `stop`. `received` holds the bodies of the requests."""

    received: list[Json] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def url_of(self, scenario: str) -> str:
        return f"{self.url}/{scenario}"

    def stop(self) -> None:
        self.stopping.set()
        super().stop()


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.owner.received.append(body)
        scenario, _, path = self.path.removeprefix("/").partition("/")
        lines = list(events_of(f"/{path}"))
        if scenario == "refuses" and body.get("stream"):
            error = json.dumps({"error": {"message": "stream is not supported here"}}).encode()
            return self._whole(400, error)
        if scenario in ("whole", "refuses"):
            return self._whole(200, json.dumps(whole_of(f"/{path}")).encode())
        self.send_response(200)
        is_ollama = path.endswith("api/chat")
        self.send_header("content-type", "application/x-ndjson" if is_ollama else "text/event-stream")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._stream(scenario, lines, path)
        return None

    def _whole(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, scenario: str, lines: list[str], path: str) -> None:
        match scenario:
            case "cut":
                self.wfile.write("".join(lines[:5]).encode())
            case "error":
                error = {"type": "error", "message": "overloaded", "error": {"message": "overloaded"}}
                mark = "" if path.endswith("api/chat") else "data: "
                self.wfile.write("".join([*lines[:4], f"{mark}{json.dumps(error)}\n\n"]).encode())
            case "odd":
                self.wfile.write(b'data: {"choices": [7], "type": "content_block_delta", "delta": 7}\n\n')
            case "drip":
                for line in lines * 1000:
                    if self.server.owner.stopping.wait(0.02):
                        break
                    self.wfile.write(line.encode())
            case "endless":
                while not self.server.owner.stopping.is_set():
                    self.wfile.write(b":" * (1 << 20) + b"\n")
            case _:
                for line in lines:
                    self.wfile.write(line.encode())


def events_of(path: str) -> Iterator[str]:
    """Yield what a server sends for one answer: 11 tokens in, 7 out."""
    if path.endswith("/api/chat"):
        for piece in PIECES:
            yield json.dumps({"model": "served", "message": {"role": "assistant", "content": piece}}) + "\n"
        yield json.dumps({**whole_of(path), "message": {"role": "assistant", "content": ""}}) + "\n"
        return
    for event in _events(path):
        yield f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


def _events(path: str) -> Iterator[Json]:
    if path.endswith("/chat/completions"):
        for piece in PIECES:
            yield {"id": "c1", "model": "served", "choices": [{"index": 0, "delta": {"content": piece}}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        yield {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    elif path.endswith("/responses"):
        yield {"type": "response.created", "response": {"id": "r1"}}
        for piece in PIECES:
            yield {"type": "response.output_text.delta", "delta": piece}
        yield {"type": "response.completed", "response": whole_of(path)}
    else:
        start = {**whole_of(path), "content": [], "stop_reason": None, "usage": {"input_tokens": 11}}
        yield {"type": "message_start", "message": start}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "ping"}
        for piece in PIECES:
            delta = {"type": "text_delta", "text": piece}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
        yield {"type": "message_stop"}


def whole_of(path: str) -> Json:
    """Return the answer as it comes to who does not ask for a stream."""
    if path.endswith("/chat/completions"):
        choice = {"message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 11, "completion_tokens": 7}
        return {"id": "c1", "model": "served", "choices": [choice], "usage": usage}
    if path.endswith("/responses"):
        parts = [{"type": "output_text", "text": ANSWER}]
        usage = {"input_tokens": 11, "output_tokens": 7}
        output = [{"type": "message", "id": "m1", "role": "assistant", "content": parts}]
        return {"id": "r1", "status": "completed", "model": "served", "output": output, "usage": usage}
    if path.endswith("/messages"):
        usage = {"input_tokens": 11, "output_tokens": 7}
        blocks = [{"type": "text", "text": ANSWER}]
        return {"id": "msg1", "type": "message", "role": "assistant", "model": "served", "content": blocks,
                "stop_reason": "end_turn", "usage": usage}  # fmt: skip
    return {"model": "served", "message": {"role": "assistant", "content": ANSWER}, "done": True,
            "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7}  # fmt: skip


StreamServer.handler = _Handler
