"""Descriptions of the state capabilities store: in ledgers, with calls, and until a request ends.

Read only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.plugins.capability_loader import find_capability


class CallNote(NamedTuple):
    """A note about a tool call: the text, and the author and entry of its decision."""

    text: str
    by: str
    entry: str


def find_sub_requests(state: AgentState) -> Iterator[SubRequest]:
    """Yield an agent's sub-requests stored by capabilities, outside the agent's open requests."""
    for name, capability_state in state.kept.items():
        if (capability := find_capability(name)) is not None:
            yield from capability.sub_requests(capability_state)


def find_limit_raises(state: Mapping[str, Json], line: str) -> dict[str, Json]:
    """Return the raises of a limit stored by capabilities, by the request that asked for each."""
    raises: dict[str, Json] = {}
    for name, value in state.items():
        if (capability := find_capability(name)) is not None:  # otherwise it is as its file says
            raises |= capability.limit_raises(value, line)
    return raises


def find_call_notes(state: Mapping[str, Json]) -> Iterator[CallNote]:
    """Yield the notes about a call, from each capability with state stored for it."""
    for name, value in state.items():
        if (capability := find_capability(name)) is not None:
            yield capability.call_note(value)
