"""Working state of a turn: staging of replies and calls, and the reasons for the end of the turn.

Nothing here touches the disk or reads a clock. A strategy decides the model calls and the end of the turn
(`lemming.kernel.turn.turn_loop`); all outside data comes from the turn's `AnswerSource`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.contract import Keep, NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import (
    LemmingError,
    OutOfCredits,
    ProviderError,
    RequestOverLimit,
    StoppedByGate,
    ToolError,
    TurnTooLong,
)
from lemming.kernel.base.times.parse_times import normalize_moment
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.memory import make_memory_effect
from lemming.kernel.messages import WAITING_FROM, OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.listing import load_found_tools
from lemming.kernel.turn.addressing import find_unknown_targets
from lemming.kernel.turn.forms.discovered_tools import list_earlier_found_tools
from lemming.kernel.turn.hook_table import entries_from_call, next_entry_id, with_request_hooks
from lemming.kernel.turn.repeated_calls import repetition_hint
from lemming.kernel.turn.replies import read_reply
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES, RESULTS_CHARS, render_result, tool_use_json
from lemming.kernel.turn.turn_context import Rejected
from lemming.kernel.turn.turn_state_values import TurnStateValues
from lemming.kernel.turn.turn_values import Answer


@accept_old_names
class TurnState(TurnStateValues):
    """State of a turn, with the methods that apply replies and calls to the state."""

    __slots__ = ()

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, by: str = ""
    ) -> Answer:
        """Call the model once. Raises the errors of `AnswerSource.ask`.

        `by`: the capability that calls the model for itself; such an answer is not a reply.
        """
        if self.task and (reason := self.task.over_budget_reason(self.answers, self.write_off)):
            raise RequestOverLimit(reason)
        try:
            answer = self.source.ask(self.call_count, messages, model, schema)
        except (OutOfCredits, ProviderError) as error:
            self.failed_attempts += 1  # the pending result had its number
            self.write_off = self.write_off.add(WriteOff.from_json(error.lost))
            self.verdicts += error.verdicts
            match error.verdicts[-1]["then"] if error.verdicts else "":
                case "stop":
                    raise StoppedByGate(error.message) from error
                case "ask":
                    for on_limit_reached in self.hooks.on_limit_reached:
                        on_limit_reached(error.verdicts[-1])
            raise
        self.answers.append(answer)
        if by:
            self.auxiliary_answers.setdefault(by, []).append(answer)
        self.verdicts += answer.verdicts
        self.write_off = self.write_off.add(WriteOff.from_json(answer.lost)) if answer.lost else self.write_off
        return answer

    def read_reply(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Return the reply in an answer. Raises `ContractError` for an invalid reply."""
        has_written, earlier_tools = bool(self.entries), list_earlier_found_tools(self.inputs)
        return read_reply(
            self.inputs,
            self.hooks,
            answer,
            keep=keep,
            has_written=has_written,
            found_tools=[*earlier_tools, *self.found_tools],
        )

    def stage_reply(self, reply: TurnReply, *, has_seen: bool = True) -> None:
        """Stage the entries, tool calls and memories of a reply.

        `has_seen`: the reply's author had seen all results.
        """
        if has_seen:
            self.shown_count, self.accepted_count = len(self.results), self.accepted_count + 1
        if self.results:
            self.repeats.begin_reply()
        first, at, room = len(self.entries), self.answers[-1].at, self.remaining_entries
        if len(reply.outbox_entries) > room:
            self.remarks.append(f"outbox_entries: {len(reply.outbox_entries) - room} beyond the turn's limit")
        for new in reply.outbox_entries[:room]:
            if self.repeats.entries and self.repeats.is_duplicate_entry(new, self.entries):
                self.remarks.append("outbox_entries: one that is equal to another of the turn was dropped")
                continue
            if entry := self.stage_entry(new, at):
                self.repeats.entries[entry.id] = new
                if "target" in new.payload and self.inputs.loops:
                    self._report_unknown_targets(entry, new)
        written = len(self.entries) - first
        if reply.tool_calls:
            self.call_numbers.begin_reply(len(self.results), len(reply.tool_calls))
        for index, call in enumerate(reply.tool_calls):
            if self.is_handed_off or self.forced_end:
                reason = "the request was handed on" if self.is_handed_off else "the turn was over"
                self.remarks.append(f"{call.tool}: not called, {reason}")
                continue
            number = self.call_numbers.get_reply_number(index)
            if index + 1 < len(reply.tool_calls) and not self.hooks.before_call:  # in the order of display
                parallel_calls = self.call_numbers.get_recorded_number(number, len(self.results))
                self.source.start_calls(parallel_calls, reply.tool_calls[index:], at, self._staged_with_labels)
            self.call_tool(call, at, number)
        effects_before = {**self.staged} if self.hooks.after_reply else {}
        for update in reply.memory_updates:  # after the tools: of two values for a key, these count
            self.stage_memory(update.key, update.value, at)
        if self.hooks.attach_digests:
            payloads = self.hooks.payloads_with_digests([entry.payload for entry in self.entries[first:]], at)
            entries = zip(self.entries[first:], payloads, strict=True)
            self.entries[first:] = [
                replace(entry, payload=payload_with_digests.payload) for entry, payload_with_digests in entries
            ]
        for after_reply in self.hooks.after_reply:
            after_reply(first, written, effects_before, has_seen=has_seen)
        for notice in self.notices.to_results(reply) if reply.left_out or self.notices.texts else ():
            self.results.append(notice)
            self.call_ids.append("")
        self.remarks += [*reply.remarks, *(f"left out: {reason}"[:500] for reason in reply.left_out)]
        notes = self.hooks.turn_guard.check_notes(reply.notes) if self.hooks.turn_guard else reply.notes
        self.notes = notes or self.notes

    def _report_unknown_targets(self, entry: OutboxEntry, new: NewEntry) -> None:
        """Remark on targets of an entry that name no agent, in case the entry was meant for somebody."""
        reasons = find_unknown_targets(entry, self.source.everyone, self.staged)
        for reason in reasons.values():
            self.remarks.append(f"{OUTBOX_ENTRIES}: {reason}"[:500])
            self.notices.add(f"Your entry {entry.id} reached nobody by its target: {reason}")
        if reasons and len(reasons) == len(entry.targets):
            self.misaddressed_entries[entry.id] = new

    @property
    def remaining_entries(self) -> int:
        """Number of entries that the turn may still write."""
        return self.inputs.agent.turn.max_entries - len(self.entries)

    def stage_entry(
        self, new: NewEntry, at: str, *, by_engine: bool = False, is_approved: bool = False, alone: bool = False
    ) -> OutboxEntry | None:
        """Stage an entry with known fields filled in.

        A rejected entry adds a result with the reason, and returns None.
        """
        for complete_entry in self.hooks.complete_entry:
            if isinstance(completed := complete_entry(new, alone=alone), Rejected):
                self._refuse_entry(new, {}, ToolResult(False, completed.reason))
                return None
            new = completed
        for before_entry in self.hooks.before_entry if not by_engine else ():
            if isinstance(allowed := before_entry(new, at), Rejected):
                self._refuse_entry(new, {"kind": new.kind}, ToolResult(False, allowed.reason, outcome="refused"))
                return None
            new = allowed
        if self.hooks.turn_guard and not by_engine:
            checked = self.hooks.turn_guard.check_entry(new, at, is_approved=is_approved)
            if checked is None:
                return None
            new = checked
        identity = self.next_id(WAITING_FROM if self.reveal_time(new.payload, at) else 0)
        entry = self.to_entry(new, identity, at)
        self.entries.append(entry)
        return entry

    def _refuse_entry(self, new: NewEntry, args: Json, refusal: ToolResult) -> None:
        """Inform the model of a rejected entry. The same entry again counts like a repeated call."""
        self.add_result(OUTBOX_ENTRIES, {**args, "target": new.payload.get("target")}, refusal)
        self._handle_result(len(self.results) - 1, ToolCall(OUTBOX_ENTRIES, new._asdict()), refusal)

    def to_entry(self, new: NewEntry, identity: str, at: str) -> OutboxEntry:
        """Return the outbox entry of a new entry."""
        tick, name = self.inputs.tick, self.inputs.agent.name
        return OutboxEntry(identity, tick, name, new.kind, new.payload, new.tags, at)

    def next_id(self, first: int = 0) -> str:
        """Return the id of the next entry. Ids of withdrawn entries are free."""
        used_ids = [entry.id for entry in self.entries]
        return next_entry_id(self.inputs, first + len(used_ids), used_ids)

    def reveal_time(self, payload: dict[str, Any], at: str) -> str:
        """Return the future time before which an entry stays hidden, or an empty string."""
        time = normalize_moment(payload.get("not_before"))
        if "not_before" in payload and not time:
            problem = "payload.not_before is no moment (write 2026-12-01T12:00:00Z): the entry is shown at once"
            self.remarks.append(f"{OUTBOX_ENTRIES}: {problem}")
            self.notices.add(problem)
        return time if time > at else ""

    def stage_memory(self, key: str, value: Any, at: str) -> None:
        """Stage a memory, or inform the model of the reason against it."""
        try:
            if key in self.inputs.damaged:
                raise ToolError(f'memory "{key}": its file is damaged; a person must repair or remove it')
            if self.hooks.turn_guard:
                value = self.hooks.turn_guard.check_memory(key, value)
            is_from_reply = self.hooks.turn_guard is None
            effect = make_memory_effect(self.inputs.agent.name, key, value, at, is_from_reply=is_from_reply)
        except ToolError as error:
            self.remarks.append(f"not kept: {error}"[:500])
            self.notices.add(str(error))
        else:
            path = effect.path_key
            self.repeats.record_memory(key, value)
            self.memory[path] = self.staged[path] = effect

    def call_tool(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Call a tool and stage the file effects. `number`: number of the call in the reply."""
        self.call_numbers.set_pending(number)
        for before_call in self.hooks.before_call:
            if isinstance(allowed := before_call(call), Rejected):
                self.refuse_call(call, ToolResult(False, allowed.reason, outcome="refused"))
                return
            call = allowed
        if any(handle_call(call, at) for handle_call in self.hooks.handle_call):
            return
        index, staged = len(self.results), self._staged_with_labels()
        call = self.hooks.turn_guard.check_call(call) if self.hooks.turn_guard else call
        number = self.call_numbers.assign(index)
        result = self.source.call_tool(number, call, at, staged)
        result = self.hooks.turn_guard.check_result(call, result) if self.hooks.turn_guard else result
        self.add_result(call.tool, call.args, result, call.id)
        if result.state:
            self.found_tools += load_found_tools(result.state)
        self._handle_result(index, call, result)
        if self.source.had_side_effects(number):  # they are written: a later change is not the tool's
            self.written_ahead.update(staged)
            self.staged.clear()
            self.external_results += [] if index in self.hidden_indexes else self.results[-1:]
            if result.outcome == "interrupted":
                self.results[-1]["unknown"] = self.inputs.call_id(number)
                self.remarks.append(f"{call.tool}: {result.output}")
        for after_call in self.hooks.after_call:
            after_call(number, call, result)
        effects = self.hooks.turn_guard.check_effects(result.effects, at) if self.hooks.turn_guard else result.effects
        self.staged |= {effect.path_key: effect for effect in effects}
        if result.verdicts:
            self.verdicts += map(GateVerdict.as_json, result.verdicts)
        if result.passed_on:
            self.transferred |= {effect.path_key: result.passed_on for effect in result.effects}
        call_entries = entries_from_call(call) if result.success else ()
        if (excess := len(result.entries) - self.remaining_entries) > 0 and not result.entries_by:
            self.remarks.append(f"{call.tool}: {excess} entries beyond the turn's limit were not written")
        # A capability's entries (approval requests) always have room: the call would wait for nothing.
        room = self.remaining_entries if not result.entries_by else len(result.entries)
        for new in (*result.entries[:room], *call_entries):
            alone = self.is_answered and new.kind == "request"  # otherwise it would end with the answered request
            entry = self.stage_entry(new, at, by_engine=bool(result.entries_by), alone=alone)
            if entry and result.outcome == "pending":  # another result took its place
                self.hooks = with_request_hooks(self)
                self.pending_indexes[entry.identity] = len(self.results)
                if owner := result.entries_by:
                    self.pending_states[entry.identity] = {owner: self.hooks.interceptors[owner].pending_state(new)}

    def _staged_with_labels(self) -> dict[str, FileEffect]:
        """Return the staged files as a call sees and may write them, with label files."""
        return self.hooks.label_staged_files({**self.staged})

    def refuse_call(self, call: ToolCall, refusal: ToolResult) -> None:
        """Record a refused call, and inform the model and the observers of the turn."""
        self.source.refuse(self.call_numbers.assign(len(self.results)), call, refusal)
        self.add_result(call.tool, call.args, refusal, call.id)
        self.remarks.append(f"{call.tool}: {refusal.output}"[:500])
        self._handle_result(len(self.results) - 1, call, refusal)

    def fail(self, error: LemmingError) -> End:
        """End the turn as failed."""
        self.forced_end, self.stop_error = "failed", error
        return "failed"

    def _handle_result(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Apply the consequences of a result: the end of the turn, or a repetition."""
        if not result.success and result.on_error == "skip":
            self.hidden_indexes.add(index)
        elif not result.success and result.on_error == "stop":
            if result.outcome == "skipped":
                self.forced_end, self.stop_error = "deadline", TurnTooLong(result.output)
            else:
                is_gates = any(verdict.then == "stop" for verdict in result.verdicts)
                reason = f"{call.tool} ends the turn when it fails: {result.output}"[:2000]
                self.fail(StoppedByGate(reason) if is_gates else ToolError(reason))
        elif (count := self.repeats.count(call, result)) == self.loops.warn_after:
            self.notices.add(repetition_hint(call.tool, count))
        elif count >= self.loops.stop_after and self._can_continue:
            self.forced_end, self.shown_count = ("repeats", len(self.results))  # no news for its next turn
            self.remarks.append(f"{call.tool}: called again and again with the same arguments and result")

    @property
    def _can_continue(self) -> bool:
        """True if the turn would ask for another reply. A recorded turn continues as recorded."""
        # A recorded question may belong to a capability.
        has_recorded_answer = not self.inputs.given and self.source.has_answer(self.call_count)
        return self.accepted_count < self.inputs.max_steps and not has_recorded_answer

    def add_result(
        self, tool: str, args: dict[str, Any], result: ToolResult, call_id: str = "", *, is_entry: bool = False
    ) -> None:
        """Add a result to show to the model next. `call` is the backend's id of the call, if any.

        `is_entry`: True if an entry asks a person and no tool was called.
        """
        room = max(RESULTS_CHARS - sum(len(result["output"]) for result in self.unshown_results), 0)
        self.results.append(render_result(tool, args, result, room))
        self.call_ids.append(call_id)
        if not is_entry:
            self.tools_used.append(tool_use_json(tool, result))
        if tool == OUTBOX_ENTRIES and not result.success and result.outcome != "pending":
            reason = next(iter(result.output.splitlines()), "it does not say why")
            self.remarks.append(f"{tool}: {reason}"[:500])
