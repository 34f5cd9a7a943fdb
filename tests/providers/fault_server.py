"""A model server that misbehaves on cue, over a real loopback socket.

The first part of a request's path is what goes wrong: `http://127.0.0.1:PORT/<scenario>/v1/chat/completions`.
It speaks OpenAI's two APIs, Anthropic's and Ollama's, as far as one answer needs it.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import queue
import socket
import struct
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

ANSWER = '{"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "fine"}'
_BYTE_EVERY_S = 0.03


@dataclass(frozen=True)
class Received:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class FaultServer:
    """The server, from `start` to `stop`. `received` holds the requests in the order they came.

    `came` has them as well, for a test that waits for one.
    """

    received: list[Received] = field(default_factory=list)
    came: queue.SimpleQueue[Received] = field(default_factory=queue.SimpleQueue)
    counts: Counter[str] = field(default_factory=Counter)
    sent_mib: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.connections: set[socket.socket] = set()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.faults = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End every hanging answer and every open connection, and wait for the server."""
        self.stopping.set()
        self._http.shutdown()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._http.server_close()
        self._thread.join()

    def url(self, scenario: str) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/{scenario}"


def refused_url() -> str:
    """Return the address of a port on which nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{reserved.getsockname()[1]}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    faults: FaultServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.faults.connections.add(self.connection)

    def finish(self) -> None:
        self.server.faults.connections.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        faults = self.server.faults
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        faults.received.append(Received(self.path, headers, json.loads(raw or b"{}")))
        faults.counts[self.path] += 1
        faults.came.put(faults.received[-1])
        scenario, _, rest = self.path.removeprefix("/").partition("/")
        self._answer(scenario, f"/{rest}", faults.counts[self.path])

    def _answer(self, scenario: str, path: str, attempt: int) -> None:
        faults = self.server.faults
        good = json.dumps(answer_body(path, ANSWER)).encode()
        match scenario.split("-"):
            case ["429", "after", seconds]:
                self._fail(path, 429, {"retry-after": seconds})
            case ["429", "quota"]:
                self._fail(path, 429, {}, code="insufficient_quota")
            case [status, "twice"] if attempt <= 2:
                self._fail(path, int(status), {})
            case [status] if status.isdigit():
                self._fail(path, int(status), {})
            case ["hang"]:
                self.server.faults.stopping.wait(30)
                self.close_connection = True
            case ["drip"]:
                self._drip(good)
            case ["reset"]:
                self._reset()
            case ["cut"]:
                self._start(200, len(good))
                self.wfile.write(good[:40])
                self.close_connection = True
            case ["bad", "json"]:
                self._send(200, b'{"choices": [')
            case ["html"]:
                self._send(200, b"<html><body>502 Bad gateway</body></html>", {"content-type": "text/html"})
            case ["list", status]:
                self._send(int(status), b"[" * 5000, {"retry-after": "2"})
            case ["html", status]:
                self._send(int(status), b"<html>" + b"sorry " * 500, {"content-type": "text/html"})
            case ["list"]:
                self._send(200, b"[]")
            case ["empty", "body"]:
                self._send(200, b"")
            case ["no", "content"]:
                self._send(200, json.dumps(answer_body(path, "")).encode())
            case ["no", "choices"]:
                self._send(200, json.dumps(_without_answer(path)).encode())
            case ["no", "usage"]:
                self._send(200, json.dumps(_without_usage(path)).encode())
            case ["truncated"]:
                self._send(200, json.dumps(_truncated(path)).encode())
            case ["endless"]:
                self._endless()
            case ["bomb"]:
                self._send(200, _bomb(), {"content-encoding": "gzip"})
            case ["packed", encoding]:
                self._send(200, gzip.compress(good), {"content-encoding": encoding})
            case ["redirect", status, port]:
                elsewhere = f"http://me:hunter2@127.0.0.1:{port}/ok{path}?key=hidden"
                self._send(int(status), b"", {"location": elsewhere})
            case ["usage", number]:
                self._send(200, json.dumps(_with_counts(path, ODD_COUNTS[int(number)])).encode())
            case ["echo"]:
                self._send(200, json.dumps(answer_body(path, self._echoed())).encode())
            case ["picky", *parts] if part := refused_of(faults.received[-1].body, parts):
                error = {"message": REFUSALS[part], "type": "invalid_request_error", "param": part}
                self._send(400, json.dumps({"error": error if "/api/" not in path else error["message"]}).encode())
            case ["refusal"]:
                self._send(200, json.dumps(_refusal(path)).encode())
            case _:
                self._send(200, good)

    def _start(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(length))
        self.end_headers()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._start(status, len(body), headers)
        self.wfile.write(body)

    def _fail(self, path: str, status: int, headers: dict[str, str], code: str = "") -> None:
        message = f"injected {status} for key {self.headers.get('authorization', '')}"
        error: dict[str, Any] = {"type": "api_error", "message": message, **({"code": code} if code else {})}
        body = {"error": message if path.endswith("/api/chat") else error}
        self._send(status, json.dumps(body).encode(), headers)

    def _endless(self) -> None:
        """Send an answer that has no end, as fast as it is taken."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.faults.stopping.is_set():
                self.wfile.write(b" " * (1 << 20))
                self.server.faults.sent_mib += 1
        self.close_connection = True

    def _echoed(self) -> str:
        """Return a reply that holds the key it was asked with, wherever a reply has room."""
        key = self.headers.get("authorization", "")
        encoded = base64.b64encode(key.removeprefix("Bearer ").encode()).decode()
        payload = {"text": key, "quoted": quote(key), "base64": encoded, key: [key]}
        reply = {
            "outbox_entries": [{"kind": "message", "payload": payload, "tags": [key[:60]]}],
            "tool_calls": [{"tool": "memory_write", "args": {"key": "told", "value": key}}],
            "memory_updates": [{"key": "seen", "value": key}],
            "notes": key,
        }
        return json.dumps(reply)

    def _drip(self, body: bytes) -> None:
        """Send a good answer so slowly that no read ever times out."""
        self._start(200, len(body))
        for position in range(len(body)):
            if self.server.faults.stopping.wait(_BYTE_EVERY_S):
                break
            self.wfile.write(body[position : position + 1])
        self.close_connection = True

    def _reset(self) -> None:
        """Close the connection so that the other side gets a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.faults.connections.discard(self.connection)
        os.close(self.connection.detach())
        self.close_connection = True


REFUSALS = {
    "json_schema": "'response_format' of type 'json_schema' is not supported with this model.",
    "json_object": "This response_format type is unavailable now",
    "output_config": "output_config: Extra inputs are not permitted",
    "format": "json: cannot unmarshal object into Go struct field ChatRequest.format of type string",
    "seed": "Unknown parameter: 'seed'.",
    "prompt_cache_key": "Unrecognized request argument supplied: prompt_cache_key",
    "temperature": "Unsupported value: 'temperature' does not support 0.2 with this model.",
    "max_completion_tokens": "body.max_completion_tokens: Extra inputs are not permitted",
}


def refused_of(body: dict[str, Any], parts: list[str]) -> str:
    """Return the first of the parts that a request has and that a picky server does not take."""
    wanted = body.get("response_format") or body.get("text", {}).get("format") or {}
    has = {**body, str(wanted.get("type")): True}
    return next((part for part in parts if has.get(part) is not None), "")


def answer_body(path: str, text: str) -> dict[str, Any]:
    """Return a good answer in the API's own form, with the same usage: 11 in, 3 of them cached, 7 out."""
    if path.endswith("/chat/completions"):
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        return {"id": "c1", "object": "chat.completion", "model": "served", "choices": [choice], "usage": usage}
    if path.endswith("/responses"):
        parts = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        items = [
            {"type": "reasoning", "id": "rs1", "summary": []},
            {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": parts},
        ]
        usage = {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        }
        return {"id": "r1", "status": "completed", "model": "served", "output": items, "usage": usage}
    if path.endswith("/messages"):
        blocks = [{"type": "text", "text": text}] if text else []
        usage = {"input_tokens": 8, "output_tokens": 7, "cache_read_input_tokens": 3}
        return {
            "id": "msg1",
            "type": "message",
            "role": "assistant",
            "model": "served",
            "content": blocks,
            "stop_reason": "end_turn",
            "usage": usage,
        }
    return {
        "model": "served",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text or None},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 11,
        "eval_count": 7,
    }


def _without_answer(path: str) -> dict[str, Any]:
    body = answer_body(path, ANSWER)
    if "choices" in body:
        return {**body, "choices": []}
    return {name: value for name, value in body.items() if name not in ("output", "content", "message")}


def _without_usage(path: str) -> dict[str, Any]:
    body = answer_body(path, ANSWER)
    return {name: value for name, value in body.items() if name not in ("usage", "prompt_eval_count", "eval_count")}


ODD_COUNTS: list[Any] = [1.5, -3, 1 << 80, "12", None, [7], {"n": 7}, True, 1e400]


def _with_counts(path: str, count: Any) -> dict[str, Any]:
    """Return a good answer whose counts, and the rest that is beside the point, are odd."""
    body = answer_body(path, ANSWER)
    odd = {"model": 7, "id": 7, "stop_reason": 7, "done_reason": 7}
    counted = {name: count for name in body if name.endswith("_count")}
    if counted:
        counted |= {"total_duration": count, "eval_duration": count, "logprobs": count, "created_at": count}
    usage = dict.fromkeys(body.get("usage", {}), count) or count
    return {**body, **(odd if count == 1.5 else {}), **(counted or {"usage": usage})}


@cache
def _bomb() -> bytes:
    """Return 256 MiB of spaces in 256 kB."""
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(b" " * (1 << 20)) for _ in range(1 << 8)]
    return b"".join([*packed, packer.flush()])


def _truncated(path: str) -> dict[str, Any]:
    body = answer_body(path, ANSWER[:30])
    if "choices" in body:
        body["choices"][0]["finish_reason"] = "length"
    elif "output" in body:
        body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    elif "content" in body:
        body["stop_reason"] = "max_tokens"
    else:
        body["done_reason"] = "length"
    return body


def _refusal(path: str) -> dict[str, Any]:
    body = answer_body(path, "")
    if "choices" in body:
        body["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "I would rather not."}
    elif "output" in body:
        body["output"][1]["content"] = [{"type": "refusal", "refusal": "I would rather not."}]
    elif "content" in body:
        body["stop_reason"] = "refusal"
    return body
