"""Recorded state of a capability, as its hooks `check` and `describe` get it."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.kernel.files.field_types import Json


@dataclass(frozen=True, slots=True)
class StateCheck:
    """A capability's state in a ledger, which a person may have edited. A problem makes the ledger unreadable.

    `is_pending`: the state of a request that waits for its answer, and not of the agent.
    """

    state: Json
    is_pending: bool = False
