"""Callers of the HTTP server of `lemming channels serve`, and one that entries are sent to."""

from __future__ import annotations

import hmac
import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from patience import PATIENCE_S

from lemming.capabilities.channels.channel_gateway import ReportProblem
from lemming.capabilities.channels.channel_service import run_channel_server

SECRET, TOKEN = "whsec_" + b64encode(b"a secret of the sender").decode(), "a-long-token-of-ours"


class Answer(NamedTuple):
    """What the server said."""

    status: int
    facts: Any
    headers: dict[str, str]


class Caller:
    """Somebody who asks the server on a port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def call(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        return Answer(answer.status, json.loads(raw), {name.lower(): value for name, value in answer.getheaders()})

    def hook(self, body: bytes, *, ident: str = "m-1", at: float | None = None, **headers: str) -> Answer:
        """Send a Standard Webhook."""
        when = str(int(time.time() if at is None else at))
        digest = hmac.new(b"a secret of the sender", f"{ident}.{when}.".encode() + body, sha256).digest()
        signed = {
            "webhook_id": ident,
            "webhook_timestamp": when,
            "webhook_signature": f"v1,{b64encode(digest).decode()}",
        }
        return self.call("POST", "/hooks/door", body, **{**signed, **headers})

    def ask(self, **question: Any) -> Answer:
        return self.call("POST", "/ask", json.dumps(question).encode(), Authorization=f"Bearer {TOKEN}")

    def request(self, href: str) -> Answer:
        return self.call("GET", href, Authorization=f"Bearer {TOKEN}")


@contextmanager
def served(base: Path, tell: ReportProblem = lambda _: None) -> Iterator[Caller]:
    """Serve the channels of an organisation for the length of the block."""
    with run_channel_server(base, port=0, stop=threading.Event(), report=tell) as found:
        yield Caller(found.port)


class Receiver(NamedTuple):
    """A server that entries are sent to: what came, and what it answers."""

    port: int
    came: list[tuple[dict[str, str], Any]]
    answers: list[int]


@contextmanager
def receiver(*answers: int, heard: Callable[[], object] = bool) -> Iterator[Receiver]:
    """Listen for entries; `answers` are the statuses of the first, then 204. `heard` is called at each."""
    came: list[tuple[dict[str, str], Any]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
            self.send_response(left.pop(0) if left else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()
            heard()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield Receiver(server.server_address[1], came, left)
        server.shutdown()
        thread.join()
