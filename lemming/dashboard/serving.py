"""The page's server on a thread of its own, for the length of a block."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.capabilities.background.connections import make_server_config, serve_socket
from lemming.capabilities.background.threads import keep_alive
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import UsageError

if TYPE_CHECKING:
    import asyncio

HOST = "127.0.0.1"
USUAL_PORT = 8421
BEGINS_WITHIN_S, ENDS_WITHIN_S = 30.0, 10.0


@contextlib.contextmanager
def page_of(
    base: Path,
    *,
    port: int | None = None,
    person: str | None = None,
    is_read_only: bool = False,
    token: str = "",
    usual: int = USUAL_PORT,
    is_kept: bool = False,
) -> Iterator[str]:
    """Serve the page for the length of the block; give its address, which has the token.

    `port` 0: any that is free; None: the `usual` one, or any. `is_kept`: the token holds after a restart.
    Raises `UsageError` where it cannot be had.
    """
    token = token or secrets.token_urlsafe(24)
    listening = _bound(port, usual)
    page = {"is_read_only": is_read_only, "person": person or "", "is_kept": is_kept}
    server = _Server(base, token, page)
    over = threading.Event()
    thread = keep_alive(lambda: server.run(listening), name="lemming-dash", base=base, over=over)
    try:
        server.wait_until_it_answers(thread)
        yield f"http://{HOST}:{listening.getsockname()[1]}/?token={token}"
    finally:
        over.set()
        server.stop()
        thread.join(ENDS_WITHIN_S)
        listening.close()  # which a server that never began has not done


class _Server:
    def __init__(self, base: Path, token: str, page: dict[str, Any]) -> None:
        import uvicorn

        from lemming.dashboard.live import Live
        from lemming.dashboard.server import make_app

        self._live = Live(base, page)
        app = make_app(
            self._live, token=token, person=page["person"] or None, is_read_only=page["is_read_only"]
        )
        config = make_server_config(app, lifespan="off", server_header=False, ws="none")
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None  # until it runs

    def run(self, listening: socket.socket) -> None:
        import asyncio

        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        await serve_socket(self._server, listening)

    def wait_until_it_answers(self, thread: threading.Thread) -> None:
        deadline = Deadline(BEGINS_WITHIN_S)
        while not self._server.started and thread.is_alive() and not deadline.has_passed:
            time.sleep(0.005)

    def stop(self) -> None:
        import asyncio

        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                asyncio.run_coroutine_threadsafe(self._live.close(), self._loop)
        self._server.should_exit = True


def _bound(port: int | None, usual: int = USUAL_PORT) -> socket.socket:
    """Return a socket that has the port."""
    if port is None:
        with contextlib.suppress(UsageError):
            return _bound(usual)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port or 0))
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        hint = "name another port, or 0 for any that is free"
        raise UsageError(f"cannot listen on {HOST}:{port}: {why}", hint=hint) from error
    return listening
