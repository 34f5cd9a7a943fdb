"""What gates want that say "ask": a person's word, before what they look at may pass. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from lemming.base.times.spoken import Expires
from lemming.capabilities.gates.gate import Gate


class Asking(NamedTuple):
    """What gates want: approval of one of these persons (None: of any), before one of these is over.

    `line` is the first gate that asks, `further` are the others.
    """

    line: str
    why: str = ""
    persons: Collection[str] | None = None
    expires: tuple[Expires, ...] = ()
    further: Collection[str] = ()


def heard_by(gates: Sequence[Gate]) -> tuple[frozenset[str] | None, tuple[Expires, ...]]:
    """Return the persons whom each of these gates would hear (None: any), and how long each waits."""
    named = [frozenset(gate.persons) for gate in gates if gate.persons]
    expires = tuple(gate.expires for gate in gates if gate.expires is not None)
    return (frozenset.intersection(*named) if named else None), expires
