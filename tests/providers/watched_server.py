"""A server whose connections are watched: how many there are, what comes over them, and when they end."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from fault_server import ANSWER, answer_body
from loopback import Loopback, Quiet


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class WatchedServer(Loopback):
    """The server, from `start` to `stop`.

    `connections` counts those that were made, `most` is how many requests there were at once; each waits for
    `may_answer`. `closes`: whether each
    connection is closed after its answer, which does not say so. `headers`: further ones of each answer.
    """

    closes: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    connections: int = 0
    most: int = 0
    under_way: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    came: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    left: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=_set_event)


class _Handler(Quiet):
    def setup(self) -> None:
        super().setup()
        self.server.owner.connections += 1

    def finish(self) -> None:
        super().finish()
        self.server.owner.left.set()

    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        watched = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        watched.requests.append((self.path, headers, body))
        with watched.counting:
            watched.under_way += 1
            watched.most = max(watched.most, watched.under_way)
        watched.came.release()
        watched.may_answer.wait()
        with watched.counting:
            watched.under_way -= 1
        answer = json.dumps(answer_body(self.path, ANSWER)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        for name, value in watched.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = watched.closes


WatchedServer.handler = _Handler
