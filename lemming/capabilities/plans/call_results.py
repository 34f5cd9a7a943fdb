"""What the values of a turn tell of earlier calls and entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.turn.results import DEFERRED, OUTBOX_ENTRIES, WRITTEN

NOT_TOOLS = ("memory_update", OUTBOX_ENTRIES, "reply")
"""What the engine says among the results of tool calls, of other parts of a reply."""
WORD_ON = "call"
"""The key of a result that is a person's word on an earlier call: `lemming.timeline.repair.unknown`."""
LOST: Mapping[str, Any] = {"success": False, "output": "no result has come of it"}


class CallResults:
    """The results in the values of one turn."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._all: list[Mapping[str, Any]] = [*(values.get("results") or ())]

    def of_call(self, number: int) -> Mapping[str, Any]:
        """Return the result of the earlier reply's call with this number."""
        results = [it for it in self._all if WORD_ON not in it and it.get("tool") not in NOT_TOOLS]
        return results[number] if number < len(results) else LOST

    def of_asking(self, step: str) -> Mapping[str, Any] | None:
        """Return the result of an entry by which a step asked, and about which a gate had a person asked.

        Returns None where none did.
        """
        about = (it for it in self._all if it.get("tool") == OUTBOX_ENTRIES and isinstance(it["args"], dict))
        return next((it for it in about if it["args"].get("step") == step), None)

    def of_entries(self) -> list[str]:
        """Return the remarks about parts of the earlier reply other than its calls."""
        return [str(it["output"]) for it in self._all if WORD_ON not in it and it["tool"] in NOT_TOOLS]

    def find_resolution(self, call: str) -> Mapping[str, Any] | None:
        """Return a person's finding about a call, or its result when it was made again."""
        words = [it for it in self._all if it.get(WORD_ON) == call]
        return words[-1] if words and words[-1].get("retry") != "started" else None


def is_written(result: Mapping[str, Any]) -> bool:
    """Return True for an entry that was written once it was approved: its answer is still to come."""
    return result["success"] is True and WRITTEN in result["args"]


def is_deferred(result: Mapping[str, Any]) -> bool:
    """Return True for a call that may be made later: others have to be decided about first."""
    return result.get(DEFERRED) is True
