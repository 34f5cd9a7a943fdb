"""Descriptions of the state capabilities store: in ledgers, with calls, and until a request ends.

Read only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from lemming.kernel.files.field_types import Json
from lemming.kernel.plugins.capability_loader import find_capability


class CallNote(NamedTuple):
    """A note about a tool call: the text, and the author and entry of its decision."""

    text: str
    by: str
    entry: str


D = TypeVar("D")


@dataclass(frozen=True)
class Query(Generic[D]):
    """A query for descriptions of one kind, a class. Subclasses hold the subject."""

    kind: type[D]

    def ask(self, capability: Any) -> Iterator[D]:
        """Return the capability's descriptions of this kind. A capability that declares other kinds is not called."""
        if self.kind not in capability.describes:
            return iter(())
        return (answer for answer in capability.describe(self) if isinstance(answer, self.kind))


@dataclass(frozen=True)
class StateQuery(Query[D]):
    """A query about JSON that the capability recorded: a snapshot, or the state stored with a call."""

    state: Json


def find_call_notes(state: Mapping[str, Json]) -> Iterator[CallNote]:
    """Yield the notes about a call, from each capability with state stored for it."""
    for name, value in state.items():
        if (capability := find_capability(name)) is not None:
            yield from StateQuery(CallNote, value).ask(capability)
