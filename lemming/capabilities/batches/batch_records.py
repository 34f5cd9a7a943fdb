"""Journal records and events of batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from lemming.kernel.files.field_types import AgentName, Count, Json, Timestamp
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import Record
from lemming.libraries.wording import format_count


class BatchItem(TypedDict):
    """One call of a batch."""

    custom_id: str
    agent: AgentName
    call: Count


class BatchAnnounced(Record):
    """Record: calls are about to be sent as one batch."""

    is_bookkeeping = True

    label: str
    provider: str
    model: str
    at: Timestamp
    items: list[BatchItem]

    @property
    def submitted_calls(self) -> Iterable[tuple[str, int]]:
        """The calls of the batch."""
        return [(item["agent"], item["call"]) for item in self.items]


class BatchSent(Record):
    """Record: the batch was sent and has an id."""

    batch: str
    label: str
    provider: str
    model: str
    at: Timestamp
    items: list[BatchItem]

    @property
    def submitted_calls(self) -> Iterable[tuple[str, int]]:
        """The calls of the batch."""
        return [(item["agent"], item["call"]) for item in self.items]

    def as_line(self) -> str:
        """Return a line about the sent batch and the effect of Ctrl-C."""
        sent = f"{format_count(len(self.items), 'call')} sent to {self.provider} {self.model}"
        return f"batch {self.batch}: {sent}; Ctrl-C leaves it to the next run"

    def as_output_json(self) -> Json:
        """Return the record as JSON with the number of calls in place of the calls."""
        fields = {"batch": self.batch, "provider": self.provider, "model": self.model}
        return {**fields, "calls": len(self.items)}


class BatchAwaited(Record):
    """Record: a second attempt waits for the batch of an earlier one."""

    is_bookkeeping = True

    agent: AgentName
    call: Count
    batch: str


class BatchEnded(Record):
    """Record: the result of a batch."""

    batch: str
    replies: Count
    live: int
    problem: str

    def as_line(self) -> str:
        """Return a line about the result."""
        live = f", {format_count(self.live, 'call')} to be made live" if self.live else ""
        return _format_event(self, f"{format_count(self.replies, 'answer')}{live}")


class BatchWaiting(Event):
    """Event: a batch has progressed, or cannot be polled."""

    batch: str
    finished: int
    calls: int
    problem: str

    def as_line(self) -> str:
        """Return a line about the progress."""
        return _format_event(self, f"{self.finished} of {self.calls} calls finished")


class BatchNotSent(Event):
    """Event: a provider takes no batch, so the calls go live."""

    is_warning = True

    provider: str
    problem: str

    def as_line(self) -> str:
        """Return a line about the live calls and the reason."""
        return f"{self.provider} does not accept batches; its calls run live at the full price: {self.problem}"


def _format_event(event: Any, text: str) -> str:
    return f"batch {event.batch}: {text}{f' ({event.problem})' if event.problem else ''}"
