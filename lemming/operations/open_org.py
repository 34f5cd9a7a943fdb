"""An organisation opened by one engine. The system's lock ends with its holder; the lock file describes it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.errors import DiskError, NotAnOrg
from lemming.kernel.files.stat_cache import is_folder, probe_mtime_resolution
from lemming.kernel.journal.engine_events import Observer, ignore_event
from lemming.kernel.journal.journal_file import next_epoch
from lemming.kernel.org.config import Config, hold_settings
from lemming.kernel.org.organisation import Organisation, require_known_format
from lemming.kernel.tick.runtime import Runtime
from lemming.operations.engine_lock import acquire_lock, format_holder, format_release, parse_tick


@contextlib.contextmanager
def open_org(
    base_path: str | os.PathLike[str],
    *,
    command: str = "",
    clock: Clock | None = None,
    notify: Observer = ignore_event,
    stop: threading.Event | None = None,
    batching_capability: str = "",
    build_observers: Callable[[Runtime, Config], list[Observer]] | None = None,
) -> Iterator[Runtime]:
    """Hold an organisation's lock for the block and yield its runtime.

    Raises `NotAnOrg` for a folder without `agents/`, `ConfigError` for a format of a newer version, and
    `OrgBusy` with the name of the engine that holds the lock.
    """
    org = Organisation.from_path(base_path)
    base = org.base
    if not is_folder(f"{base}/agents"):
        raise NotAnOrg("the folder agents/ does not exist", where=str(base), hint="create it with `lemming init`")
    require_known_format(org)
    clock = clock or SystemClock()
    lock = acquire_lock(base)
    epoch, last_left = next_epoch(org, last_holder := lock.load_holder()), parse_tick(last_holder)
    try:
        lock.write_holder(format_holder(since=timestamp(clock.now()), command=command, epoch=epoch))
        # The lock file is open, on the same device as the others, and its stamps have no meaning.
        probe_mtime_resolution(lock.restamp)
        observers = () if notify is ignore_event else (notify,)
        new_runtime = Runtime(org, clock, observers, stop or threading.Event(), epoch, batching_capability)
        new_runtime.next_tick = last_left
        if build_observers:
            new_runtime.build_observers = build_observers
        if isinstance(clock, WaitingClock):
            new_runtime.monotonic, new_runtime.pause = clock.monotonic, clock.pause
        hold_settings(org, is_held=True)
        with contextlib.closing(new_runtime) as runtime:
            yield runtime
    finally:
        try:
            with contextlib.suppress(DiskError):  # full disk: the next engine sees this description instead
                lock.write_holder(format_release(org, epoch), is_leaving=True)
        finally:
            lock.release()


@runtime_checkable
class WaitingClock(Clock, Protocol):
    """A clock that also controls the duration of waits: see `lemming.testing.SkippingClock`."""

    def monotonic(self) -> float:
        """Return a monotonic reading in seconds."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...
