"""What capabilities say of what they keep: in ledgers, with calls, until a request ends. Looks only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Asked
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.plugins.capabilities import capability_here


class CallNote(NamedTuple):
    """What is to be said of a call: in words, and by which entry of whom."""

    text: str
    by: str
    entry: str


class WaitingForPerson(NamedTuple):
    """What waits for a person: exactly what, in words, and what is needed of them."""

    call: Json
    text: str
    needs: str


def asked_beside(state: AgentState) -> Iterator[Asked]:
    """Yield what an agent asked beside what its requests hold."""
    for name, kept in state.kept.items():
        if (known := capability_here(name)) is not None:
            yield from known.asked(kept)


def raises_of(kept: Mapping[str, Json], line: str) -> dict[str, Json]:
    """Return by how much a limit was raised, by the request that asked for it, of what capabilities keep."""
    found: dict[str, Json] = {}
    for name, value in kept.items():
        if (known := capability_here(name)) is not None:  # else it is as its file says
            found |= known.raises(value, line)
    return found


def notes_of(kept: Mapping[str, Json]) -> Iterator[CallNote]:
    """Yield what is to be said of a call, by those who kept something with it."""
    for name, value in kept.items():
        if (known := capability_here(name)) is not None:
            yield known.note(value)
