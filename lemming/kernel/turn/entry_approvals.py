"""Approvals of entries: ask a person before an entry is published, and publish it after the approval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.person_requests import PUBLISH
from lemming.kernel.obligations.file_bindings import describe_changed_files, find_changes_after_decision
from lemming.kernel.obligations.pending_approvals import NAME, PendingAction, parse_pending_action, too_many_message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY
from lemming.kernel.turn.turn_effects import AskPerson, WriteEntry

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


def request_entry_approval(
    turn_state: TurnState,
    identity: str,
    new: NewEntry,
    question: AskPerson,
    people: list[str],
    at: str,
    changed: Sequence[str] = (),
) -> None:
    """Ask persons to approve an entry, and let the turn wait.

    `identity`: id of the pending entry for people. `changed`: attached files that changed since an earlier
    approval.
    """
    inputs, description = turn_state.inputs, _describe_entry(new)
    if not people:
        reason = f"REFUSED: it needs approval ({question.asked_by}), and there is no person here who could approve it"
        turn_state.add_result(OUTBOX_ENTRIES, description, ToolResult(False, reason, outcome="refused"))
        return
    action = PendingAction.from_entry(identity, new, question.asked_by, question.reason)
    if isinstance(question.subject, WriteEntry) and (grant := question.subject.grant):  # of another person, before
        earlier = [
            {key: item[key] for key in ("id", "by", "entry", "gate", "sha256", "binds")}
            for item in (grant, *grant["grants"])
        ]
        action = replace(action, grants=earlier)
    if _is_pending(turn_state, action):
        reason = "WAITS: this very entry waits for approval already; it is written once"
        turn_state.add_result(OUTBOX_ENTRIES, description, ToolResult(False, reason, outcome="pending"))
        return
    count = sum(other[NAME]["tool"] == PUBLISH for other in turn_state.pending_states.values())
    if count >= (max_approvals := inputs.agent.turn.max_approvals):
        turn_state.add_result(
            OUTBOX_ENTRIES, description, ToolResult(False, too_many_message(max_approvals), outcome="deferred")
        )
        return
    payload = action.build_request(people, question.expires, at, suffix=describe_changed_files(changed))
    entry = turn_state.stage_entry(NewEntry("request", payload, []), at, by_engine=True)
    if entry is None:
        return  # the reason is among the results
    reason = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
    turn_state.add_result(OUTBOX_ENTRIES, description, ToolResult(False, reason, outcome="pending", entries_by=NAME))
    turn_state.pending_indexes[entry.identity] = len(turn_state.results)
    turn_state.pending_states[entry.identity] = {NAME: parse_pending_action(payload)}


def bind_entries(turn_state: TurnState, first: int, at: str) -> None:
    """Bind pending entries, from index `first` on, to the contents of their attached files.

    Called after all calls, which may have written these files.
    """
    pending_indexes = [
        index
        for index, entry in enumerate(turn_state.entries[first:], first)
        if turn_state.pending_states.get(entry.identity, {}).get(NAME, {}).get("tool") == PUBLISH
    ]
    calls = [turn_state.entries[index].payload["call"] for index in pending_indexes]
    bound_payloads = turn_state.bind_files([call["args"]["payload"] for call in calls], at) if pending_indexes else ()
    for index, call, carried in zip(pending_indexes, calls, bound_payloads, strict=True):
        if carried.files:
            entry = turn_state.entries[index]
            payload = {**entry.payload, "call": {**call, "binds": {**carried.files}}}
            turn_state.entries[index] = replace(entry, payload=payload)
            turn_state.pending_states[entry.identity] = {NAME: parse_pending_action(payload)}


def publish(turn_state: TurnState, call: ToolCall, at: str, changed_files: list[str]) -> None:
    """Write an approved entry. Gates that block still apply.

    An entry whose files have changed is checked like an unapproved entry; `changed_files` names the files
    meanwhile.
    """
    assert call.approved, "who approved it is known"
    try:
        new = NewEntry(**call.args)
        is_sound = new.kind in MESSAGE_KINDS and isinstance(new.payload, dict) and isinstance(new.tags, list)
        is_sound = is_sound and all(isinstance(tag, str) for tag in new.tags)
    except TypeError:
        is_sound = False
    if not is_sound:
        reason = "not written: it needs a kind, a payload (an object) and tags (texts)"
        turn_state.add_result(OUTBOX_ENTRIES, {}, ToolResult(False, reason, outcome="invalid_args"))
        return
    (carried,) = turn_state.bind_files([new.payload], at)
    # The person approved these contents of the files: others need another decision.
    changed_files[:] = find_changes_after_decision(call.approved, carried.files)
    written = new if changed_files else new._replace(payload=carried.payload)
    grant = None if changed_files else call.approved
    if entry := turn_state.stage_entry(written, at, grant=grant):
        if changed_files:  # changed, and no gate asks again: it goes out as it is now
            (carried,) = turn_state.bind_files([entry.payload], at)
            turn_state.entries[-1] = replace(entry, payload=carried.payload)
        description = {**_describe_entry(new), WRITTEN_ENTRY_KEY: entry.identity}
        turn_state.add_result(OUTBOX_ENTRIES, description, ToolResult(True, f"written: {entry.identity}"))
    changed_files.clear()


def _describe_entry(new: NewEntry) -> Json:
    """Return a description of a result's entry."""
    step = {"step": new.payload["step"]} if "step" in new.payload else {}
    return {"kind": new.kind, "target": new.payload.get("target"), **step}


def _is_pending(turn_state: TurnState, action: PendingAction) -> bool:
    open_requests = {item.key: item for item in turn_state.inputs.state.requests}
    open_requests |= {
        item.key: item for item in ([turn_state.task.begun] if turn_state.task else ())
    }  # with the decisions since
    pending = [
        item.held
        for open_request in open_requests.values()
        for item in open_request.open_sub_requests
        if NAME in item.held
    ]
    return any(other[NAME]["sha256"] == action.sha256 for other in (*pending, *turn_state.pending_states.values()))
