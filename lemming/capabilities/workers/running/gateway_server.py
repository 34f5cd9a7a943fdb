"""The HTTP half of the model gateway: it reads requests of a worker, who may send anything, and writes answers."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lemming.kernel.base.integers import parse_int
from lemming.libraries.concurrency.connection_limits import BoundedHandler, BoundedServer


class RefusedRequest(Exception):
    """Raised for a request that is not passed on, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GatewayRequest(BoundedHandler):
    """One connection of a worker, which carries one request.

    `answer`: function that answers it. `has_begun`: a part of the answer was sent. `max_bytes`: limit for a request, and
    for an answer that is not streamed.
    """

    protocol_version = "HTTP/1.1"
    timeout = 60.0
    answer: Callable[[GatewayRequest], None]
    has_begun = False
    max_bytes = 64 << 20

    def _answer(self) -> None:
        self._extend_deadline(math.inf, has_full_request=True)  # the run has deadlines of its own
        with contextlib.suppress(ConnectionError, TimeoutError):  # the worker may go away at any moment
            type(self).answer(self)

    do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

    def do_HEAD(self) -> None:  # noqa: N802
        """Tell that a server is there, as some harnesses ask first."""
        self.send_head(200, {"content-length": "0"})

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: a request line may hold a key."""

    def read_object(self) -> dict[str, Any]:
        """Return the body. Raises `RefusedRequest` for anything but a JSON object of bounded length."""
        length = parse_int(self.headers.get("content-length") or "")
        if length is None or self.headers.get("content-encoding", "identity") != "identity":
            raise RefusedRequest(411, "a request must have a content-length and no content-encoding")
        if length > self.max_bytes:
            raise RefusedRequest(413, f"a request must have at most {self.max_bytes} bytes, got {length}")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "a request must be JSON") from error
        if not isinstance(body, dict):
            raise RefusedRequest(400, f"a request must be a JSON object, got {type(body).__name__}")
        return body

    def send_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer, without a length: chunks follow."""
        self.has_begun = self.close_connection = True
        self.send_response_only(status)
        length = {} if "content-length" in headers else {"transfer-encoding": "chunked"}
        for name, value in {**headers, **length, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_chunk(self, chunk: bytes) -> None:
        """Send a chunk; an empty one is the end of the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))


class _GatewayServer(BoundedServer):
    def __init__(self, path: Path | None, handler: type[GatewayRequest]) -> None:
        self.address_family = socket.AF_UNIX if path else socket.AF_INET
        super().__init__(str(path) if path else ("127.0.0.1", 0), handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # a Unix socket has no port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the errors of a connection are its worker's."""


@contextlib.contextmanager
def serve_requests(answer: Callable[[GatewayRequest], None], path: Path | None) -> Iterator[int]:
    """Answer requests on a Unix socket, or on a port of loopback, which is yielded (0 for a Unix socket)."""
    handler = type("BoundRequest", (GatewayRequest,), {"answer": answer})
    server = _GatewayServer(path, handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), name="model-gateway", daemon=True).start()
    try:
        yield 0 if path else server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
