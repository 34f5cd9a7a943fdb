"""What a turn writes and is told: entries, memories, files and results, each through the effect chain of the turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import LemmingError, StoppedByGate, ToolError, TurnTooLong
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.turn_report import End
from lemming.kernel.memory import decode_memory, make_memory_effect
from lemming.kernel.messages import (
    REMINDERS_FROM,
    WAITING_FROM,
    OutboxEntry,
    decode_entry,
    parse_file_names,
    to_file_effect,
)
from lemming.kernel.obligations.grants import parse_pending_action
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn import turn_effects as effects
from lemming.kernel.turn.addressing import complete_entry, find_unknown_targets
from lemming.kernel.turn.effect_guard import is_plugin
from lemming.kernel.turn.loop_breaker import repetition_hint
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES, RESULTS_CHARS, render_result, tool_use_json
from lemming.kernel.turn.turn_state_values import TurnStateValues


class TurnWrites(TurnStateValues):
    """State of a turn, with the methods that stage entries, memories and files, and that add results."""

    __slots__ = ()

    @property
    def remaining_entries(self) -> int:
        """Number of entries that the turn may still write."""
        return self.inputs.agent.turn.max_entries - len(self.entries)

    def stage_entry(
        self,
        new: NewEntry,
        at: str,
        *,
        by_engine: bool = False,
        grant: Mapping[str, Any] | None = None,
        alone: bool = False,
        changed_files: Sequence[str] = (),
    ) -> OutboxEntry | None:
        """Stage an entry with known fields filled in. `changed_files`: those that changed since persons approved it.

        A rejected entry adds a result with the reason, and returns None.
        """
        if new.kind == "response" and "until" in new.payload:  # receipts are the engine's to write
            new = new._replace(payload={key: value for key, value in new.payload.items() if key != "until"})
        if self.has_requests:
            completed = complete_entry(self, new, alone=alone)
            if isinstance(completed, effects.Rejected):
                refusal = ToolResult(False, completed.reason)
                self.add_result(OUTBOX_ENTRIES, {"target": new.payload.get("target")}, refusal)
                # The same entry again counts like a repeated call.
                self._handle_result(len(self.results.items) - 1, ToolCall(OUTBOX_ENTRIES, new._asdict()), refusal)
                return None
            new = completed
        if by_engine or effects.WriteEntry not in self.chain.handled:
            return self._write_entry(new, at)
        kind, payload, tags = new
        effect = effects.WriteEntry(kind=kind, payload=payload, tags=tags, at=at, grant=grant, is_independent=alone)
        effect = replace(effect, facts={"changed_files": changed_files}) if changed_files else effect
        outcome = self.chain.dispatch(effect)
        if isinstance(outcome, effects.Allowed):
            entry: OutboxEntry = outcome.answer
            return entry
        self._report_stopped_entry(new, outcome, at)
        return None

    def _write_entry(self, new: NewEntry, at: str) -> OutboxEntry:
        identity = self.next_id(self.entries, WAITING_FROM if self.reveal_time(new.payload, at) else 0)
        entry = self.to_entry(new, identity, at)
        self.entries.append(entry)
        return entry

    def write_again(self, entry: OutboxEntry) -> None:
        """Write a changed entry of the turn, which was withdrawn, under the id that it had."""
        effect = effects.WriteEntry(
            kind=entry.kind, payload=entry.payload, tags=entry.tags, at=entry.created_at, written=entry
        )
        passed = self.chain.decide(effect)
        if isinstance(passed, effects.WriteEntry):
            self.entries.append(replace(entry, payload=passed.payload, tags=[*passed.tags]))
        else:
            self._report_stopped_entry(effect.new, passed, effect.at)

    def _report_stopped_entry(self, new: NewEntry, stopped: effects.Refusal, at: str) -> None:
        """Tell the model why an entry is not written, and write the request to the persons who must decide first."""
        self._fail_if_final(stopped)
        args = {"kind": new.kind, "target": new.payload.get("target")}
        request = None
        if isinstance(stopped, effects.Suspended):
            subject = stopped.question.subject
            args = describe_entry(subject.new if isinstance(subject, effects.WriteEntry) else new)
            request = self.stage_entry(stopped.request, at, by_engine=True) if stopped.request else None
            if not stopped.reason or (stopped.request and request is None):  # the reason is among the results
                return
        self.add_result(OUTBOX_ENTRIES, args, ToolResult(False, stopped.reason, outcome=stopped.outcome))
        if request and isinstance(stopped, effects.Suspended):
            self.await_answer(request, stopped.by)

    def await_answer(self, request: OutboxEntry, asked_by: str = "") -> None:
        """Let the last result wait for the answer to an entry, and the pending action of the capability that asks."""
        self.has_requests = True
        self.pending_indexes[request.identity] = len(self.results.items)
        if asked_by and DECISION_RULES in self.inputs.given:
            self.pending_states[request.identity] = {DECISION_RULES: parse_pending_action(request.payload)}

    def _fail_if_final(self, refusal: effects.Refusal) -> None:
        """End the turn as failed if a capability said so."""
        if isinstance(refusal, effects.Rejected) and refusal.is_final:
            self.fail(StoppedByGate(refusal.reason[:2000]))

    def _report_unknown_targets(self, entry: OutboxEntry, new: NewEntry) -> None:
        """Remark on targets of an entry that name no agent, in case the entry was meant for somebody."""
        reasons = find_unknown_targets(entry, self.source.everyone, self.staged)
        for reason in reasons.values():
            self.remarks.append(f"{OUTBOX_ENTRIES}: {reason}"[:500])
            self.results.notices.add(f"Your entry {entry.id} reached nobody by its target: {reason}")
        if reasons and len(reasons) == len(entry.targets):
            self.misaddressed_entries[entry.id] = new

    def to_entry(self, new: NewEntry, identity: str, at: str) -> OutboxEntry:
        """Return the outbox entry of a new entry."""
        tick, name = self.inputs.tick, self.inputs.agent.name
        return OutboxEntry(identity, tick, name, new.kind, new.payload, new.tags, at)

    def fail_request(self, reason: str) -> None:
        """Add the entry that answers the request of the turn with the reason for its failure."""
        current_request = self.inputs.current_request
        assert current_request, "only a turn with a request can fail the request"
        at = self.answers[-1].at if self.answers else current_request.at
        self.remarks.append(f"the request has failed: {reason}"[:500])
        self.entries.append(self.to_entry(current_request.make_failure(reason), self.next_id(self.entries), at))

    def next_id(self, entries: Sequence[OutboxEntry], first: int = 0) -> str:
        """Return the id of the next entry after these. Ids of withdrawn entries are free."""
        used_ids = [entry.id for entry in entries]
        number = first + len(used_ids)
        while (identity := self.inputs.entry_id(number)) in used_ids:
            number += 1
        return identity

    def reveal_time(self, payload: dict[str, Any], at: str) -> str:
        """Return the future time before which an entry stays hidden, or an empty string."""
        time = normalize_moment(payload.get("not_before"))
        if "not_before" in payload and not time:
            problem = "payload.not_before is no moment (write 2026-12-01T12:00:00Z): the entry is shown at once"
            self.remarks.append(f"{OUTBOX_ENTRIES}: {problem}")
            self.results.notices.add(problem)
        return time if time > at else ""

    def stage_memory(self, key: str, value: Any, at: str) -> None:
        """Stage a memory, or inform the model of the reason against it."""
        try:
            if key in self.inputs.damaged:
                raise ToolError(f'memory "{key}": its file is damaged; a person must repair or remove it')
            is_decided = effects.WriteMemory in self.chain.handled
            value = self._pass_memory(key, value, at) if is_decided else value
            effect = make_memory_effect(self.inputs.agent.name, key, value, at, is_from_reply=not is_decided)
        except ToolError as error:
            self.remarks.append(f"not kept: {error}"[:500])
            self.results.notices.add(str(error))
        else:
            path = effect.path_key
            self.repeats.record_memory(key, value)
            self.memory[path] = self.staged[path] = effect

    def _pass_memory(self, key: str, value: Any, at: str) -> Any:
        """Return a memory's value as the capabilities of the turn let it pass. Raises `ToolError` if they do not."""
        passed = self.chain.decide(effects.WriteMemory(memory_key=key, value=value, at=at))
        if isinstance(passed, effects.WriteMemory):
            return passed.value
        self._fail_if_final(passed)
        raise ToolError(passed.reason)

    def _pass_files(self, files: Iterable[FileEffect], at: str) -> Iterator[FileEffect]:
        """Yield the files of a tool as the capabilities of the turn let them pass, entries and memories among them."""
        name = self.inputs.agent.name
        for file in files:
            if entry := parse_entry_file(file, name):
                effect = effects.WriteEntry(
                    kind=entry.kind, payload=entry.payload, tags=entry.tags, at=at, written=entry
                )
                passed = self.chain.decide(effect)
                if not isinstance(passed, effects.WriteEntry):
                    self._report_stopped_entry(effect.new, passed, at)
                elif passed.new == effect.new:
                    yield file
                else:
                    yield to_file_effect(replace(entry, payload=passed.payload, tags=[*passed.tags]))
            elif key := memory_key(file, name):
                value = decode_memory(file.content, file.path_key)
                try:
                    allowed_value = self._pass_memory(key, value, at)
                except ToolError as error:
                    refusal = ToolResult(False, str(error), outcome="refused")
                    self.add_result("memory_update", {"key": key}, refusal)
                    continue
                yield file if allowed_value == value else make_memory_effect(name, key, allowed_value, at)
            elif isinstance(written := self.chain.decide(effects.WriteFile(file=file, at=at)), effects.WriteFile):
                yield written.file
            else:
                refusal = ToolResult(False, written.reason, outcome="refused")
                self.add_result("file", {"path": file.path_key}, refusal)

    def stage_labels(self) -> dict[str, FileEffect]:
        """Return the staged files as a call sees and may write them, with label files."""
        staged = {**self.staged}
        return {**self._seal(effects.Seal(files=staged)).files} if effects.Seal in self.chain.handled else staged

    def _seal(self, outputs: effects.Seal) -> effects.Seal:
        """Return outputs of the turn in their final form. Raises `ToolError` if a capability refuses them."""
        sealed = self.chain.decide(outputs)
        if isinstance(sealed, effects.Seal):
            return sealed
        raise ToolError(f"the turn's outputs are not written: {sealed.reason}")

    def _withdraw(self, effect: effects.Withdraw) -> bool:
        remaining = [entry for entry in self.entries if entry.identity not in effect.entries]
        if is_plugin(effect.by) and (removed := len(self.entries) - len(remaining)):
            self.remark(f"{effect.by} took back {removed} of the entries of the turn")
        self.entries = remaining
        if self.inputs.given.get(DECISION_RULES, {}).get("numbered"):  # a turn of 0.2.0 goes on as recorded
            for identity in effect.entries:  # a question that is not written waits for nobody
                self.pending_indexes.pop(identity, None)
                self.pending_states.pop(identity, None)
        for path, previous_file in effect.memories.items():
            if self.staged.get(path) is self.memory[path]:
                del self.staged[path]
                if previous_file is not None:
                    self.staged[path] = previous_file
            if path not in self.written_ahead:
                del self.memory[path]
        return True

    def _leave(self, effect: effects.EndTurn) -> End:
        self.entries, self.failure_entries = [*effect.entries], [*effect.failure_entries]
        if effect.drops_files:
            self.staged, self.memory = {}, {}
        return effect.end

    def restore_entry_order(self) -> None:
        """Sort the entries by their ids if some were withdrawn: those that replace them have got the free ids."""
        withdrawn = (event.effect for event in self.events if isinstance(event, effects.EffectPerformed))
        if not any(isinstance(effect, effects.Withdraw) and effect.entries for effect in withdrawn):
            return
        number_of = {self.inputs.entry_id(number): number for number in range(REMINDERS_FROM)}
        self.entries.sort(key=lambda entry: number_of[entry.id])

    def seal_outputs(self) -> None:
        """Give the entries, files and results of the turn their final form."""
        entries, results = [*self.entries, *self.failure_entries], [*self.results.items, *self.results.external]
        sealed = self._seal(effects.Seal(files={**self.staged}, entries=entries, results=results))
        entry_count, result_count = len(self.entries), len(self.results.items)
        self.staged = {**sealed.files}
        self.entries, self.failure_entries = [*sealed.entries[:entry_count]], [*sealed.entries[entry_count:]]
        self.results.items[:], self.results.external = sealed.results[:result_count], [*sealed.results[result_count:]]

    def add_result(
        self, tool: str, args: dict[str, Any], result: ToolResult, call_id: str = "", *, is_entry: bool = False
    ) -> None:
        """Add a result to show to the model next. `call_id` is the backend's id of the call, if any.

        `is_entry`: True if an entry asks a person and no tool was called.
        """
        room = max(RESULTS_CHARS - sum(len(result["output"]) for result in self.results.unshown), 0)
        self.results.add(render_result(tool, args, result, room), call_id)
        if not is_entry:
            self.results.uses.append(tool_use_json(tool, result))
        if tool == OUTBOX_ENTRIES and not result.success and result.outcome != "pending":
            reason = next(iter(result.output.splitlines()), "it does not say why")
            self.remarks.append(f"{tool}: {reason}"[:500])

    def _handle_result(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Apply the consequences of a result: the end of the turn, or a repetition."""
        if not result.success and result.on_error == "skip":
            self.results.hidden.add(index)
        elif not result.success and result.on_error == "stop":
            if result.outcome == "skipped":
                self.forced_end, self.stop_error = "deadline", TurnTooLong(result.output)
            else:
                is_gates = any(verdict.then == "stop" for verdict in result.verdicts)
                reason = f"{call.tool} ends the turn when it fails: {result.output}"[:2000]
                self.fail(StoppedByGate(reason) if is_gates else ToolError(reason))
        elif (count := self.repeats.count(call, result)) == self.repeats.limits.warn_after:
            self.results.notices.add(repetition_hint(call.tool, count))
        elif (
            count >= self.repeats.limits.stop_after
            and self.accepted_count < self.inputs.max_steps
            # A recorded turn goes on as recorded. A recorded question may belong to a capability.
            and (self.inputs.given or not self.source.has_answer(self.call_count))
        ):
            self.forced_end, self.results.shown_count = "repeats", len(self.results.items)  # no news for its next turn
            self.remarks.append(f"{call.tool}: called again and again with the same arguments and result")

    def fail(self, error: LemmingError) -> End:
        """End the turn as failed."""
        self.forced_end, self.stop_error = "failed", error
        return "failed"


def describe_entry(new: NewEntry) -> dict[str, Any]:
    """Return the arguments of the result for an entry that a person decides about."""
    step = {"step": new.payload["step"]} if "step" in new.payload else {}
    return {"kind": new.kind, "target": new.payload.get("target"), **step}


def parse_entry_file(file: FileEffect, agent_name: str) -> OutboxEntry | None:
    """Return the entry in a tool's write to the agent's outbox, or None for any other file."""
    folder, _, file_name = file.path.rpartition("/")
    if file.root or file.removes or folder != paths.outbox_folder(agent_name):
        return None
    name = next(iter(parse_file_names(agent_name, [file_name])), None)
    return decode_entry(name, file.content) if name else None


def memory_key(file: FileEffect, agent_name: str) -> str:
    """Return the key of a memory that a tool writes, or an empty string for any other file."""
    folder = f"{paths.memory_folder(agent_name)}/"
    if file.root or file.removes or not file.path.startswith(folder):
        return ""
    return file.path.removeprefix(folder).removesuffix(".json")
