"""What people decided about calls that waited. Which are made: `approvals.approved_calls`. Pure.

Which decisions there are stands in the journal with the turn's inputs, before anything is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.approvals.waiting import NAME, Decision, decision_in
from lemming.kernel.journal.begun import end_text
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.results import as_shown

Json = dict[str, Any]
NOT_YET = "(it is made as this turn begins)"


def results_with_decisions(task: Task, results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results of what was asked for a task, the last ones of these, as they were decided about."""
    about, first = dict(_decided_calls(task)), len(results) - len(task.begun.results)
    found = [*results]
    for place, ended in about.items():
        before = found[first + place]
        found[first + place] = as_shown(before["tool"], before["args"], _result(ended))
    return found


def decided_in(task: Task, results: Sequence[Mapping[str, Any]], form: str, at: str) -> tuple[Json, set[int]]:
    """Return what a turn does before all else, and which results its prompt does not show yet.

    It has the calls to make, and all results, with places for theirs: a prompt in text has no such places.
    `at` is the moment at which the turn begins. Empty where nothing was decided.
    """
    about = dict(_decided_calls(task))
    if not about:
        return {}, set()
    first = len(results) - len(task.begun.results)
    calls = [
        {"place": first + place, **_word_for(ended)} for place, ended in about.items() if _is_approved(ended)
    ]
    remarks = [*_edited(about.values())]
    decided: Json = {"at": at, "calls": calls, "results": [*results]}
    to_come = {each["place"] for each in calls} if form != "values" else set()
    return {**decided, "remarks": remarks} if remarks else decided, to_come


def _decided_calls(task: Task) -> Iterator[tuple[int, Ended]]:
    """Yield what was decided about each call that waited, with its place: of several asked, who decided."""
    waited = [ended for ended in task.asked if NAME in ended.asked.held and ended.asked.call]
    for request in dict.fromkeys(ended.asked.request for ended in waited):
        of_all = [ended for ended in waited if ended.asked.request == request]
        chosen = next((ended for ended in of_all if ended.answer), of_all[0])
        yield chosen.asked.call - 1, chosen


def _decision(ended: Ended) -> Decision | None:
    if ended.answer is None or ended.asked.end not in ("answered", "refused"):
        return None
    return decision_in(ended.answer.payload) or Decision("deny", str(ended.answer.payload.get("text", "")))


def _is_approved(ended: Ended) -> bool:
    decision = _decision(ended)
    return decision is not None and decision.word == "approve"


def _word_for(ended: Ended) -> Json:
    decision, asked = _decision(ended), ended.asked
    assert decision, "who approved decided"
    edited = {key: it for key in ("args", "binds") if (it := getattr(decision, key)) is not None}
    return {"call": asked.held[NAME], "by": asked.to, "entry": asked.answer, **edited}


def _result(ended: Ended) -> ToolResult:
    asked, decision = ended.asked, _decision(ended)
    if decision is None:
        if asked.end == "expired":
            return ToolResult(False, f"REFUSED: nobody answered by {end_text(asked)}", outcome="refused")
        why = "it was taken back" if asked.end == "cancelled" else "nobody is there to approve it any more"
        return ToolResult(False, f"REFUSED: {why}", outcome="refused")
    if decision.word == "deny":
        why = f": {decision.text}" if decision.text else ""
        return ToolResult(False, f"DENIED by {asked.to}{why}", outcome="refused")
    if decision.word == "answer":
        return ToolResult(True, decision.text)
    return ToolResult(True, NOT_YET)


def _edited(about: Iterable[Ended]) -> Iterator[str]:
    """Yield remarks about requests that somebody has changed: what they say of the call has no effect."""
    for ended in about:
        shown = ended.entry.payload.get("call") if ended.entry else None
        call = ended.asked.held[NAME]
        if not isinstance(shown, dict) or any(shown.get(key) != call[key] for key in call):
            yield (
                f"the request {ended.asked.request} shows another call than it asked about: "
                f"{call.get('tool')} {call.get('id')} stays as it was"
            )
