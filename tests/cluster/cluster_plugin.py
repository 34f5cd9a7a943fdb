"""Providers for tests of the cluster.

This is a plugin, so that a worker has to import it as the engine does.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from lemming.kernel.providers import Backend, Reply, Request, register_provider


class FatalProvider(Backend):
    """Notes each call in `asked`, writes its process id into the pipe `told`; the first waits for `go`."""

    keeps_deadline = True

    def __init__(self, *, base: Path) -> None:
        self._base = base

    def complete(self, request: Request) -> Reply:
        is_first = self._is_first()
        with (self._base / "told").open("w") as told:
            told.write(f"{os.getpid()}\n")
        return Reply(text=(self._base / "go").read_text() if is_first else str(os.getpid()))

    def _is_first(self) -> bool:
        with (self._base / "asked").open("a") as asked:
            asked.write(f"{os.getpid()}\n")
            return asked.tell() == len(f"{os.getpid()}\n")


class Unpicklable(Backend):
    """Fails with an error of a kind that only this module knows."""

    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        raise _OwnError("a defect")


class _OwnError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message, threading.Lock())  # a lock cannot travel


register_provider("fatal", FatalProvider)
register_provider("unpicklable", Unpicklable)
