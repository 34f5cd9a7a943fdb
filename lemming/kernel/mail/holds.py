"""What is held until something that was asked is answered: those who keep it say how that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from lemming.kernel.journal.begun import Begun
from lemming.kernel.messages import OutboxEntry

Ends = dict[tuple[str, str], tuple[str, str]]
"""How each thing that was asked has ended, and the entry that ended it, by `Asked.key`."""
EntriesOf = Callable[[str, int], Iterable[OutboxEntry]]
"""Yields what may move or end a request that an author wrote since a tick."""
Read = Callable[[str], OutboxEntry | None]
"""Returns the entry of an identity, if there is one."""


class Holds(Protocol):
    """What capabilities say of what an agent is asked, and of what it asked (`lemming.kernel.turn.seams`)."""

    @property
    def may_withhold(self) -> bool:
        """Whether any entry may be withheld or refused."""
        ...

    def rests(self, begun: Begun) -> bool:
        """Return whether a request does not go on yet, though nothing that was asked for it is open."""
        ...

    def is_led(self, begun: Begun) -> bool:
        """Return whether a request goes on now, though something that was asked for it is open."""
        ...

    def ends(self, begun: Begun, read: Read, entries_of: EntriesOf, is_heard: Callable[[str], bool]) -> Ends:
        """Return how what holds something has ended, of what is open; what still waits is left out.

        `is_heard`: of a person who still is one, and whom the agent and who may read each other.
        """
        ...

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown yet."""
        ...

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown at all."""
        ...
