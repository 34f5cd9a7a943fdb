"""Calls and entries that persons approve: asked about, then made as a turn begins, with their results in place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_records import Record, ToolStarted
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.person_requests import PUBLISH
from lemming.kernel.journal.turn_report import End
from lemming.kernel.obligations.file_bindings import describe_changed_files, find_changes_after_decision
from lemming.kernel.obligations.pending_approvals import (
    NAME,
    PendingAction,
    action_digest,
    parse_pending_action,
    too_many_message,
)
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.dialogue import CallResults, drop_unanswered, list_call_ids, pair_with_calls, render_results
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY, is_notice
from lemming.kernel.turn.turn_effects import AskPerson, WriteEntry

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

VALUES_LIMIT_BYTES = 64 << 20


def make_approved_calls(turn_state: TurnState, decided: Json, changed_files: list[str]) -> End | None:
    """Make approved calls and add their results to the prompt; return the end of the turn, or None.

    `changed_files`: set while an entry with changed files is asked about again. Returns None if the model is
    to be called next. If a call needs another approval, the turn waits and stores the results of the other
    calls.
    """
    turn_state.remarks += decided.get("remarks", ())
    numbers: dict[int, int] = {}
    for index, call in _approved_calls(decided):
        numbers[index] = len(turn_state.results)
        if call.tool == PUBLISH:
            publish(turn_state, call, decided["at"], changed_files)
            numbers[index] = len(turn_state.results) - 1  # the last one: gates may add results before it
        else:
            turn_state.call_tool(call, decided["at"])
        turn_state.hidden_indexes.discard(numbers[index])
    bind_entries(turn_state, 0, decided["at"])
    if turn_state.pending_indexes and not turn_state.forced_end:
        _store_results(turn_state, decided["results"], numbers)
        return "waits"
    _insert_results(turn_state, numbers, decided["results"])
    return turn_state.forced_end or ("done" if turn_state.is_answered else None)


def _approved_calls(decided: Mapping[str, Any]) -> Iterator[tuple[int, ToolCall]]:
    """Yield the approved calls in their final form, each with the index of the result."""
    for item in decided.get("calls", ()):
        call = item["call"]
        args = item.get("args", call["args"])
        binds = item.get("binds", call["binds"])
        grant = {"id": call["id"], "by": item["by"], "entry": item["entry"], "binds": binds}
        grant |= {"sha256": action_digest(call["tool"], args), "is_edited": "args" in item and "binds" not in item}
        grant |= {"gate": call["gate"], "grants": call.get("grants", ())}
        yield item["place"], ToolCall(call["tool"], args, "", grant)


def _store_results(turn_state: TurnState, earlier_results: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into their slots among the results of earlier, unseen calls."""
    results = [*earlier_results]
    entries_by_number = {number: entry for entry, number in turn_state.pending_indexes.items()}
    for index, number in numbers.items():
        results[index] = turn_state.results[number]
        if number + 1 in entries_by_number:
            turn_state.pending_indexes[entries_by_number[number + 1]] = index + 1
    ids = list_call_ids(turn_state.task.begun) if turn_state.task else []
    turn_state.results, turn_state.shown_count = results, 0
    turn_state.call_ids = [*[""] * (len(results) - len(ids)), *ids]


def _insert_results(turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json]) -> None:
    """Put the results into the prompt.

    `render_earlier_results`: the results from which the prompt was built.
    """
    if not numbers:
        return
    inputs, made_numbers = turn_state.inputs, {*numbers.values()}
    if inputs.model.prompt == "values":
        slots = [
            index for index, item in enumerate(earlier_results) if not is_notice(item)
        ]  # notices have a key of their own
        results_by_slot = {slots.index(index): turn_state.results[number] for index, number in numbers.items()}
        turn_state.set_prompt(_fill_result_slots(inputs.prompt, results_by_slot))
    else:
        failed = [
            item for number, item in enumerate(turn_state.results) if number not in made_numbers and not item["success"]
        ]
        dialogue = _continue_dialogue(turn_state, numbers, earlier_results, [(item, "") for item in failed])
        turn_state.inputs = replace(inputs, dialogue=dialogue)
    turn_state.shown_count = len(turn_state.results)


def _continue_dialogue(
    turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json], failed: CallResults
) -> list[Message]:
    """Return the messages behind the prompt, each pending call with the result.

    `failed`: other results that the model must see.
    """
    inputs, dialogue = turn_state.inputs, drop_unanswered(turn_state.inputs.dialogue)
    render = partial(render_results, inputs.model, inputs.form, [*inputs.prompt, *dialogue])
    if not dialogue:  # a new conversation: its prompt shows the other results
        return render([*((turn_state.results[number], "") for number in sorted(numbers.values())), *failed])
    recorded = render(_pair_results(turn_state, {}, earlier_results))
    new_messages = render([*_pair_results(turn_state, numbers, earlier_results), *failed])
    return [*dialogue, *new_messages, *inputs.dialogue[len(dialogue) + len(recorded) :]]


def _pair_results(turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json]) -> CallResults:
    """Return all pending results, with the results of the calls just made in their slots."""
    open_request = turn_state.task.begun if turn_state.task else None
    dialogue = open_request.dialogue if open_request else None
    assert open_request, "a turn that goes on is for something"
    assert dialogue, "it goes on with what was said"
    first = len(earlier_results) - len(open_request.results)
    results = [
        _render_made(earlier_results[index], turn_state.results[numbers[index]])
        if index in numbers
        else earlier_results[index]
        for index in range(first, len(earlier_results))
    ]
    return pair_with_calls(open_request, dialogue, [*map(turn_state.render_result, results)])


def _render_made(pending: Json, result: Json) -> Json:
    """Return a call's result, with the arguments if a person changed them."""
    if result["args"] == pending["args"]:
        return result
    return {**result, "output": f"(made with other arguments: {to_line(result['args'])})\n{result['output']}"}


def _fill_result_slots(prompt: Sequence[Message], results: Mapping[int, Mapping[str, Any]]) -> list[Message]:
    """Return a program's prompt with the results in their slots."""
    values = parse(prompt[-1]["content"], limit_bytes=VALUES_LIMIT_BYTES)
    for index, result in results.items():
        values["results"][index] = result
    return [*prompt[:-1], {**prompt[-1], "content": to_line(values)}]


MADE_NOTE = "(it was made, as it was approved; what it gave is told beside this)"


def mark_calls_made(open_requests: Sequence[OpenRequest], ids: Collection[str]) -> tuple[OpenRequest, ...]:
    """Return an agent's open requests after failed turns made some of the pending calls."""
    return tuple(_mark_request_calls_made(open_request, ids) for open_request in open_requests)


def _mark_request_calls_made(open_request: OpenRequest, ids: Collection[str]) -> OpenRequest:
    indexes = {
        sub_request.key: sub_request.call - 1
        for sub_request in open_request.asked
        if NAME in sub_request.held and sub_request.held[NAME]["id"] in ids
    }
    results = tuple(
        {**result, "success": True, "output": MADE_NOTE} if index in indexes.values() else result
        for index, result in enumerate(open_request.results)
    )
    sub_requests = (
        replace(sub_request, end=sub_request.end or "answered", call=0) if sub_request.key in indexes else sub_request
        for sub_request in open_request.asked
    )
    return replace(open_request, asked=tuple(sub_requests), results=results) if indexes else open_request


def drop_used_approvals(state: AgentState, records: Iterable[Record]) -> AgentState:
    """Return the state of an abandoned turn's agent without the approvals used by the turn."""
    # Announced calls count even without a recorded end: they may have taken effect.
    announced = [record.kept[NAME] for record in records if isinstance(record, ToolStarted) and NAME in record.kept]
    used_grants = [item for grant in announced for item in list_grants(grant)]
    if not used_grants:
        return state
    requests = mark_calls_made(state.requests, {grant["id"] for grant in used_grants if grant["id"]})
    state_of_approvals = state.kept.get(NAME, {})
    preapprovals = [grant["entry"] for grant in used_grants if not grant["id"]]
    used = [*state_of_approvals.get("used", ()), *preapprovals]
    return replace(state, requests=requests, kept={**state.kept, NAME: {**state_of_approvals, "used": used}})


def list_grants(grant: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the approvals of a call: the first one, and those of further persons."""
    return [grant, *grant.get("grants", ())]


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
