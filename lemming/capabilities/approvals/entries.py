"""Entries that wait for a person: asked about as calls are, and written once they are approved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lemming.capabilities.approvals.binding import changed_since, changed_text
from lemming.capabilities.approvals.waiting import NAME, PUBLISH, Waiting, call_in, too_many
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.kinds import MESSAGE_KINDS
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.places import Asking
from lemming.kernel.turn.results import OUTBOX_ENTRIES

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft


def ask_about_entry(
    draft: Draft, new: NewEntry, asking: Asking, people: list[str], at: str, changed: Sequence[str] = ()
) -> None:
    """Ask these persons whether an entry may be written, and let the turn wait for the answer.

    `changed`: the files of it that have changed since it was approved.
    """
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
    payload = held.request(people, asking.expires, at, further=changed_text(changed))
    entry = draft.write(NewEntry("request", payload, []), at, by_engine=True)
    if entry is None:
        return  # why not is told
    why = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
    draft.add_result(OUTBOX_ENTRIES, told, ToolResult(False, why, outcome="pending", entries_by=NAME))
    draft.asked[entry.identity] = len(draft.results)
    draft.held[entry.identity] = {NAME: call_in(payload)}


def bind_entries(draft: Draft, first: int, at: str) -> None:
    """Bind entries that wait to what is in the files that go with them: of the draft's those from `first` on.

    As all calls are made, which may have written these files.
    """
    waiting = [
        place
        for place, entry in enumerate(draft.entries[first:], first)
        if draft.held.get(entry.identity, {}).get(NAME, {}).get("tool") == PUBLISH
    ]
    calls = [draft.entries[place].payload["call"] for place in waiting]
    found = draft.carried([call["args"]["payload"] for call in calls], at) if waiting else ()
    for place, call, carried in zip(waiting, calls, found, strict=True):
        if carried.files:
            entry = draft.entries[place]
            payload = {**entry.payload, "call": {**call, "binds": {**carried.files}}}
            draft.entries[place] = replace(entry, payload=payload)
            draft.held[entry.identity] = {NAME: call_in(payload)}


def publish(draft: Draft, call: ToolCall, at: str, again: list[str]) -> None:
    """Write an entry that was approved; what blocks it by now holds all the same.

    One whose files have changed since is looked at as one that nobody approved: `again` names them then.
    """
    assert call.approved, "who approved it is known"
    try:
        new = NewEntry(**call.args)
        is_sound = new.kind in MESSAGE_KINDS and isinstance(new.payload, dict) and _are_texts(new.tags)
    except TypeError:
        is_sound = False
    if not is_sound:
        why = "not written: it needs a kind, a payload (an object) and tags (texts)"
        draft.add_result(OUTBOX_ENTRIES, {}, ToolResult(False, why, outcome="invalid_args"))
        return
    (carried,) = draft.carried([new.payload], at)
    again[:] = changed_since(call.approved, carried.files)
    written = new if again else new._replace(payload=carried.payload)
    if entry := draft.write(written, at, is_approved=not again):
        if again:  # no gate asks any more
            (carried,) = draft.carried([entry.payload], at)
            draft.entries[-1] = replace(entry, payload=carried.payload)
        draft.add_result(OUTBOX_ENTRIES, {"kind": new.kind}, ToolResult(True, f"written: {entry.identity}"))
    again.clear()


def _are_texts(tags: Any) -> bool:
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def _waits_already(draft: Draft, held: Waiting) -> bool:
    begun = {it.key: it for it in draft.inputs.state.requests}
    begun |= {it.key: it for it in ([draft.task.begun] if draft.task else ())}  # with what was decided since
    before = [it.held for each in begun.values() for it in each.open if NAME in it.held]
    return any(other[NAME]["sha256"] == held.sha256 for other in (*before, *draft.held.values()))
