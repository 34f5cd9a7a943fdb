"""Ids of a turn's entries, and entries that follow from calls."""

from __future__ import annotations

from collections.abc import Sequence

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.plugins.capability_loader import find_tool_entry
from lemming.kernel.turn.turn_values import TurnInputs


def entries_from_call(call: ToolCall) -> list[NewEntry]:
    """Return the entries that a successful call of a capability's tool writes."""
    make_entry = find_tool_entry(call.tool)
    return [make_entry(call)] if make_entry else []


def next_entry_id(inputs: TurnInputs, number: int, used_ids: Sequence[str]) -> str:
    """Return the id of the turn's next entry from `number` on.

    Ids of withdrawn entries are skipped if used.
    """
    while (identity := inputs.entry_id(number)) in used_ids:
        number += 1
    return identity
