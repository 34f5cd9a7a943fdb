"""Whether an engine under way gets on: every event says by when the next one must come.

A turn has its deadlines, a pause its length. An engine that is silent for longer than any of them hangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from lemming.errors import ConfigError
from lemming.journal.events import Event, Sleeping, TickBegins, TickEnds
from lemming.org.config import Config, Org, load_config
from lemming.org.organisation import Organisation
from lemming.tools import toolset_of

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
        monotonic: Callable[[], float] = time.monotonic,
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
        now = self._monotonic()
        with self._lock:
            return now - self._heard if now > self._next_by else 0.0

    def _allow(self, pause_s: float) -> None:
        now = self._monotonic()
        with self._lock:
            self._heard, self._next_by = now, now + pause_s + self._longest_s

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
    deadlines = [org.tool_timeout_s, org.shell.timeout_s]
    deadlines += [tool.timeout_s for tool in toolset_of(org).values() if tool.timeout_s is not None]
    deadlines += [entry.deadline_s for entry in config.models.values()]
    deadlines += [entry.batch_deadline_s for entry in config.models.values() if batch]
    return max(deadlines) + MARGIN_S
