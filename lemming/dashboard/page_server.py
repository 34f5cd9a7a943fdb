"""The page's server on a dedicated thread, for the length of a block."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import UsageError
from lemming.libraries.concurrency.connection_limits import make_server_config, serve_socket
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread

if TYPE_CHECKING:
    import asyncio

HOST = "127.0.0.1"
USUAL_PORT = 8421
BEGINS_WITHIN_S, ENDS_WITHIN_S = 30.0, 10.0


@contextlib.contextmanager
def serve_page(
    base: Path,
    *,
    port: int | None = None,
    person: str | None = None,
    is_read_only: bool = False,
    token: str = "",
    default_port: int = USUAL_PORT,
    is_token_stored: bool = False,
) -> Iterator[str]:
    """Serve the page for the length of the block and yield the page's address with the token.

    With `port` 0 any free port is used; with None the port `default_port`, or any free port. `is_token_stored`: the
    token stays valid after a restart. Raises: UsageError if the port is not available.
    """
    token = token or secrets.token_urlsafe(24)
    listening = _bind_port(port, default_port)
    page = {"is_read_only": is_read_only, "person": person or "", "is_kept": is_token_stored}
    server = _PageServer(base, token, page)
    stopped = threading.Event()
    thread = start_supervised_thread(lambda: server.run(listening), name="lemming-dash", base=base, stopped=stopped)
    try:
        server.wait_until_ready(thread)
        yield f"http://{HOST}:{listening.getsockname()[1]}/?token={token}"
    finally:
        stopped.set()
        server.stop()
        thread.join(ENDS_WITHIN_S)
        listening.close()  # a server that never started has not closed the socket


class _PageServer:
    def __init__(self, base: Path, token: str, page: dict[str, Any]) -> None:
        import uvicorn

        from lemming.dashboard.live_state import LiveState
        from lemming.dashboard.routes import make_app

        self._live = LiveState(base, page)
        app = make_app(self._live, token=token, person=page["person"] or None, is_read_only=page["is_read_only"])
        config = make_server_config(app, lifespan="off", server_header=False, ws="none")
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None  # set when the server runs

    def run(self, listening: socket.socket) -> None:
        import asyncio

        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        await serve_socket(self._server, listening)

    def wait_until_ready(self, thread: threading.Thread) -> None:
        deadline = Deadline(BEGINS_WITHIN_S)
        while not self._server.started and thread.is_alive() and not deadline.has_passed:
            time.sleep(0.005)

    def stop(self) -> None:
        import asyncio

        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                asyncio.run_coroutine_threadsafe(self._live.close(), self._loop)
        self._server.should_exit = True


def _bind_port(port: int | None, default_port: int = USUAL_PORT) -> socket.socket:
    """Return a socket bound to the port."""
    if port is None:
        with contextlib.suppress(UsageError):
            return _bind_port(default_port)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port or 0))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        hint = "choose another port, or 0 for a free port"
        raise UsageError(f"cannot listen on {HOST}:{port}: {reason}", hint=hint) from error
    return listening
