"""An HTTP server of the standard library on a thread of its own, for the length of a block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from lemming.capabilities.background.connections import BoundedServer
from lemming.capabilities.background.threads import keep_alive
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath

Server = TypeVar("Server", bound=BoundedServer)
_LOOK_S = 0.1  # how long it may take until the end of a block is noticed


def bound(make: Callable[[tuple[str, int]], Server], host: str, port: int) -> Server:
    """Return a server that has its port (0: any that is free); raise `UsageError` where it cannot be had."""
    try:
        return make((host, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "name another port, or 0 for any that is free"
        raise UsageError(f"cannot listen on {host}:{port}: {why}", hint=hint) from error


@contextlib.contextmanager
def answering(server: BoundedServer, base: OrgPath, name: str) -> Iterator[int]:
    """Answer for the length of the block, on a thread of this name; give the port."""
    over = threading.Event()
    keep_alive(partial(server.serve_forever, _LOOK_S), name=name, base=base, over=over)
    try:
        yield int(server.server_address[1])
    finally:
        over.set()
        server.shutdown()
        server.server_close()
