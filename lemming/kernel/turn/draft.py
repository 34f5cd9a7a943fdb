"""A turn's draft: what it has come to so far, how a reply is staged, and how it all ends.

Nothing here touches the disk or reads a clock. Which questions are asked, and when it is over, is for a
strategy to say (`lemming.kernel.turn.loop`); whatever comes from outside comes from its `Answers`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from lemming.kernel.base.times.spoken import moment_of
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.report import End
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.memory import memory_effect
from lemming.kernel.messages import WAITING_FROM, OutboxEntry
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.listing import read_found_tools
from lemming.kernel.turn.addressing import find_unknown_targets
from lemming.kernel.turn.draft_state import DraftState
from lemming.kernel.turn.forms.found import list_found_earlier
from lemming.kernel.turn.hooks import asking, entries_of, next_entry_id
from lemming.kernel.turn.moments import No
from lemming.kernel.turn.repeats import hint_for
from lemming.kernel.turn.replies import read_reply
from lemming.kernel.turn.results import OUTBOX_ENTRIES, RESULTS_CHARS, as_shown, tool_used
from lemming.kernel.turn.values import Answer


class Draft(DraftState):
    """What one turn has come to so far, and what its replies make of it."""

    __slots__ = ()

    def ask(
        self, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None, by: str = ""
    ) -> Answer:
        """Ask the model once. Raises what stood in the answer's place, as `Answers.ask`.

        `by`: the capability that asks, for itself; what it gives is no reply.
        """
        if self.task and (why := self.task.why_unpaid(self.answers, self.lost)):
            raise RequestOverLimit(why)
        try:
            answer = self.source.ask(self.questions, messages, model, schema)
        except (OutOfCredits, ProviderError) as error:
            self.in_vain += 1  # what stood in its place has its number
            self.lost = self.lost.plus(Lost.of(error.lost))
            self.verdicts += error.verdicts
            match error.verdicts[-1]["then"] if error.verdicts else "":
                case "stop":
                    raise StoppedByGate(error.message) from error
                case "ask":
                    for stopped in self.seams.stopped:
                        stopped(error.verdicts[-1])
            raise
        self.answers.append(answer)
        if by:
            self.aside.setdefault(by, []).append(answer)
        self.verdicts += answer.verdicts
        self.lost = self.lost.plus(Lost.of(answer.lost)) if answer.lost else self.lost
        return answer

    def read(self, answer: Answer, *, keep: Keep = "all") -> TurnReply:
        """Return the reply that an answer is; raise `ContractError` for what is none."""
        has_written, earlier = bool(self.entries), list_found_earlier(self.inputs)
        return read_reply(
            self.inputs, self.seams, answer, keep=keep, has_written=has_written, found=[*earlier, *self.found]
        )

    def act(self, reply: TurnReply, *, has_seen: bool = True) -> None:
        """Stage what a reply asks for: entries, tool calls, memories. `has_seen`: it knew all results."""
        if has_seen:
            self.shown, self.accepted = len(self.results), self.accepted + 1
        if self.results:
            self.repeats.begin_reply()
        first, at, room = len(self.entries), self.answers[-1].at, self.room
        if len(reply.outbox_entries) > room:
            self.remarks.append(f"outbox_entries: {len(reply.outbox_entries) - room} beyond the turn's limit")
        for new in reply.outbox_entries[:room]:
            if self.repeats.entries and self.repeats.is_entry(new, self.entries):
                self.remarks.append("outbox_entries: one that is equal to another of the turn was dropped")
                continue
            if entry := self.write(new, at):
                self.repeats.entries[entry.id] = new
                if "target" in new.payload and self.inputs.loops:
                    self._look_at_targets(entry, new)
        written = len(self.entries) - first
        if reply.tool_calls:
            self.numbers.begin_reply(len(self.results), len(reply.tool_calls))
        for place, call in enumerate(reply.tool_calls):
            if self.is_handed_on or self.over:
                why = "the request was handed on" if self.is_handed_on else "the turn was over"
                self.remarks.append(f"{call.tool}: not called, {why}")
                continue
            number = self.numbers.of_reply(place)
            if place + 1 < len(reply.tool_calls) and not self.seams.before_call:  # whom each is shown first
                begun = self.numbers.recorded(number, len(self.results))
                self.source.begin(begun, reply.tool_calls[place:], at, self._staged_now)
            self.use(call, at, number)
        before = {**self.staged} if self.seams.replied else {}
        for update in reply.memory_updates:  # after the tools: of two values for one key, this one holds
            self.stage_memory(update.key, update.value, at)
        if self.seams.carries:
            found = self.seams.carried([entry.payload for entry in self.entries[first:]], at)
            entries = zip(self.entries[first:], found, strict=True)
            self.entries[first:] = [replace(entry, payload=it.payload) for entry, it in entries]
        for replied in self.seams.replied:
            replied(first, written, before, has_seen=has_seen)
        for told in self.notices.take(reply) if reply.left_out or self.notices.texts else ():
            self.results.append(told)
            self.calls.append("")
        self.remarks += [*reply.remarks, *(f"left out: {why}"[:500] for why in reply.left_out)]
        notes = self.seams.watch.look_at_notes(reply.notes) if self.seams.watch else reply.notes
        self.notes = notes or self.notes

    def _look_at_targets(self, entry: OutboxEntry, new: NewEntry) -> None:
        """Say of an entry that its target names nobody: it may have been meant for somebody."""
        found = find_unknown_targets(entry, self.source.everyone, self.staged)
        for why in found.values():
            self.remarks.append(f"{OUTBOX_ENTRIES}: {why}"[:500])
            self.notices.add(f"Your entry {entry.id} reached nobody by its target: {why}")
        if found and len(found) == len(entry.targets):
            self.lost_entries[entry.id] = new

    @property
    def room(self) -> int:
        """How many entries the turn may still write."""
        return self.inputs.agent.turn.max_entries - len(self.entries)

    def write(
        self,
        new: NewEntry,
        at: str,
        *,
        by_engine: bool = False,
        is_approved: bool = False,
        alone: bool = False,
    ) -> OutboxEntry | None:
        """Stage an entry, with what is known of it; for what is none, say why in a result."""
        for fills in self.seams.fills:
            if isinstance(filled := fills(new, alone=alone), No):
                self._refuse_entry(new, {}, ToolResult(False, filled.why))
                return None
            new = filled
        for leaving in self.seams.leaving if not by_engine else ():
            if isinstance(may := leaving(new, at), No):
                self._refuse_entry(new, {"kind": new.kind}, ToolResult(False, may.why, outcome="refused"))
                return None
            new = may
        if self.seams.watch and not by_engine:
            passed = self.seams.watch.look_at_entry(new, at, is_approved=is_approved)
            if passed is None:
                return None
            new = passed
        identity = self.next_id(WAITING_FROM if self.waits_until(new.payload, at) else 0)
        entry = self.as_entry(new, identity, at)
        self.entries.append(entry)
        return entry

    def _refuse_entry(self, new: NewEntry, shown: Json, refused: ToolResult) -> None:
        """Tell the model why an entry is not written; the same one again counts as the same call does."""
        self.add_result(OUTBOX_ENTRIES, {**shown, "target": new.payload.get("target")}, refused)
        self._notice(len(self.results) - 1, ToolCall(OUTBOX_ENTRIES, new._asdict()), refused)

    def as_entry(self, new: NewEntry, identity: str, at: str) -> OutboxEntry:
        """Return the entry that something new becomes."""
        tick, name = self.inputs.tick, self.inputs.agent.name
        return OutboxEntry(identity, tick, name, new.kind, new.payload, new.tags, at)

    def next_id(self, first: int = 0) -> str:
        """Return the id of the next entry; those of entries that were taken back are free."""
        taken = [entry.id for entry in self.entries]
        return next_entry_id(self.inputs, first + len(taken), taken)

    def waits_until(self, payload: dict[str, Any], at: str) -> str:
        """Return the moment to come that an entry is to wait for; empty when it is to be shown as others."""
        moment = moment_of(payload.get("not_before"))
        if "not_before" in payload and not moment:
            why = "payload.not_before is no moment (write 2026-12-01T12:00:00Z): the entry is shown at once"
            self.remarks.append(f"{OUTBOX_ENTRIES}: {why}")
            self.notices.add(why)
        return moment if moment > at else ""

    def stage_memory(self, key: str, value: Any, at: str) -> None:
        """Stage a memory, or tell the model why it is not kept."""
        try:
            if key in self.inputs.damaged:
                raise ToolError(f'memory "{key}": its file is damaged; a person must repair or remove it')
            if self.seams.watch:
                value = self.seams.watch.look_at_memory(key, value)
            is_from_reply = self.seams.watch is None
            effect = memory_effect(self.inputs.agent.name, key, value, at, is_from_reply=is_from_reply)
        except ToolError as error:
            self.remarks.append(f"not kept: {error}"[:500])
            self.notices.add(str(error))
        else:
            place = effect.place
            self.repeats.remember(key, value)
            self.memory[place] = self.staged[place] = effect

    def use(self, call: ToolCall, at: str, number: int | None = None) -> None:
        """Call a tool, and stage the files that it wants written. `number`: its own in its reply."""
        self.numbers.come(number)
        for before_call in self.seams.before_call:
            if isinstance(allowed := before_call(call), No):
                self.refuse(call, ToolResult(False, allowed.why, outcome="refused"))
                return
            call = allowed
        if any(takes(call, at) for takes in self.seams.takes):
            return
        place, staged = len(self.results), self._staged_now()
        call = self.seams.watch.judged_call(call) if self.seams.watch else call
        number = self.numbers.make(place)
        result = self.source.use(number, call, at, staged)
        result = self.seams.watch.judged_result(call, result) if self.seams.watch else result
        self.add_result(call.tool, call.args, result, call.id)
        if result.kept:
            self.found += read_found_tools(result.kept)
        self._notice(place, call, result)
        if self.source.reached_outside(number):  # they are written, and were the tool's to change
            self.settled.update(staged)
            self.staged.clear()
            self.outside += [] if place in self.untold else self.results[-1:]
            if result.outcome == "interrupted":
                self.results[-1]["unknown"] = self.inputs.call_id(number)
                self.remarks.append(f"{call.tool}: {result.output}")
        for after_call in self.seams.after_call:
            after_call(number, call, result)
        effects = self.seams.watch.look_at_effects(result.effects, at) if self.seams.watch else result.effects
        self.staged |= {effect.place: effect for effect in effects}
        if result.verdicts:
            self.verdicts += map(GateVerdict.as_json, result.verdicts)
        if result.passed_on:
            self.passed_on |= {effect.place: result.passed_on for effect in result.effects}
        of_call = entries_of(call) if result.success else ()
        if (beyond := len(result.entries) - self.room) > 0 and not result.entries_by:
            self.remarks.append(f"{call.tool}: {beyond} entries beyond the turn's limit were not written")
        # A capability's entries (the request for an approval) have room always: the call would wait for
        # nothing.
        room = self.room if not result.entries_by else len(result.entries)
        for new in (*result.entries[:room], *of_call):
            alone = self.is_answered and new.kind == "request"  # else it would be over with what is answered
            entry = self.write(new, at, by_engine=bool(result.entries_by), alone=alone)
            if entry and result.outcome == "pending":  # answered in its place
                self.seams = asking(self)
                self.asked[entry.identity] = len(self.results)
                if by := result.entries_by:
                    self.held[entry.identity] = {by: self.seams.parts[by].holds(new)}

    def _staged_now(self) -> dict[str, FileEffect]:
        """Return what is staged as a call has it, which may write it."""
        return self.seams.written({**self.staged})

    def refuse(self, call: ToolCall, refused: ToolResult) -> None:
        """Tell the model, and whoever looks at the turn, that a call is not made."""
        self.source.refuse(self.numbers.make(len(self.results)), call, refused)
        self.add_result(call.tool, call.args, refused, call.id)
        self.remarks.append(f"{call.tool}: {refused.output}"[:500])
        self._notice(len(self.results) - 1, call, refused)

    def stop(self, error: LemmingError) -> End:
        """End the turn: it has failed."""
        self.over, self.stopped_by = "failed", error
        return "failed"

    def _notice(self, place: int, call: ToolCall, result: ToolResult) -> None:
        """Notice what a result means for the turn: that it is over, or that it goes round in circles."""
        if not result.success and result.on_error == "skip":
            self.untold.add(place)
        elif not result.success and result.on_error == "stop":
            if result.outcome == "skipped":
                self.over, self.stopped_by = "deadline", TurnTooLong(result.output)
            else:
                is_gates = any(verdict.then == "stop" for verdict in result.verdicts)
                why = f"{call.tool} ends the turn when it fails: {result.output}"[:2000]
                self.stop(StoppedByGate(why) if is_gates else ToolError(why))
        elif (count := self.repeats.count(call, result)) == self.loops.warn_after:
            self.notices.add(hint_for(call.tool, count))
        elif count >= self.loops.stop_after and self._may_go_on:
            self.over, self.shown = "repeats", len(self.results)  # which are no news for its next turn
            self.remarks.append(f"{call.tool}: called again and again with the same arguments and result")

    @property
    def _may_go_on(self) -> bool:
        """Whether another reply would be asked for now: a turn that is on record went on as it did."""
        # A question that is on record may be a capability's, where there are any.
        went_on = not self.inputs.given and self.source.knows(self.questions)
        return self.accepted < self.inputs.max_steps and not went_on

    def add_result(
        self, tool: str, args: dict[str, Any], result: ToolResult, call: str = "", *, is_entry: bool = False
    ) -> None:
        """Add a result to those that the model is shown next; `call` is the call's id, if it has one.

        `is_entry`: no tool was called, an entry asks somebody.
        """
        room = max(RESULTS_CHARS - sum(len(result["output"]) for result in self.unshown), 0)
        self.results.append(as_shown(tool, args, result, room))
        self.calls.append(call)
        if not is_entry:
            self.used.append(tool_used(tool, result))
        if tool == OUTBOX_ENTRIES and not result.success and result.outcome != "pending":
            why = next(iter(result.output.splitlines()), "it does not say why")
            self.remarks.append(f"{tool}: {why}"[:500])
