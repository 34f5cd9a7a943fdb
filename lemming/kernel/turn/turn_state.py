"""Working state of a turn: staging of replies and calls, and the reasons for the end of the turn.

Nothing here touches the disk or reads a clock. A strategy decides the model calls and the end of the turn
(`lemming.kernel.turn.turn_loop`); all outside data comes from the turn's `AnswerSource`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lemming.kernel.base.contract import Keep, ToolCall, TurnReply
from lemming.kernel.base.errors import (
    OutOfCredits,
    ProviderError,
    RequestOverLimit,
    StoppedByGate,
)
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.listing import load_found_tools
from lemming.kernel.turn.forms.discovered_tools import list_earlier_found_tools
from lemming.kernel.turn.hook_table import entries_from_call, with_request_hooks
from lemming.kernel.turn.replies import read_reply
from lemming.kernel.turn.turn_effects import (
    Allowed,
    CallTool,
    Deferred,
    Effect,
    Rejected,
    TakeReply,
    Withdraw,
    WriteEntry,
    WriteFile,
    WriteMemory,
    WriteNotes,
)
from lemming.kernel.turn.turn_values import Answer
from lemming.kernel.turn.turn_writes import TurnWrites


class TurnState(TurnWrites):
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
            if index + 1 < len(reply.tool_calls) and not self._decides_calls:  # in the order of display
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
        notes = self._pass_notes(reply.notes) if self.hooks.chain and reply.notes else reply.notes
        self.notes = notes or self.notes

    @property
    def _decides_calls(self) -> bool:
        """True if a capability decides about calls: none may then start before the earlier ones have their results."""
        return self.hooks.chain is not None and CallTool in self.hooks.chain

    def perform(self, effect: Effect) -> Any:
        """Perform an effect that all interceptors agreed to, and return the answer."""
        match effect:
            case CallTool():
                return self._make_call(effect.call, effect.at)
            case WriteEntry():
                return effect.written or self._write_entry(effect.new, effect.at)
            case WriteMemory():
                return effect.value
            case WriteFile():
                return effect.file
            case WriteNotes():
                return effect.text
            case TakeReply():
                return effect.reply
            case Withdraw():
                return True
        raise TypeError(f"a turn performs no {type(effect).__name__}")

    def call_tool(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Call a tool and stage the file effects. `number`: number of the call in the reply."""
        self.call_numbers.set_pending(number)
        chain = self.hooks.chain
        if chain is None or CallTool not in chain:
            if (result := self._make_call(call, at)) is not None:
                self._take_result(call, result, at)
            return
        outcome = chain.dispatch(CallTool.from_call(call, at))
        match outcome:
            case Allowed(effect, answer) if isinstance(effect, CallTool):
                if answer is not None:
                    self._take_result(effect.call, answer, at)
            case Rejected(reason, is_final):
                if is_final:
                    self.fail(StoppedByGate(reason[:2000]))
                self.refuse_call(call, ToolResult(False, reason, outcome="refused"))
            case Deferred(reason):
                self.refuse_call(call, ToolResult(False, reason, outcome="deferred"))

    def _make_call(self, call: ToolCall, at: str) -> ToolResult | None:
        """Return the result of a call, recorded or live, or None for a call that delegates a request."""
        if any(handle_call(call, at) for handle_call in self.hooks.handle_call):
            return None
        staged, number = self._staged_with_labels(), self.call_numbers.assign(len(self.results))
        result = self.source.call_tool(number, call, at, staged)
        if self.source.had_side_effects(number):  # they are written: a later change is not the tool's
            self.written_ahead.update(staged)
            self.staged.clear()
        return result

    def _take_result(self, call: ToolCall, result: ToolResult, at: str) -> None:
        """Add the result of a call, and stage the files and entries that the call wrote."""
        index, number = len(self.results), self.call_numbers.last
        self.add_result(call.tool, call.args, result, call.id)
        if result.state:
            self.found_tools += load_found_tools(result.state)
        self._handle_result(index, call, result)
        if self.source.had_side_effects(number):
            self.external_results += [] if index in self.hidden_indexes else self.results[-1:]
            if result.outcome == "interrupted":
                self.results[-1]["unknown"] = self.inputs.call_id(number)
                self.remarks.append(f"{call.tool}: {result.output}")
        for after_call in self.hooks.after_call:
            after_call(number, call, result)
        effects = [*self._pass_files(result.effects, at)] if self.hooks.chain else result.effects
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

    def refuse_call(self, call: ToolCall, refusal: ToolResult) -> None:
        """Record a refused call, and inform the model and the observers of the turn."""
        self.source.refuse(self.call_numbers.assign(len(self.results)), call, refusal)
        self.add_result(call.tool, call.args, refusal, call.id)
        self.remarks.append(f"{call.tool}: {refusal.output}"[:500])
        self._handle_result(len(self.results) - 1, call, refusal)
