"""What is put down of batches, in a tick's journal, and told of them beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from lemming.kernel.base.wording import counted
from lemming.kernel.files.fields import AgentName, Count, Json, Moment
from lemming.kernel.journal.events import Event
from lemming.kernel.journal.records import Record


class Item(TypedDict):
    """One call of a batch."""

    custom_id: str
    agent: AgentName
    call: Count


class BatchAnnounced(Record):
    """Calls are about to be sent as one batch."""

    is_bookkeeping = True

    label: str
    provider: str
    model: str
    at: Moment
    items: list[Item]

    @property
    def sent_calls(self) -> Iterable[tuple[str, int]]:
        """The calls that it holds."""
        return [(item["agent"], item["call"]) for item in self.items]


class BatchSent(Record):
    """The same, once it has its id at the provider."""

    batch: str
    label: str
    provider: str
    model: str
    at: Moment
    items: list[Item]

    @property
    def sent_calls(self) -> Iterable[tuple[str, int]]:
        """The calls that it holds."""
        return [(item["agent"], item["call"]) for item in self.items]

    def as_line(self) -> str:
        """Return that it was sent, and what Ctrl-C does meanwhile."""
        sent = f"{counted(len(self.items), 'call')} sent to {self.provider} {self.model}"
        return f"batch {self.batch}: {sent}; Ctrl-C leaves it to the next run"

    def as_shown(self) -> Json:
        """Return it with how many calls it holds, in place of the calls."""
        shown = {"batch": self.batch, "provider": self.provider, "model": self.model}
        return {**shown, "calls": len(self.items)}


class BatchAwaited(Record):
    """A second attempt waits for the batch of an earlier one."""

    is_bookkeeping = True

    agent: AgentName
    call: Count
    batch: str


class BatchEnded(Record):
    """What came of a batch."""

    batch: str
    replies: Count
    live: int
    problem: str

    def as_line(self) -> str:
        """Return what came of it."""
        live = f", {counted(self.live, 'call')} to be made live" if self.live else ""
        return _line(self, f"{counted(self.replies, 'answer')}{live}")


class BatchWaiting(Event):
    """A batch has come further, or cannot be looked at."""

    batch: str
    finished: int
    calls: int
    problem: str

    def as_line(self) -> str:
        """Return how far it has come."""
        return _line(self, f"{self.finished} of {self.calls} calls finished")


class BatchNotSent(Event):
    """A provider takes no batch; its calls go live."""

    is_warning = True

    provider: str
    problem: str

    def as_line(self) -> str:
        """Return that its calls go live, and why."""
        return f"{self.provider} takes no batch; its calls go live at the full price: {self.problem}"


def _line(about: Any, come: str) -> str:
    return f"batch {about.batch}: {come}{f' ({about.problem})' if about.problem else ''}"
