"""Whose word gates want that say "ask", before what they look at may pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lemming.base.times.spoken import Expires
from lemming.capabilities.gates.gate import Gate


def heard_by(gates: Sequence[Gate]) -> tuple[frozenset[str] | None, tuple[Expires, ...]]:
    """Return the persons whom each of these gates would hear (None: any), and how long each waits."""
    named = [frozenset(gate.persons) for gate in gates if gate.persons]
    expires = tuple(gate.expires for gate in gates if gate.expires is not None)
    return (frozenset.intersection(*named) if named else None), expires
