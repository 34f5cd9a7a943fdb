"""The page's server on a dedicated thread, for the length of a block."""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from lemming.kernel.base.errors import UsageError
from lemming.libraries.concurrency.http_server import ServerLimits, bind_port, serve_in_thread

HOST = "127.0.0.1"
USUAL_PORT = 8421


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
    from lemming.dashboard.live_state import LiveState
    from lemming.dashboard.routes import make_app

    token = token or secrets.token_urlsafe(24)
    listener = _bind_port(port, default_port)
    live = LiveState(base, {"is_read_only": is_read_only, "person": person or "", "is_kept": is_token_stored})
    app = make_app(live, token=token, person=person or None, is_read_only=is_read_only)
    limits = ServerLimits(answer_s=math.inf)  # the stream of a page lasts as long as its tab
    with serve_in_thread(app, listener, name="lemming-dash", base=base, limits=limits, close=live.close) as bound_port:
        yield f"http://{HOST}:{bound_port}/?token={token}"


def _bind_port(port: int | None, default_port: int) -> socket.socket:
    """Return a socket on the port; without a port, on the default or else any free port."""
    if port is None:
        with contextlib.suppress(UsageError):
            return bind_port(HOST, default_port)
    return bind_port(HOST, port or 0)
