"""Questions of a turn to persons: what waits, what was approved, and what is left for later turns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.jsontext import parse, to_line
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import PUBLISH
from lemming.kernel.journal.turn_report import End, Status
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.current_request import make_sub_request
from lemming.kernel.obligations.grants import (
    action_digest,
    find_changes_after_decision,
    list_grants,
    mark_calls_made,
    parse_pending_action,
)
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.dialogue import CallResults, drop_unanswered, list_call_ids, pair_with_calls, render_results
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY, is_notice
from lemming.kernel.turn.turn_writes import describe_entry

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


class TurnApprovals:
    """Questions of a turn to persons, and the calls and entries that persons approved.

    `snapshot`: approval requests that belong to no call of a tool, such as those to raise a limit (`asked`), persons to
    ask about new items (`new`, `spend`, `askable`), decisions on calls (`decided`), and preapprovals.
    """

    def __init__(self, turn_state: TurnState) -> None:
        self.turn_state, self.snapshot = turn_state, turn_state.inputs.given.get(DECISION_RULES, {})
        self._used_grants: list[tuple[Json, bool]] = []  # grants of the calls made, and True for side effects
        self._written_requests: Sequence[OutboxEntry] = ()  # requests written at the end of the turn

    def start(self) -> End | None:
        """Make the approved calls. Each is recorded like any call, and so never made twice."""
        if self.snapshot.get("only"):
            self.turn_state.show_nothing()
            return "waits"
        decided = self.snapshot.get("decided")
        return self._make_approved_calls(decided) if decided else None

    def _make_approved_calls(self, decided: Json) -> End | None:
        """Make approved calls and add their results to the prompt; return the end of the turn, or None.

        Returns None if the model is to be called next. If a call needs another approval, the turn waits and stores
        the results of the other calls.
        """
        turn_state, numbers = self.turn_state, dict[int, int]()
        turn_state.remark(*decided.get("remarks", ()))
        for item in decided.get("calls", ()):
            call, index, number = _to_approved_call(item), item["place"], len(turn_state.results.items)
            if call.tool == PUBLISH:
                self._publish(call, decided["at"])
                number = len(turn_state.results.items) - 1  # the last one: gates may add results before it
            else:
                turn_state.call_tool(call, decided["at"])
            numbers[index] = number
            turn_state.results.hide(number, is_hidden=False)
        self.bind_entries(0, decided["at"])
        if turn_state.pending_indexes and not turn_state.forced_end:
            store_results(turn_state, decided["results"], numbers)
            return "waits"
        insert_results(turn_state, decided["results"], numbers)
        return turn_state.forced_end or ("done" if turn_state.is_answered else None)

    def _publish(self, call: ToolCall, at: str) -> None:
        """Write an approved entry, past all gates but those that block; past none if its files have changed."""
        assert call.approved, "only an approved entry is published"
        turn_state = self.turn_state
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
        changed = find_changes_after_decision(call.approved, carried.files)
        written = new if changed else new._replace(payload=carried.payload)
        grant = None if changed else call.approved
        if entry := turn_state.stage_entry(written, at, grant=grant, changed_files=changed):
            if changed:  # and no gate asks again: it goes out as it is now
                (carried,) = turn_state.bind_files([entry.payload], at)
                turn_state.set_payload(-1, carried.payload)
            description = {**describe_entry(new), WRITTEN_ENTRY_KEY: entry.identity}
            turn_state.add_result(OUTBOX_ENTRIES, description, ToolResult(True, f"written: {entry.identity}"))

    def bind_entries(self, first: int, at: str) -> None:
        """Bind pending entries, from index `first` on, to the contents of their attached files.

        Called after all calls, which may have written these files.
        """
        turn_state, states = self.turn_state, self.turn_state.pending_states
        pending = [
            (index, entry.payload)
            for index, entry in enumerate(turn_state.entries[first:], first)
            if states.get(entry.identity, {}).get(DECISION_RULES, {}).get("tool") == PUBLISH
        ]
        if not pending:
            return
        bound_payloads = turn_state.bind_files([payload["call"]["args"]["payload"] for _, payload in pending], at)
        for (index, payload), carried in zip(pending, bound_payloads, strict=True):
            if carried.files:
                turn_state.set_payload(index, {**payload, "call": {**payload["call"], "binds": {**carried.files}}})

    def record_result(self, result: ToolResult, *, had_side_effects: bool) -> None:
        """Record the grant of an approved call."""
        if DECISION_RULES in result.state:
            self._used_grants.append((result.state[DECISION_RULES], had_side_effects))

    def make_requests(self, first: int, room: int) -> list[OutboxEntry]:
        """Return the requests to persons after the turn's first `first` entries, at most `room`."""
        payloads = [*self.snapshot.get("new", ()), *(new.payload for new in self.turn_state.last_requests)]
        inputs, at = self.turn_state.inputs, str(self.snapshot.get("at", ""))
        self._written_requests = [
            OutboxEntry(inputs.entry_id(number), inputs.tick, inputs.agent.name, "request", payload, [], at)
            for number, payload in enumerate(payloads[:room], first)
        ]
        return [*self._written_requests]

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
            outside_grants = [grant for grant, is_outside in self._used_grants if is_outside]
            made_ids = {item["id"] for grant in outside_grants for item in list_grants(grant)}
            state.requests = mark_calls_made(state.requests, made_ids)

    def save_state(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return the state of requests outside of calls, the used preapprovals, and the denials."""
        new = [
            make_sub_request(entry, to, {DECISION_RULES: parse_pending_action(entry.payload)})
            for entry in (self._written_requests if is_applied else ())
            for to in sorted(entry.targets)
        ]
        sub_requests = [*self.snapshot.get("asked", ()), *(item.as_json() for item in new)]
        # An approval used for a side effect, or for files that may exist, is used up even if the turn failed.
        used_grants = [grant for grant, is_outside in self._used_grants if holds_all or is_outside]
        used_entries = [item["entry"] for grant in used_grants for item in list_grants(grant)]
        used_entries = [*self.snapshot.get("used", ()), *used_entries]
        state = {"asked": sub_requests, "used": used_entries, "denied": self.snapshot.get("denied", ())}
        return {key: value for key, value in state.items() if value}


def _to_approved_call(item: Json) -> ToolCall:
    """Return an approved call in its final form."""
    call = item["call"]
    args, binds = item.get("args", call["args"]), item.get("binds", call["binds"])
    grant = {"id": call["id"], "by": item["by"], "entry": item["entry"], "binds": binds}
    grant |= {"sha256": action_digest(call["tool"], args), "is_edited": "args" in item and "binds" not in item}
    grant |= {"gate": call["gate"], "grants": call.get("grants", ())}
    return ToolCall(call["tool"], args, "", grant)


VALUES_LIMIT_BYTES = 64 << 20


def store_results(turn_state: TurnState, earlier_results: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into their slots among the results of earlier, unseen calls."""
    results = [*earlier_results]
    for index, number in numbers.items():
        results[index] = turn_state.results.items[number]
    turn_state.move_awaited({number + 1: index + 1 for index, number in numbers.items()})
    ids = list_call_ids(turn_state.inputs.current_request.begun) if turn_state.inputs.current_request else []
    turn_state.results.replace(results, [*[""] * (len(results) - len(ids)), *ids])


def insert_results(turn_state: TurnState, earlier_results: Sequence[Json], numbers: Mapping[int, int]) -> None:
    """Put the results into the prompt. `earlier_results`: the results from which the prompt was built."""
    if not numbers:
        return
    inputs, results = turn_state.inputs, turn_state.results.items
    if inputs.model.prompt == "values":  # a program has the results in slots, and notices under a key of their own
        values = parse(inputs.prompt[-1]["content"], limit_bytes=VALUES_LIMIT_BYTES)
        slots = [index for index, item in enumerate(earlier_results) if not is_notice(item)]
        for index, number in numbers.items():
            values["results"][slots.index(index)] = results[number]
        turn_state.set_prompt([*inputs.prompt[:-1], {**inputs.prompt[-1], "content": to_line(values)}])
    else:
        made_numbers = {*numbers.values()}
        failed = [
            (item, "") for number, item in enumerate(results) if number not in made_numbers and not item["success"]
        ]
        turn_state.set_prompt(inputs.prompt, _continue_dialogue(turn_state, numbers, earlier_results, failed))
    turn_state.results.mark_shown()


def _continue_dialogue(
    turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json], failed: CallResults
) -> list[Message]:
    """Return the messages behind the prompt: pending calls with results. `failed`: other results for the model."""
    inputs, dialogue = turn_state.inputs, drop_unanswered(turn_state.inputs.dialogue)
    render = partial(render_results, inputs.model, inputs.form, [*inputs.prompt, *dialogue])
    if not dialogue:  # a new conversation: its prompt shows the other results
        return render([*((turn_state.results.items[number], "") for number in sorted(numbers.values())), *failed])
    recorded = render(_pair_results(turn_state, {}, earlier_results))
    new_messages = render([*_pair_results(turn_state, numbers, earlier_results), *failed])
    return [*dialogue, *new_messages, *inputs.dialogue[len(dialogue) + len(recorded) :]]


def _pair_results(turn_state: TurnState, numbers: Mapping[int, int], earlier_results: Sequence[Json]) -> CallResults:
    """Return all pending results, with the results of the calls just made in their slots."""
    open_request = turn_state.inputs.current_request.begun if turn_state.inputs.current_request else None
    dialogue = open_request.dialogue if open_request else None
    assert open_request, "a continued turn has a request"
    assert dialogue, "a continued turn has a dialogue"
    results = []
    for index in range(len(earlier_results) - len(open_request.results), len(earlier_results)):
        result = turn_state.results.items[numbers[index]] if index in numbers else earlier_results[index]
        if result["args"] != earlier_results[index]["args"]:  # a person changed them
            note = f"(made with other arguments: {to_line(result['args'])})"
            result = {**result, "output": f"{note}\n{result['output']}"}
        results.append(turn_state.render_result(result))
    return pair_with_calls(open_request, dialogue, results)
