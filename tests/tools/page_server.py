"""A web server on the loopback interface that answers well, or as badly as it is asked to."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Pages:
    """What the server was asked: method and path, headers, body. `pages` are what it gives, by path."""

    port: int = 0
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def put(self, path: str, body: bytes, kind: str = "text/plain", status: int = 200, **more: str) -> None:
        self.pages[path] = (status, {"Content-Type": kind, **{k.replace("_", "-"): v for k, v in more.items()}}, body)


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        pages: Pages = self.server.pages
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        pages.asked.append((f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()}, body))
        if self.path == "/silent":
            pages.over.wait(20)
            return
        if self.path == "/gone":
            self.connection.close()
            return
        if self.path == "/drip":
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
                while not pages.over.wait(0.05):
                    self.wfile.write(b"x")
                    self.wfile.flush()
            return
        status, headers, content = pages.pages.get(self.path, (404, {"Content-Type": "text/plain"}, b"no such page"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what this server is for."""


@contextlib.contextmanager
def serving() -> Iterator[Pages]:
    pages = Pages()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.pages = pages  # type: ignore[attr-defined]
    pages.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield pages
    finally:
        pages.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def bomb(mib: int) -> bytes:
    """Return so many MiB of zeros, packed."""
    return gzip.compress(b"\0" * (mib << 20))
