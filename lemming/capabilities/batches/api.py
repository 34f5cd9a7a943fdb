"""What a provider with a batch API can do: take many calls at once, and answer them later at a lower price.

The calls of a batch are known by their custom ids, and the batch by a label, so that one that was sent
just before the engine died can be found again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from lemming.kernel.providers import Reply, Request

CLOCKS_DIFFER_BY = timedelta(minutes=5)
"""A batch that seems this much older than its announcement may still be the announced one."""


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """How far a batch is. Once it is over, a call without a reply has failed, expired or never been run.

    `finished` counts calls, well or badly. `problem` is the first reason why a call has no reply.
    """

    is_over: bool
    finished: int = 0
    replies: Mapping[str, Reply] = field(default_factory=dict)
    problem: str = ""


@runtime_checkable
class TakesBatches(Protocol):
    """A provider with a batch API. Every method raises a `ProviderError` when the provider is silent."""

    takes_batches: bool
    """Whether this one's server has the API, as its options say."""

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        """Send calls by their custom ids, and return the batch's id."""
        ...

    def look_at_batch(self, batch: str) -> BatchProgress:
        """Return how far a batch is, with the replies by custom id once it is over."""
        ...

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        """Return the id of a batch that was sent under this label after that time; None if there is none."""
        ...

    def cancel_batch(self, batch: str) -> None:
        """Ask for a batch to be ended early; what it has finished is kept."""
        ...
