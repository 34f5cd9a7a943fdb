"""Working state of a turn: staging of replies and calls, and the reasons for the end of the turn.

Nothing here touches the disk or reads a clock. A strategy decides the model calls and the end of the turn
(`lemming.kernel.turn.turn_loop`); all outside data comes from the turn's `AnswerSource`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.base.contract import Keep, ToolCall, TurnReply
from lemming.kernel.base.errors import OutOfCredits, ProviderError, RequestOverLimit, StoppedByGate
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.listing import load_found_tools
from lemming.kernel.turn import turn_effects as effects
from lemming.kernel.turn.replies import read_reply
from lemming.kernel.turn.turn_values import Answer, PayloadWithDigests
from lemming.kernel.turn.turn_writes import TurnWrites

NOTHING_CARRIED_OUT = effects.CarriedOut((), (), {})


class TurnState(TurnWrites):
    """State of a turn, with the methods that apply replies and calls to the state."""

    __slots__ = ()

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, by: str = ""
    ) -> Answer:
        """Call the model once. Raises the errors of `AnswerSource.ask`.

        `by`: the capability that calls the model for itself; such an answer is not a reply.
        """
        if effects.AskModel not in self.chain.handled:
            return self._ask_model(messages, model, schema, by)
        match self.chain.dispatch(effects.AskModel(messages=messages, model=model, schema=schema, asked_by=by)):
            case effects.Allowed(_, answer):
                checked: Answer = answer
                return checked
            case effects.Suspended(person_question):
                self.asks_persons = True
                raise RequestOverLimit(f"{person_question.reason}: a person is asked first")
            case effects.Rejected(reason) | effects.Deferred(reason):
                raise RequestOverLimit(reason)

    def _ask_model(
        self, messages: Sequence[Message], model: str, schema: dict[str, Any] | None, asked_by: str
    ) -> Answer:
        """Ask a question that all capabilities agreed to."""
        request = self.inputs.current_request
        if request and (reason := request.over_budget_reason(self.answers, self.write_off)):
            raise RequestOverLimit(reason)
        try:
            answer = self.source.ask(self.call_count, [*messages], model, schema)
        except (OutOfCredits, ProviderError) as error:
            self.failed_attempts += 1  # the pending result had its number
            self.write_off = self.write_off.add(WriteOff.from_json(error.lost))
            self.verdicts += error.verdicts
            match error.verdicts[-1]["then"] if error.verdicts else "":
                case "stop":
                    raise StoppedByGate(error.message) from error
                case "ask":
                    question = effects.AskModel(messages=messages, model=model, schema=schema, asked_by=asked_by)
                    self._ask_to_spend(question, error.verdicts[-1])
            raise
        answer.asked_by = asked_by
        self.answers.append(answer)
        self.verdicts += answer.verdicts
        self.write_off = self.write_off.add(WriteOff.from_json(answer.lost)) if answer.lost else self.write_off
        return answer

    def _ask_to_spend(self, question: effects.AskModel, verdict: Json) -> None:
        """Ask a person to raise the limit that stopped a question to a model."""
        effect = effects.AskPerson(
            subject=question, asked_by=verdict["line"], reason=verdict["why"], facts={"verdict": verdict}
        )
        outcome = self.chain.dispatch(effect)
        if isinstance(outcome, effects.Suspended) and outcome.request:
            self.last_requests.append(outcome.request)
            self.asks_persons, self.only_asks = True, not (self.answers or self.results.items)

    def _ask_person(self, question: effects.AskPerson) -> effects.Outcome:
        """Ask persons about a call. The call then carries the question, and waits or is made with their approval."""
        if not isinstance(question.subject, effects.CallTool):
            return effects.Rejected(f"{question.reason}: a person must approve, and nothing here asks persons")
        effect = question.subject
        self.results.numbers.questions = (*self.results.numbers.questions, question)
        number, staged = self.results.numbers.peek(), self.stage_labels()
        if self.source.is_approved(number, effect.call, effect.at, staged, self.results.numbers.questions):
            self.results.numbers.approved += 1
            return effects.Allowed(question)
        return effects.Suspended(question)

    def read_reply(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Return the reply in an answer. Raises `ContractError` for an invalid reply."""
        return read_reply(self, answer, keep)

    def stage_reply(self, reply: TurnReply, *, has_seen: bool = True) -> None:
        """Stage the entries, tool calls and memories of a reply. `has_seen`: the author had seen all results."""
        if has_seen:
            self.results.shown_count, self.accepted_count = len(self.results.items), self.accepted_count + 1
        if self.results.items:
            self.repeats.begin_reply()
        at = self.answers[-1].at
        if effects.CarryOut not in self.chain.handled:
            self._carry_out(reply, at)
        else:
            self.chain.dispatch(effects.CarryOut(reply=reply, at=at, has_seen=has_seen))
        for notice in self.results.notices.to_results(reply) if reply.left_out or self.results.notices.texts else ():
            self.results.add(notice)
        self.remarks += [*reply.remarks, *(f"left out: {reason}"[:500] for reason in reply.left_out)]
        notes = reply.notes
        if notes and effects.WriteNotes in self.chain.handled:
            passed = self.chain.decide(effects.WriteNotes(text=notes))
            notes = passed.text if isinstance(passed, effects.WriteNotes) else ""
        if notes:
            self.report_fields["notes"] = notes

    def _carry_out(self, reply: TurnReply, at: str) -> effects.CarriedOut:
        first, room = len(self.entries), self.remaining_entries
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
        written = len(self.entries)
        if reply.tool_calls:
            self.results.numbers.begin_reply(len(reply.tool_calls))
        for index, call in enumerate(reply.tool_calls):
            if self.is_handed_off or self.forced_end:
                reason = "the request was handed on" if self.is_handed_off else "the turn was over"
                self.remarks.append(f"{call.tool}: not called, {reason}")
                continue
            number = self.results.numbers.get_reply_number(index)
            # Where a capability decides about calls, none may start before the earlier ones have their results.
            if index + 1 < len(reply.tool_calls) and effects.CallTool not in self.chain.handled:
                parallel_calls = self.results.numbers.get_recorded_number(number)
                self.source.start_calls(parallel_calls, reply.tool_calls[index:], at, self.stage_labels)
            self.call_tool(call, at, number)
        is_observed = effects.CarryOut in self.chain.handled
        files_before, memories_before = ({**self.staged}, {**self.memory}) if is_observed else ({}, {})
        for update in reply.memory_updates:  # after the tools: of two values for a key, these count
            self.stage_memory(update.key, update.value, at)
        if effects.BindFiles in self.chain.handled:
            entries = self.entries[first:]
            payloads = self.bind_files([entry.payload for entry in entries], at)
            self.entries[first:] = [
                replace(entry, payload=bound.payload) for entry, bound in zip(entries, payloads, strict=True)
            ]
        if self.approvals:
            self.approvals.bind_entries(first, self.answers[-1].at)
        if not is_observed:
            return NOTHING_CARRIED_OUT
        staged_memories = [path for path, file in self.memory.items() if memories_before.get(path) is not file]
        memories = {path: files_before.get(path) for path in staged_memories}
        reply_entries = [entry.identity for entry in self.entries[first:written]]
        return effects.CarriedOut(tuple(self.entries[first:]), reply_entries, memories)

    def bind_files(self, payloads: Sequence[Json], at: str) -> Sequence[PayloadWithDigests]:
        """Return payloads with the digests of their attached files."""
        if effects.BindFiles in self.chain.handled:
            outcome = self.chain.dispatch(effects.BindFiles(payloads=payloads, at=at))
            if isinstance(outcome, effects.Allowed):
                bound: Sequence[PayloadWithDigests] = outcome.answer
                return bound
        return [PayloadWithDigests(payload) for payload in payloads]

    def perform(self, effect: effects.Effect) -> Any:
        """Perform an effect that all interceptors agreed to, and return the answer."""
        match effect:
            case effects.CallTool():
                return self._make_call(effect.call, effect.at)
            case effects.WriteEntry():
                return effect.written or self._write_entry(effect.new, effect.at)
            case effects.CheckEntries():
                return [*effect.entries]
            case effects.CarryOut():
                return self._carry_out(effect.reply, effect.at)
            case effects.BindFiles():
                return [PayloadWithDigests(payload) for payload in effect.payloads]
            case effects.AskModel():
                return self._ask_model(effect.messages, effect.model, effect.schema, effect.asked_by)
            case effects.EndTurn():
                return self._leave(effect)
            case effects.AskPerson():
                return self._ask_person(effect)
            case effects.Withdraw():
                return self._withdraw(effect)
            case (
                effects.WriteMemory()
                | effects.WriteFile()
                | effects.WriteNotes()
                | effects.Seal()
                | effects.TakeReply()
                | effects.TakeResult()
                | effects.ShowResult()
            ):
                return True  # the turn goes on with the effect as it was passed on
        raise TypeError(f"a turn performs no {type(effect).__name__}")

    def call_tool(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Call a tool and stage the file effects. `number`: number of the call in the reply."""
        self.results.numbers.begin_call(number)
        if effects.CallTool not in self.chain.handled:
            self._take_result(call, self._make_call(call, at), at)
            return
        number, before = self.results.numbers.peek(), (len(self.results.items), len(self.entries))
        match self.chain.dispatch(effects.CallTool.from_call(call, at)):
            case effects.Suspended(effects.AskPerson(subject=effects.CallTool() as waiting) as question):
                if question in self.results.numbers.questions:
                    self._take_result(waiting.call, self._make_call(waiting.call, at), at)
                else:  # without its question the call would be made at once
                    reason = f"{question.reason}: a person must approve, and nobody was asked"
                    self.refuse_call(call, ToolResult(False, reason, outcome="refused"))
            case effects.Allowed(effect, answer) if isinstance(effect, effects.CallTool):
                if isinstance(answer, ToolResult):
                    if number != self.results.numbers.last:  # a capability answered, and no tool was called
                        number = self.results.numbers.assign()
                        self.source.refuse(number, effect.call, answer, self.results.numbers.approved)
                    self._take_result(effect.call, answer, at)
                elif before == (
                    len(self.results.items),
                    len(self.entries),
                ):  # neither a result nor a question to others
                    self.refuse_call(call, ToolResult(False, "a capability gave no result of the call"))
            case effects.Suspended(effects.AskPerson(subject=effects.WriteEntry() as entry)) as stopped:
                self._report_stopped_entry(entry.new, stopped, at)
            case effects.Rejected() | effects.Deferred() as refusal:
                self._fail_if_final(refusal)
                self.refuse_call(call, ToolResult(False, refusal.reason, outcome=refusal.outcome))

    def _make_call(self, call: ToolCall, at: str) -> ToolResult:
        """Return the result of a call, recorded or live. Until persons approve, that of a call that waits."""
        staged, number = self.stage_labels(), self.results.numbers.assign()
        questions, approved = self.results.numbers.questions, self.results.numbers.approved
        result = self.source.call_tool(number, call, at, staged, questions, approved)
        if self.source.had_side_effects(number):
            self.mark_written_ahead(staged)
        return result

    def _take_result(self, call: ToolCall, result: ToolResult, at: str) -> None:
        """Add the result of a call, and stage the files and entries that the call wrote."""
        number, index = self.results.numbers.last, len(self.results.items)
        had_side_effects = self.source.had_side_effects(number)
        if self.approvals:
            self.approvals.record_result(result, had_side_effects=had_side_effects)
        if effects.TakeResult in self.chain.handled:
            effect = effects.TakeResult(
                call=effects.CallTool.from_call(call, at), result=result, had_side_effects=had_side_effects
            )
            passed = self.chain.decide(effect)
            if isinstance(passed, effects.TakeResult):
                result = passed.result
            else:
                result = replace(result, success=False, output=f"[withheld: {passed.reason}]")
        self.add_result(call.tool, call.args, result, call.id)
        if result.state:
            self.results.found_tools += load_found_tools(result.state)
        self._handle_result(index, call, result)
        if had_side_effects:
            self.results.external += [] if index in self.results.hidden else self.results.items[-1:]
            if result.outcome == "interrupted":
                self.results.items[-1]["unknown"] = self.inputs.call_id(number)
                self.remarks.append(f"{call.tool}: {result.output}")
        is_decided = not self.chain.handled.isdisjoint((effects.WriteEntry, effects.WriteMemory, effects.WriteFile))
        files = [*self._pass_files(result.effects, at)] if is_decided else result.effects
        self.staged |= {file.path_key: file for file in files}
        if result.verdicts:
            self.verdicts += map(GateVerdict.as_json, result.verdicts)
        if result.passed_on:
            self.transferred |= {effect.path_key: result.passed_on for effect in result.effects}
        if (excess := len(result.entries) - self.remaining_entries) > 0 and not result.entries_by:
            self.remarks.append(f"{call.tool}: {excess} entries beyond the turn's limit were not written")
        # A capability's entries (approval requests) always have room: the call would wait for nothing.
        room = self.remaining_entries if not result.entries_by else len(result.entries)
        for new in result.entries[:room]:
            alone = self.is_answered and new.kind == "request"  # otherwise it would end with the answered request
            entry = self.stage_entry(new, at, by_engine=bool(result.entries_by), alone=alone)
            if entry and result.outcome == "pending":  # another result took its place
                self.await_answer(entry, result.entries_by)

    def refuse_call(self, call: ToolCall, refusal: ToolResult) -> None:
        """Record a refused call, and inform the model and the observers of the turn."""
        number = self.results.numbers.assign()
        self.source.refuse(number, call, refusal, self.results.numbers.approved)
        self.add_result(call.tool, call.args, refusal, call.id)
        self.remarks.append(f"{call.tool}: {refusal.output}"[:500])
        self._handle_result(len(self.results.items) - 1, call, refusal)
