"""Policy for open requests: pending state until an outcome arrives, as defined by capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.messages import OutboxEntry

RequestOutcomes = dict[tuple[str, str], tuple[str, str]]
"""The end of each sub-request and the entry that ended it, by `SubRequest.key`."""
EntryLister = Callable[[str, int], Iterable[OutboxEntry]]
"""Yields an author's entries since a tick that may move or end a request."""


class RequestPolicy(Protocol):
    """Capabilities' decisions on an agent's requests and new entries (`lemming.kernel.turn.turn_hooks`)."""

    @property
    def can_withhold(self) -> bool:
        """True if any entry may be withheld or rejected."""
        ...

    def should_skip_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request must still wait, although none of the sub-requests is open."""
        ...

    def should_continue_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request continues now, although one of the sub-requests is open."""
        ...

    def should_withhold(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must not be shown yet."""
        ...

    def should_reject(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must never be shown."""
        ...
