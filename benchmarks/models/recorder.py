"""A server on loopback that stands before a model server, counts what it is asked, and keeps the replies.

A recording is JSON Lines: for each question the `side` that asked it, the `turn` and the number of the
question in it, the `request`, the `status` and `reply` of the server, and the `seconds` that it took. What
was asked before, to the letter, is answered from the recording.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Question:
    """A question of a turn, and the server's reply. `number` counts the questions of the turn from 0."""

    side: str
    turn: str
    number: int
    request: Json
    status: int = 0
    reply: Json | None = None
    seconds: float = 0.0

    @property
    def usage(self) -> tuple[int, int, int]:
        """The tokens in, those of them that were cached, and the tokens out, as the server counts them."""
        usage = (self.reply or {}).get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return usage.get("prompt_tokens") or 0, cached, usage.get("completion_tokens") or 0

    @property
    def key(self) -> str:
        """The request as one text: the same for the same request."""
        return json.dumps(self.request, sort_keys=True)


Answer = Callable[[Question], Question]
"""Returns a question with status, reply and seconds filled in."""


class Recorder:
    """The server on loopback, as a context: `url` takes the place of the model server's address."""

    def __init__(self, answer: Answer, path: str = "/v1") -> None:
        self.questions: list[Question] = []
        """The questions since `begin` was called last."""
        self._answer, self._side, self._turn = answer, "", ""
        self._lock = threading.Lock()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Answer a question."""
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                question = recorder.ask(request)
                self.send_json(question.status, question.reply or {})

            def do_GET(self) -> None:
                """Say that there is nothing to read: no list of models, no settings of the server."""
                self.send_json(404, {"error": {"message": "not recorded", "type": "not_found"}})

            def send_json(self, status: int, value: Json) -> None:
                """Send a JSON value."""
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def __enter__(self) -> Recorder:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def begin(self, side: str, turn: str) -> None:
        """Note who plays which turn from now on."""
        self._side, self._turn, self.questions = side, turn, []

    def ask(self, request: Json) -> Question:
        """Answer a question and keep it."""
        with self._lock:
            question = Question(self._side, self._turn, len(self.questions), request)
            self.questions.append(question)  # numbered before it is asked
        answered = self._answer(question)
        self.questions[question.number] = answered
        return answered


class Recording:
    """Asks a server at an address, or nobody where the recording has the answer; new answers are appended.

    `key_env` names the variable with the key for the server; without it no key is sent.
    """

    def __init__(self, server: str, file: Path | None = None, key_env: str = "") -> None:
        self._call, self._file = f"{server.rstrip('/')}/chat/completions", file
        self._headers = {"content-type": "application/json"}
        if key_env:
            self._headers["authorization"] = f"Bearer {os.environ[key_env]}"
        lines = file.read_text().splitlines() if file and file.exists() else []
        known = [Question(**json.loads(line)) for line in lines]
        self._known = {question.key: question for question in known}
        self.path = urlsplit(server).path.rstrip("/")

    def __call__(self, question: Question) -> Question:
        """Return the question with its answer."""
        if known := self._known.get(question.key):
            return replace(question, status=known.status, reply=known.reply, seconds=known.seconds)
        began = time.monotonic()
        status, reply = self._post(question.request)
        answered = replace(question, status=status, reply=reply, seconds=time.monotonic() - began)
        if status < 500:  # a server that is down will answer another time
            self._known[question.key] = answered
            self._append(answered)
        return answered

    def _post(self, request: Json) -> tuple[int, Json]:
        """Return the status and the JSON of the server's reply."""
        http = urllib.request.Request(self._call, json.dumps(request).encode(), self._headers)
        try:
            with urllib.request.urlopen(http, timeout=DEADLINE_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            return error.code, {"error": {"message": text[:2000], "type": "server"}}
        except OSError as error:
            return 503, {"error": {"message": str(error), "type": "unreachable"}}

    def _append(self, question: Question) -> None:
        if self._file:
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(question), ensure_ascii=False) + "\n")


def find_model(server: str, key_env: str = "") -> str:
    """Return the name of the first model that a server lists."""
    headers = {"authorization": f"Bearer {os.environ[key_env]}"} if key_env else {}
    http = urllib.request.Request(f"{server.rstrip('/')}/models", headers=headers)
    with urllib.request.urlopen(http, timeout=60) as response:
        return str(json.load(response)["data"][0]["id"])
