"""Approvals within a turn: make approved calls, ask about stopped ones, store pending ones. Pure.

`approvals.read_decisions` finds the approved calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.capabilities.approvals.approval_recovery import mark_calls_made
from lemming.capabilities.approvals.entry_approvals import bind_entries, publish, request_entry_approval
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.journal.person_requests import PUBLISH, SPEND
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.dialogue import CallResults, drop_unanswered, list_call_ids, pair_with_calls, render_results
from lemming.kernel.turn.guards import ApprovalRequest
from lemming.kernel.turn.notices import is_notice
from lemming.kernel.turn.turn_effects import AskPerson, Interception, Rejected, Suspended, WriteEntry
from lemming.kernel.turn.turn_interceptor import TurnInterceptor
from lemming.obligations.pending_approvals import NAME, PendingAction, action_digest, parse_pending_action
from lemming.obligations.request_deadlines import get_last_tick, parse_deadline_time

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

VALUES_LIMIT_BYTES = 64 << 20


class ApprovalsInterceptor(TurnInterceptor):
    """Interceptor of approvals for a turn.

    `snapshot`: state of requests outside of calls (`asked`), persons to ask about new items (`new`, `spend`,
    `askable`), decisions on calls, and preapprovals.
    """

    handles = (AskPerson,)

    def __init__(self, name: str, turn_state: TurnState, snapshot: Json) -> None:
        super().__init__(name, turn_state, snapshot)
        self._used_grants: list[tuple[Json, bool]] = []  # grants of the calls made, and True for side effects
        self._changed_files: list[str] = []  # files that changed since an entry was approved
        self._spending_requests: list[Json] = []  # payloads of requests to spend more
        self._written_requests: Sequence[OutboxEntry] = ()  # requests written at the end of the turn

    def on_turn_start(self) -> End | None:
        """Make the approved calls. Each is recorded like any call, and so never made twice."""
        if self.snapshot.get("only"):
            self.turn_state.only_asks = True
            return "waits"
        decided = self.snapshot.get("decided")
        return make_approved_calls(self.turn_state, decided, self._changed_files) if decided else None

    def after_reply(
        self, first: int, written: int, effects_before: Mapping[str, FileEffect], *, has_seen: bool
    ) -> None:
        """Bind pending entries to the contents of their attached files."""
        bind_entries(self.turn_state, first, self.turn_state.answers[-1].at)

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Record the grant of an approved call."""
        if NAME in result.state:
            self._used_grants.append((result.state[NAME], self.turn_state.source.had_side_effects(index)))

    def intercept(self, effect: AskPerson) -> Interception:
        """Ask persons about an entry. A result tells the model what it waits for."""
        subject = effect.subject
        if not isinstance(subject, WriteEntry):
            return Rejected(f"{effect.reason}: no person can be asked about this")
        approval = ApprovalRequest(effect.asked_by, effect.reason, effect.persons, effect.expires)
        new, at = subject.new, subject.at
        people = self.snapshot.get("askable", {}).get(approval.line, [])
        turn_state = self.turn_state
        index = len(turn_state.results)
        # The calls of this reply have their numbers already. A turn started by 0.2.0 keeps its numbering.
        number = turn_state.call_numbers.reserve(index) if self.snapshot.get("numbered") else index
        identity = f"{turn_state.inputs.tick}/{turn_state.inputs.agent.name}/{number}"
        request_entry_approval(turn_state, identity, new, approval, people, at, self._changed_files)
        return Suspended(effect)

    def pending_state(self, new: NewEntry) -> Json:
        """Return the pending action of an approval request."""
        return parse_pending_action(new.payload)

    def on_limit_reached(self, verdict: Json) -> None:
        """Ask for a raise of the limit that stops a model call.

        Pending and denied raises are not asked again.
        """
        line, turn_state = verdict["line"], self.turn_state
        question = self.snapshot.get("spend", {}).get(line)
        if not question or not question["people"]:
            return
        args = {**question["more"], "of": verdict["about"]}
        for sub_request in self._sub_requests:
            call = sub_request.held[NAME]
            if (call["tool"], call["gate"], call["args"]) == (SPEND, line, args) and sub_request.end != "approved":
                return
        agent, tick = turn_state.inputs.agent.name, turn_state.inputs.tick
        action = PendingAction.from_limit(tick, agent, args, line, verdict["why"])
        expires = (question["expires"],) if "expires" in question else ()
        amounts = verdict.get("amounts")
        self._spending_requests.append(
            action.build_request(question["people"], expires, self.snapshot["at"], amounts=amounts)
        )
        turn_state.asks_persons = True
        turn_state.only_asks = not (turn_state.answers or turn_state.results)

    @property
    def _sub_requests(self) -> list[SubRequest]:
        return [to_value(SubRequest, raw) for raw in self.snapshot.get("asked", ())]

    def extra_requests(self) -> list[Json]:
        """Return the payloads of requests to persons, to append to the turn's entries."""
        return [*self.snapshot.get("new", ()), *self._spending_requests]

    def on_requests_added(self, entries: Sequence[OutboxEntry]) -> None:
        """Note the entries that the requests became."""
        self._written_requests = entries

    def wait_reason(self) -> str:
        """Return the persons who must decide before anything is shown, as text."""
        if not self.turn_state.only_asks:
            return ""
        if self.turn_state.asks_persons:
            return self.turn_state.pause_reason
        names = sorted({name for entry in self._written_requests for name in entry.targets})
        return f"nothing is shown before {' or '.join(names)} decides"

    def update_agent_state(self, state: AgentState, status: Status, end: End) -> None:
        """End the wait for calls with side effects that a failed turn made."""
        if status == "failed":
            # The call took effect although its turn failed: its approval must not make it a second time.
            made_ids = {grant["id"] for grant, is_outside in self._used_grants if is_outside}
            state.requests = mark_calls_made(state.requests, made_ids)

    def save_state(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return the state of requests outside of calls, the used preapprovals, and the denials."""
        new = [
            SubRequest(
                request=entry.identity,
                to=to,
                until=get_last_tick(entry),
                held={NAME: parse_pending_action(entry.payload)},
                not_after=parse_deadline_time(entry.payload),
            )
            for entry in (self._written_requests if is_applied else ())
            for to in sorted(entry.targets)
        ]
        sub_requests = [*self.snapshot.get("asked", ()), *(item.as_json() for item in new)]
        # An approval used for a side effect, or for files that may exist, is used up even if the turn failed.
        used_entries = [grant["entry"] for grant, is_outside in self._used_grants if holds_all or is_outside]
        used_entries = [*self.snapshot.get("used", ()), *used_entries]
        state = {"asked": sub_requests, "used": used_entries, "denied": self.snapshot.get("denied", ())}
        return {key: value for key, value in state.items() if value}


# --- calls that were approved ---------------------------------------------------------------------


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
        turn_state.set_dialogue(
            _continue_dialogue(turn_state, numbers, earlier_results, [(item, "") for item in failed])
        )
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


# --- entries that wait ----------------------------------------------------------------------------
