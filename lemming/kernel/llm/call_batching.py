"""Batching of model calls, so that they go out together: what a batcher gets, and what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, Protocol

from lemming.kernel.journal.engine_events import Observer
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import LLMProvider, Reply, Request


class BatchContext(NamedTuple):
    """Environment of a tick's model calls for a batcher, with the `journal` of their records.

    `make` makes a bare provider, `live` makes one call immediately, with retries. `record_batched` records
    an agent's call before the announcement of its batch. `journal` has the records of earlier attempts. If
    `sends` is False, the batcher only waits for batches of earlier attempts. `sleep` ends early when `stop` is
    set.
    """

    make: Callable[[ModelEntry], LLMProvider]
    live: Callable[[ModelEntry, Request], Reply]
    record_batched: Callable[[str], None]
    journal: Journal
    clock: Callable[[], datetime]
    notify: Observer
    stop: threading.Event
    sends: bool
    sleep: Callable[[float], object]


class CallBatcher(Protocol):
    """Batcher of a tick's model calls. Every method may be called from any thread."""

    def add_turns(self, turns: int = 1) -> None:
        """Count turns that may start, before the first model call."""

    def remove_turn(self) -> None:
        """Count a finished turn. Turns unblocked by the end have been added before."""

    def complete(self, entry: ModelEntry, request: Request) -> Reply:
        """Return a model's answer. Raises the errors of a live call, and `Unavailable` when the engine stops."""
