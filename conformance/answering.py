"""Model server of the suite: receives every model call of an engine, may inspect the folder, and answers."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = Path(__file__).with_name("model.py")


@dataclass(frozen=True)
class Call:
    """A call of a model: agent, tick, number within the turn (from 0), and the prompt's values.

    A repeated prompt, for example after a crash, is the same call with the same number.
    """

    agent: str
    tick: int
    number: int
    values: dict[str, Any]

    @property
    def turn(self) -> tuple[int, str]:
        """The turn of the call: tick and agent."""
        return self.tick, self.agent

    def get_texts(self, key: str) -> list[str]:
        """Return the texts of the entries under `inbox`, `known` or `own`."""
        return [entry["payload"].get("text", "") for entry in self.values[key]]


Answer = Callable[[Call], "dict[str, Any] | str"]


def make_reply(*texts: str, **parts: Any) -> dict[str, Any]:
    """Return a reply with a message for each text; `parts` are further keys of the contract."""
    entries = [{"kind": "message", "payload": {"text": text}, "tags": []} for text in texts]
    return {"outbox_entries": entries, **parts}


class ModelServer:
    """A local server with the models of an organisation and a record of all calls."""

    def __init__(self, answer: Answer) -> None:
        """Start the server. The engine waits while `answer` runs."""
        self.calls: list[Call] = []
        self.problems: list[str] = []
        self.answer, self._lock = answer, threading.Lock()
        self._prompts: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._make_handler_class())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def command(self) -> list[str]:
        """The command with which an engine calls this model."""
        return [sys.executable, "-I", "-S", str(MODEL), str(self._server.server_address[1])]

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _make_handler_class(self) -> type[socketserver.StreamRequestHandler]:
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                """Answer a call; a killed client is ignored."""
                try:
                    self.wfile.write(outer._answer_prompt(self.rfile.read().decode()).encode())
                except OSError:
                    return

        return Handler

    def _answer_prompt(self, prompt: str) -> str:
        try:
            values, _ = json.JSONDecoder().raw_decode(prompt)
            turn = values["tick"], values["agent"]["name"]
        except (ValueError, KeyError, TypeError):
            self.problems.append(f"a prompt that is not the turn's values: {prompt[:200]!r}")
            return ""
        with self._lock:
            prompts = self._prompts[turn]
            if prompt not in prompts:
                prompts.append(prompt)
            call = Call(turn[1], turn[0], prompts.index(prompt), values)
            self.calls.append(call)
        reply = self.answer(call)
        return reply if isinstance(reply, str) else json.dumps(reply)
