"""A server that counts tokens: it knows the paths that a test gives it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from loopback import Loopback, Quiet

Json = dict[str, Any]


@dataclass
class CountingServer(Loopback):
    """A server that knows some paths; what it says of each is what the test says."""

    paths: Json = field(default_factory=dict)
    received: list[tuple[str, Json]] = field(default_factory=list)

    def asked(self, path: str) -> Json:
        """Return the body that came to a path last."""
        return next(body for at, body in reversed(self.received) if at == path)


class _Handler(Quiet):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it so
        owner = self.server.owner
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        owner.received.append((self.path, body))
        said = owner.paths.get(self.path)
        answer = said(body) if callable(said) else said
        plain = {"error": {"message": "no such path"}} if answer is None else answer
        raw = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


CountingServer.handler = _Handler
