"""A server on loopback, from `start` to `stop`: what the servers of these tests have in common."""

from __future__ import annotations

import contextlib
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import certifi
import pytest


class Loopback:
    """Listens on a free port; `handler` answers, and finds this in `self.server.owner`."""

    handler: type[BaseHTTPRequestHandler]

    def __post_init__(self) -> None:
        self._http = _Server(("127.0.0.1", 0), self.handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def secure(self, context: ssl.SSLContext) -> None:
        """Have it speak TLS, before it starts."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    owner: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that were cut: that is what some of these tests are about."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Quiet(BaseHTTPRequestHandler):
    """A handler that keeps connections and says nothing."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def one_certificate(folder: Path) -> Iterator[None]:
    """Loopback needs no certificates, and each client takes 30 ms to load all that there are."""
    first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
    (folder / "one.pem").write_text(f"{first}{end}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "one.pem"))
        yield
