"""The HTTP half of the model gateway: it reads requests of a worker, who may send anything, and writes answers."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from lemming.kernel.base.integers import parse_int

MAX_BODY_BYTES = 64 << 20
"""Maximum bytes of a request, and of an answer that is not streamed."""

_MAX_CONNECTIONS = 64
_CLIENT_TIMEOUT_S = 60.0


class RefusedRequest(Exception):
    """Raised for a request that is not passed on, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GatewayRequest(BaseHTTPRequestHandler):
    """One connection of a worker. Each connection carries one request."""

    protocol_version = "HTTP/1.1"
    timeout = _CLIENT_TIMEOUT_S
    answer: Callable[[GatewayRequest], None]
    """Function that answers a request; set by `serve_requests`."""

    has_begun = False
    """True once a part of the answer was sent."""

    def do_GET(self) -> None:
        """Answer a request for the list of models."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a request to a model."""
        self._answer()

    def do_HEAD(self) -> None:
        """Tell that a server is there, as some harnesses ask first."""
        self.send_whole(200, {}, b"")

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: a request line may hold a key."""

    def _answer(self) -> None:
        # The worker may go away at any moment.
        with contextlib.suppress(ConnectionError, TimeoutError):
            type(self).answer(self)

    def read_object(self) -> dict[str, Any]:
        """Return the body. Raises `RefusedRequest` for anything but a JSON object of bounded length."""
        length = parse_int(self.headers.get("content-length") or "")
        if length is None or self.headers.get("content-encoding", "identity") != "identity":
            raise RefusedRequest(411, "a request must have a content-length and no content-encoding")
        if length > MAX_BODY_BYTES:
            raise RefusedRequest(413, f"a request must have at most {MAX_BODY_BYTES} bytes, got {length}")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "a request must be JSON") from error
        if not isinstance(body, dict):
            raise RefusedRequest(400, f"a request must be a JSON object, got {type(body).__name__}")
        return body

    def send_whole(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Send an answer of known length."""
        self._begin(status, {**headers, "content-length": str(len(content))})
        self.wfile.write(content)

    def begin_stream(self, status: int, headers: dict[str, str]) -> None:
        """Send the head of an answer whose chunks follow."""
        self._begin(status, {**headers, "transfer-encoding": "chunked"})

    def send_chunk(self, chunk: bytes) -> None:
        """Send a chunk; an empty one is the end of the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.has_begun = True
        self.send_response_only(status)
        for name, value in {**headers, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True


class _BoundedThreads(socketserver.ThreadingMixIn):
    """Threads for connections, of which a worker cannot open more than so many."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it beyond the limit."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)  # type: ignore[attr-defined]

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection on its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the errors of a connection are its worker's."""


class _UnixServer(_BoundedThreads, socketserver.UnixStreamServer):
    """The gateway of a sandbox."""

    request_queue_size = 128


class _TcpServer(_BoundedThreads, socketserver.TCPServer):
    """The gateway of a worker without a sandbox."""

    request_queue_size = 128


@contextlib.contextmanager
def serve_requests(answer: Callable[[GatewayRequest], None], socket: Path | None) -> Iterator[int]:
    """Answer requests on a Unix socket, or on a port of loopback, which is yielded (0 for a Unix socket)."""
    handler = type("BoundRequest", (GatewayRequest,), {"answer": answer})
    server: socketserver.BaseServer
    if socket is None:
        tcp_server = _TcpServer(("127.0.0.1", 0), handler)
        server, port = tcp_server, tcp_server.server_address[1]
    else:
        server, port = _UnixServer(str(socket), handler), 0
    threading.Thread(target=server.serve_forever, args=(0.05,), name="model-gateway", daemon=True).start()
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
