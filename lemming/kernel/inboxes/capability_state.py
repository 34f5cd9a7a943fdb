"""Descriptions of the state capabilities store: in ledgers, with calls, and until a request ends.

Read only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lemming.kernel.files.field_types import Json
from lemming.kernel.plugins.capability_loader import find_capability


class CallNote(NamedTuple):
    """A note about a tool call: the text, and the author and entry of its decision."""

    text: str
    by: str
    entry: str


def find_call_notes(state: Mapping[str, Json]) -> Iterator[CallNote]:
    """Yield the notes about a call, from each capability with state stored for it."""
    for name, value in state.items():
        if (capability := find_capability(name)) is not None:
            yield capability.call_note(value)
