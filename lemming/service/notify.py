"""Telling systemd that the engine is ready, ends, and gets on: the sd_notify protocol, a datagram a word.

Protocol: sd_notify(3), sd_watchdog_enabled(3). Without `NOTIFY_SOCKET` in the environment nobody is told.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Lock

from lemming.capabilities.background.threads import keep_alive
from lemming.capabilities.sandbox.settings import shell_of
from lemming.kernel.base.deadlines import Deadline, MonotonicClock
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.events import Event, Sleeping, TickBegins, TickEnds
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config, Org, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import toolset_of

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


class Supervisor:
    """What systemd has asked this process to tell it. Raises nothing: an engine runs without it as well."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environment) if self._address else None

    def tell(self, *words: str) -> None:
        """Send these assignments in one datagram."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(words).encode(), address)


class Reports:
    """Hears the engine's events and tells systemd what a person reads in `systemctl status`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._is_ready = False

    def hear(self, event: Event) -> None:
        """Say that the engine is ready when its first tick begins, and what each tick came to."""
        if isinstance(event, TickBegins) and not self._is_ready:
            self._is_ready = True
            self._supervisor.tell(READY, f"STATUS=tick {event.tick}")
        elif isinstance(event, TickEnds):
            totals = event.report.totals
            parts = [
                f"{totals[status]} {status}" for status in ("done", "waiting", "failed") if totals[status]
            ]
            self._supervisor.tell(f"STATUS=tick {event.report.tick}: {', '.join(parts) or 'nobody was due'}")


class Watchdog:
    """Feeds systemd's watchdog as long as the engine gets on; an engine that hangs is then started again."""

    def __init__(self, supervisor: Supervisor, progress: Progress, base: Path) -> None:
        self._supervisor, self._progress, self._base = supervisor, progress, base
        self._has_complained = False

    def feed(self) -> None:
        """Tell systemd that the engine gets on; if it does not, say so once in its log."""
        if not (silent_s := self._progress.overdue_s):
            self._supervisor.tell(ALIVE)
        elif not self._has_complained:
            self._has_complained = True
            EngineLog(self._base).warning("no_progress", tick=self._progress.tick, silent_s=round(silent_s))

    def feed_until(self, over: threading.Event) -> None:
        """Feed it three times as often as it asks for, at once and until `over` is set."""
        self.feed()
        while not over.wait((self._supervisor.watchdog_s or 0.0) / 3):
            self.feed()


@contextlib.contextmanager
def watched(supervisor: Supervisor, progress: Progress, base: Path) -> Iterator[None]:
    """Have the watchdog fed for the length of the block, where there is one; say when it ends."""
    over, dog = threading.Event(), Watchdog(supervisor, progress, base)
    feeder = None
    if supervisor.watchdog_s is not None:
        work = partial(dog.feed_until, over)
        feeder = keep_alive(work, name="lemming-watchdog", base=base, over=over)
    try:
        yield
    finally:
        over.set()
        if feeder:
            feeder.join()
        supervisor.tell(STOPPING)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Return within how many seconds systemd wants to be told again; None when it does not."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None  # it is meant for another process
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None


# --- whether it gets on --------------------------------------------------------------------------
# Every event says by when the next one must come: a turn has its deadlines, a pause its length. An engine
# that is silent for longer than any of them hangs.


MARGIN_S = 120.0
"""For what has no deadline of its own: room under a rate limit (a minute at most), journals being packed."""


class Progress:
    """Hears the events of an engine; `interval_s` and `batch` are what it was started with."""

    def __init__(
        self,
        org: Organisation,
        *,
        interval_s: float | None = None,
        batch: bool = False,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._org, self._interval_s, self._batch, self._monotonic = org, interval_s, batch, monotonic
        self._config = Config(Org(), {}, {})
        self._longest_s = longest_silence_s(self._config, batch=batch)
        self._lock = Lock()
        self.tick = 0
        self._allow(0.0)

    def hear(self, event: Event) -> None:
        """Take note that the engine has come further."""
        pause_s = 0.0
        if isinstance(event, TickBegins):
            self.tick = event.tick
            self._read_settings()
        elif isinstance(event, TickEnds):
            pause_s = self._config.org.tick_interval_s if self._interval_s is None else self._interval_s
        elif isinstance(event, Sleeping):
            pause_s = event.seconds
        self._allow(pause_s)

    @property
    def overdue_s(self) -> float:
        """For how long the engine has been silent, where that is longer than it may be; else 0."""
        with self._lock:
            silent_s = self._next_by.elapsed()
            return silent_s if silent_s > self._next_by.seconds else 0.0

    def _allow(self, pause_s: float) -> None:
        with self._lock:
            self._next_by = Deadline(pause_s + self._longest_s, clock=self._monotonic)

    def _read_settings(self) -> None:
        try:
            config = load_config(self._org)
        except ConfigError:  # the engine goes on with those from before
            return
        if config is not self._config:
            self._config, self._longest_s = config, longest_silence_s(config, batch=self._batch)


def longest_silence_s(config: Config, *, batch: bool) -> float:
    """Return how long an engine that is well may say nothing in a tick: the longest deadline, and a margin.

    >>> longest_silence_s(Config(Org(tool_timeout_s=300), {}, {}), batch=False)
    420.0
    """
    org = config.org
    deadlines = [org.tool_timeout_s, shell_of(org).timeout_s]
    deadlines += [tool.timeout_s for tool in toolset_of(org).values() if tool.timeout_s is not None]
    deadlines += [entry.deadline_s for entry in config.models.values()]
    deadlines += [entry.batch_deadline_s for entry in config.models.values() if batch]
    return max(deadlines) + MARGIN_S
