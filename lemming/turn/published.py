"""Entries that wait for leave: asked for as calls are, and written once a person gives it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lemming.contract import NewEntry, ToolCall
from lemming.gates.gate import Gate, GateVerdict
from lemming.kinds import MESSAGE_KINDS
from lemming.leave import PUBLISH, held_call, request_for, too_many, waiting_call
from lemming.tools import ToolResult

if TYPE_CHECKING:
    from lemming.turn.draft import Draft

ENTRIES = "outbox_entries"
"""What a result is of that says what became of an entry."""


def ask_leave(draft: Draft, new: NewEntry, verdict: GateVerdict, gate: Gate, at: str) -> None:
    """Ask the persons of a gate whether an entry may be written, and let the turn wait for the answer."""
    inputs, told = draft.inputs, {"kind": new.kind, "target": new.payload.get("target")}
    people = inputs.askable.get(verdict.line, [])
    if not people:
        why = f"REFUSED: it needs approval ({verdict.line}), and there is no person here who could approve it"
        draft.add_result(ENTRIES, told, ToolResult(False, why, outcome="refused"))
        return
    identity = f"{inputs.tick}/{inputs.agent.name}/{len(draft.results)}"
    held = held_call(identity, PUBLISH, new._asdict(), gate=verdict.line, why=verdict.why)
    if _waits_already(draft, held):
        why = "WAITS: this very entry waits for approval already; it is written once"
        draft.add_result(ENTRIES, told, ToolResult(False, why, outcome="pending"))
        return
    asked = sum(other["tool"] == PUBLISH for other in draft.leave.values())
    if asked >= (most := inputs.agent.turn.max_approvals):
        draft.add_result(ENTRIES, told, ToolResult(False, too_many(most), outcome="refused"))
        return
    payload = request_for(held, people, () if gate.expires is None else (gate.expires,), at)
    entry = draft.write(NewEntry("request", payload, []), at, by_engine=True)
    if entry is None:
        return  # why not is told
    why = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
    draft.add_result(ENTRIES, told, ToolResult(False, why, outcome="pending", asks_leave=True))
    draft.asked[entry.identity] = len(draft.results)
    draft.leave[entry.identity] = waiting_call(payload)


def publish(draft: Draft, call: ToolCall, at: str) -> None:
    """Write an entry that has leave; what blocks it by now holds all the same."""
    try:
        new = NewEntry(**call.args)
        is_sound = new.kind in MESSAGE_KINDS and isinstance(new.payload, dict) and _are_texts(new.tags)
    except TypeError:
        is_sound = False
    if not is_sound:
        why = "not written: it needs a kind, a payload (an object) and tags (texts)"
        draft.add_result(ENTRIES, {}, ToolResult(False, why, outcome="invalid_args"))
    elif entry := draft.write(new, at, has_leave=True):
        draft.add_result(ENTRIES, {"kind": new.kind}, ToolResult(True, f"written: {entry.identity}"))


def _are_texts(tags: Any) -> bool:
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def _waits_already(draft: Draft, held: dict[str, Any]) -> bool:
    before = (it.leave for begun in draft.inputs.state.requests for it in begun.open if it.leave)
    now = draft.leave.values()
    return any(other["sha256"] == held["sha256"] for other in (*before, *now))
