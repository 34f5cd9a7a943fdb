"""Entries that wait for a person: asked about as calls are, and written once they are approved. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lemming.capabilities.approvals.waiting import NAME, PUBLISH, Waiting, call_in, too_many
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.places import Asking
from lemming.kernel.turn.results import OUTBOX_ENTRIES

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft


def ask_about_entry(draft: Draft, new: NewEntry, asking: Asking, people: list[str], at: str) -> None:
    """Ask these persons whether an entry may be written, and let the turn wait for the answer."""
    inputs, told = draft.inputs, {"kind": new.kind, "target": new.payload.get("target")}
    if not people:
        why = f"REFUSED: it needs approval ({asking.line}), and there is no person here who could approve it"
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="refused"))
        return
    identity = f"{inputs.tick}/{inputs.agent.name}/{len(draft.results)}"
    held = Waiting.of_entry(identity, new, asking.line, asking.why)
    if _waits_already(draft, held):
        why = "WAITS: this very entry waits for approval already; it is written once"
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="pending"))
        return
    asked = sum(other[NAME]["tool"] == PUBLISH for other in draft.held.values())
    if asked >= (most := inputs.agent.turn.max_approvals):
        draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, too_many(most), outcome="refused"))
        return
    payload = held.request(people, asking.expires, at)
    entry = draft.write(NewEntry("request", payload, []), at, by_engine=True)
    if entry is None:
        return  # why not is told
    why = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
    draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="pending", entries_by=NAME))
    draft.asked[entry.identity] = len(draft.results)
    draft.held[entry.identity] = {NAME: call_in(payload)}


def publish(draft: Draft, call: ToolCall, at: str) -> None:
    """Write an entry that was approved; what blocks it by now holds all the same."""
    try:
        new = NewEntry(**call.args)
        is_sound = new.kind in MESSAGE_KINDS and isinstance(new.payload, dict) and _are_texts(new.tags)
    except TypeError:
        is_sound = False
    if not is_sound:
        why = "not written: it needs a kind, a payload (an object) and tags (texts)"
        draft.add_result(OUTBOX_ENTRIES, {}, ToolResult(False, why, outcome="invalid_args"))
    elif entry := draft.write(new, at, is_approved=True):
        draft.add_result(OUTBOX_ENTRIES, {"kind": new.kind}, ToolResult(True, f"written: {entry.identity}"))


def _are_texts(tags: Any) -> bool:
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def _waits_already(draft: Draft, held: Waiting) -> bool:
    before = [it.held for begun in draft.inputs.state.requests for it in begun.open if NAME in it.held]
    return any(other[NAME]["sha256"] == held.sha256 for other in (*before, *draft.held.values()))
