"""Recording proxy on loopback in front of a model server: counts calls and stores the replies.

A recording is JSON Lines. Each line holds the `side`, the `turn`, the `number` of the call in the turn, the
`request`, the server's `status` and `reply`, and the duration in `seconds`. A literally equal request is
answered from the recording.
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
    """A model call of a turn with the server's reply. `number` counts the calls of the turn from 0."""

    side: str
    turn: str
    number: int
    request: Json
    status: int = 0
    reply: Json | None = None
    seconds: float = 0.0

    @property
    def usage(self) -> tuple[int, int, int]:
        """Input tokens, cached input tokens and output tokens, as counted by the server."""
        usage = (self.reply or {}).get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return usage.get("prompt_tokens") or 0, cached, usage.get("completion_tokens") or 0

    @property
    def key(self) -> str:
        """The request as a canonical text."""
        return json.dumps(self.request, sort_keys=True)


Answer = Callable[[Question], Question]
"""Returns a question with status, reply and seconds filled in."""


class Recorder:
    """The proxy as a context manager: `url` replaces the model server's address."""

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
        """Set the side and the turn of the following calls."""
        self._side, self._turn, self.questions = side, turn, []

    def ask(self, request: Json) -> Question:
        """Answer a call and store the answer."""
        with self._lock:
            question = Question(self._side, self._turn, len(self.questions), request)
            self.questions.append(question)  # numbered before it is asked
        answered = self._answer(question)
        self.questions[question.number] = answered
        return answered


class Recording:
    """Client of a model server with a recording: known calls need no server, and new answers are appended.

    `key_env` names the environment variable with the server's key; without `key_env` no key is sent.
    """

    def __init__(self, server: str, file: Path | None = None, key_env: str = "") -> None:
        self._call, self._file = f"{server.rstrip('/')}/chat/completions", file
        self._headers = {"content-type": "application/json"}
        if key_env:
            self._headers["authorization"] = f"Bearer {os.environ[key_env]}"
        lines = file.read_text().splitlines() if file and file.exists() else []
        recorded = [Question(**json.loads(line)) for line in lines]
        self._recorded = {question.key: question for question in recorded}
        self.path = urlsplit(server).path.rstrip("/")

    def __call__(self, question: Question) -> Question:
        """Return the call with its answer."""
        if recorded := self._recorded.get(question.key):
            return replace(question, status=recorded.status, reply=recorded.reply, seconds=recorded.seconds)
        start_time = time.monotonic()
        status, reply = self._post(question.request)
        answered = replace(question, status=status, reply=reply, seconds=time.monotonic() - start_time)
        if status < 500:  # a server that is down will answer another time
            self._recorded[question.key] = answered
            self._append(answered)
        return answered

    def _post(self, request: Json) -> tuple[int, Json]:
        """Post a request and return status and JSON of the reply."""
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
    """Return the name of the first model of a server."""
    headers = {"authorization": f"Bearer {os.environ[key_env]}"} if key_env else {}
    http = urllib.request.Request(f"{server.rstrip('/')}/models", headers=headers)
    with urllib.request.urlopen(http, timeout=60) as response:
        return str(json.load(response)["data"][0]["id"])
