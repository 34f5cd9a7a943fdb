"""What a turn is for, where that is one thing that was asked: plain values, of which prompts are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.messages import OutboxEntry


class Ended(NamedTuple):
    """Something that was asked for a request, and how it stands: the entry that asked, and the answer."""

    asked: Asked
    entry: OutboxEntry | None
    answer: OutboxEntry | None

    @property
    def payload(self) -> dict[str, Any] | None:
        """What the answer says; the default of a request that nobody answered in time."""
        if self.answer is not None:
            return self.answer.payload
        default = self.entry.payload.get("default") if self.entry else None
        if self.asked.end != "expired" or default is None:
            return None
        return default if isinstance(default, dict) else {"text": default}


class Task(NamedTuple):
    """What a turn is for. `request` is None when it goes on with what the agent asked on its own account.

    `begun` is where it stands, `asked` what came of what was asked for it, `thread` what was said before in
    the same conversation, the oldest first. `mark` holds once the turn is committed. `path`: the agents that
    wait for it, each for the next one; people are not among them.
    """

    request: OutboxEntry | None
    begun: Begun
    asked: Sequence[Ended]
    thread: Sequence[OutboxEntry]
    mark: ReadMark
    path: Sequence[str] = ()
