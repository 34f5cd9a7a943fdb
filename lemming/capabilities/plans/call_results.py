"""Results of earlier calls and entries, from the values of a turn. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.turn.tool_results import DEFERRED_KEY, OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY

NON_TOOL_RESULTS = ("memory_update", OUTBOX_ENTRIES, "reply")
"""Results that the engine itself adds to those of tool calls."""
RESOLVED_CALL_KEY = "call"
"""The key of a result that is a person's word on an earlier call:

`lemming.journal_tools.repair.unknown_calls`.
"""
MISSING_RESULT: Mapping[str, Any] = {"success": False, "output": "no result has come of it"}


class CallResults:
    """Results in the values of one turn."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._all: list[Mapping[str, Any]] = [*(values.get("results") or ())]

    def get_result(self, number: int) -> Mapping[str, Any]:
        """Return the result of a call by its number in the earlier reply."""
        results = [
            result
            for result in self._all
            if RESOLVED_CALL_KEY not in result and result.get("tool") not in NON_TOOL_RESULTS
        ]
        return results[number] if number < len(results) else MISSING_RESULT

    def find_entry_result(self, step: str) -> Mapping[str, Any] | None:
        """Return the result of a step's request entry after a gate's approval request, or None without a gate."""
        entry_results = (
            result for result in self._all if result.get("tool") == OUTBOX_ENTRIES and isinstance(result["args"], dict)
        )
        return next((result for result in entry_results if result["args"].get("step") == step), None)

    def list_remarks(self) -> list[str]:
        """Return the remarks about parts of the earlier reply other than its calls."""
        return [
            str(result["output"])
            for result in self._all
            if RESOLVED_CALL_KEY not in result and result["tool"] in NON_TOOL_RESULTS
        ]

    def find_resolution(self, call: str) -> Mapping[str, Any] | None:
        """Return a person's finding about a call, or the call's result after a retry."""
        findings = [result for result in self._all if result.get(RESOLVED_CALL_KEY) == call]
        return findings[-1] if findings and findings[-1].get("retry") != "started" else None


def is_written(result: Mapping[str, Any]) -> bool:
    """Return True for an entry written after approval, with its answer still pending."""
    return result["success"] is True and WRITTEN_ENTRY_KEY in result["args"]


def is_deferred(result: Mapping[str, Any]) -> bool:
    """Return True for a call deferred until earlier approvals are decided."""
    return result.get(DEFERRED_KEY) is True
