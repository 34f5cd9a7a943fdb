"""A server that keeps its answer back until the test lets it go."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass, field

from loopback import Loopback, Quiet
from native_server import chat, ollama
from patience import PATIENCE_S


@dataclass
class HeldServer(Loopback):
    """The server, from `start` to `stop`. `came` gets the path of each request, `release` lets answers go."""

    came: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    release: threading.Event = field(default_factory=threading.Event)


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        held = self.server.owner
        self.rfile.read(int(self.headers["content-length"]))
        held.came.put(self.path)
        held.release.wait(PATIENCE_S)
        answer = ollama("fine") if self.path == "/api/chat" else chat("fine")
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HeldServer.handler = _Handler
