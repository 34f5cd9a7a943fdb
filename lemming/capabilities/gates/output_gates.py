"""Gates at the outputs of a turn: entries and memories. Pure over the turn's recorded answers.

All writes for readers outside the turn pass these gates, including writes by tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lemming.capabilities.gates.check_functions import make_check_runner
from lemming.capabilities.gates.gate_evaluation import (
    GateResult,
    content_digest,
    evaluate_gates,
    redact,
    reject_judges,
    rules_at_stage,
)
from lemming.capabilities.gates.gate_format import GATES, Gate, GateRule
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import StoppedByGate, ToolError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.inboxes.payload_references import parse_references
from lemming.kernel.memory import decode_memory, make_memory_effect
from lemming.kernel.messages import OutboxEntry, decode_entry, parse_file_names, parse_targets, to_file_effect
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.guards import ApprovalRequest, CheckFinding
from lemming.kernel.turn.tool_results import OUTBOX_ENTRIES

if TYPE_CHECKING:
    from lemming.capabilities.gates.gate_judges import GateJudges
    from lemming.kernel.turn.turn_state import TurnState


class OutputGates:
    """Output gates of one turn. Verdicts are kept in the turn state."""

    def __init__(self, turn_state: TurnState) -> None:
        self._turn_state = turn_state
        self._snapshot = turn_state.inputs.given[GATES]
        rules = [
            GateRule(recorded_rule["line"], to_value(Gate, recorded_rule["gate"]))
            for recorded_rule in self._snapshot["rules"]
        ]
        self._rules = rules_at_stage(rules, "out")
        self._judges: GateJudges | None = None
        if any(rule.gate.by for rule in rules):
            from lemming.capabilities.gates.gate_judges import GateJudges  # imported only if needed

            self._judges = GateJudges(turn_state, {rule.line: rule.gate for rule in rules})
        self._earlier = set(self._snapshot.get("said_before", ()))
        self._check_count = 0

    def check_entry(self, new: NewEntry, at: str, *, is_approved: bool = False) -> NewEntry | None:
        """Return an entry as allowed by the gates, or None with a result explaining the rejection.

        An entry with a request for approval waits for a person. An approved entry skips gates with "ask".
        """

        def build_facts(payload: Any) -> dict[str, Any]:
            text, target = payload.get("text"), payload.get("target")
            call_args = {"what": "entry", "kind": new.kind, "tags": new.tags, "text": text, "target": target}
            call_args["leaves"] = self._leaves_organisation(new.kind, payload)
            return {**call_args, **self._base_facts(), "payload": payload}

        # An approval answers the gates that ask. Gates that block still decide.
        rules = [rule for rule in self._rules if not (is_approved and rule.gate.then == "ask")]
        result = self._evaluate(new.payload, build_facts, f"entry of kind {new.kind}", rules)
        text_rules = [rule for rule in rules if _applies_to_tags(rule.gate)] if new.tags else []
        if text_rules and result.then in ("pass", "ask"):
            payload = result.content
            # Tags are text of the author too: what a gate denies must not leave in a tag.
            tags_result = self._evaluate(new.tags, lambda _: build_facts(payload), f"tags of {new.kind}", text_rules)
            new = new._replace(tags=tags_result.content)
            if not tags_result.is_allowed and (result.is_allowed or tags_result.then != "ask"):
                result = tags_result._replace(content=payload)
        if result.is_allowed:
            self._earlier.add(content_digest(new.payload))
            return new._replace(payload=result.content)
        if result.then == "ask":
            for on_approval_required in self._turn_state.hooks.on_approval_required:
                on_approval_required(new._replace(payload=result.content), self._build_approval_request(result), at)
        else:
            call_args = {"kind": new.kind, "target": new.payload.get("target")}
            self._turn_state.add_result(
                OUTBOX_ENTRIES, call_args, ToolResult(False, result.explain_to_model(), outcome="refused")
            )
        return None

    def _build_approval_request(self, result: GateResult) -> ApprovalRequest:
        verdict = result.decisive_verdict
        gate = next(rule.gate for rule in self._rules if rule.line == verdict.line)
        expires = () if gate.expires is None else (gate.expires,)
        return ApprovalRequest(verdict.line, verdict.why, gate.persons or None, expires)

    def _leaves_organisation(self, kind: str, payload: dict[str, Any]) -> bool:
        """Return True if a channel would send an entry out of the organisation, as a target or as the asker.

        An answer to an unknown request counts as leaving.
        """
        inputs, task = self._turn_state.inputs, self._turn_state.task
        channels = self._snapshot.get("channels", ())
        if not channels or not parse_targets(payload).isdisjoint(channels):
            return bool(channels)
        if kind != "response":
            return False
        askers = dict(inputs.open_requests)
        if task and task.request:
            askers |= {task.request: task.asker, task.reference: task.asker}
        askers_by_name = {
            name: asker for reference, asker in askers.items() for name in (reference, reference.rpartition("_")[2])
        }
        return any(
            reference not in askers_by_name or askers_by_name[reference] in channels
            for reference in parse_references(payload.get("reply_to"))
        )

    def check_memory(self, key: str, value: Any) -> Any:
        """Return a memory value as allowed by the gates.

        Raises: ToolError with the reason if the value is rejected.
        """

        def build_facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            fields = {"what": "memory", "key": key, "value": value, "text": text}
            return {**fields, **self._base_facts()}

        result = self._evaluate(value, build_facts, f"memory {key}", self._rules)
        if not result.is_allowed:
            raise ToolError(f'memory "{key}": {result.explain_to_model()}')
        self._require_name(key, partial(build_facts, result.content))
        self._earlier.add(content_digest(value))
        return result.content

    def _require_name(self, key: str, facts: Callable[[], dict[str, Any]]) -> None:
        """Raise `ToolError` if a pattern matches the key of a memory. Every reader of memories sees keys."""
        rules = [rule for rule in self._rules if _applies_to_tags(rule.gate)]
        result = self._evaluate(key, lambda _: facts(), f"the key of memory {key}", rules) if rules else None
        if result and not result.is_allowed:
            raise ToolError(f'memory "{key}": its key: {result.explain_to_model()}')
        if result and result.content != key:
            reason = f"a gate redacts something in its key ({result.verdicts[-1].line}): use another key"
            raise ToolError(f'memory "{result.content}": {reason}')

    def check_notes(self, notes: str) -> str:
        """Return the notes of a reply with redactions applied. Notes appear in prompts, logs and screens."""
        for rule in self._rules if self._snapshot.get("notes") else ():
            if rule.gate.redact:
                notes = redact(rule.gate.redact, notes)
        return notes

    def check_effects(self, effects: Iterable[FileEffect], at: str) -> tuple[FileEffect, ...]:
        """Return the file effects of a tool, with memories and entries as allowed by the gates."""
        return tuple(self._check_effects(effects, at))

    def _check_effects(self, effects: Iterable[FileEffect], at: str) -> Iterator[FileEffect]:
        name = self._turn_state.inputs.agent.name
        folder = f"{paths.memory_folder(name)}/"
        for effect in effects:
            if entry := _parse_entry(effect, name):
                new = NewEntry(entry.kind, entry.payload, entry.tags)
                allowed_entry = self.check_entry(new, at)
                if allowed_entry is not None:
                    yield (
                        effect
                        if allowed_entry == new
                        else to_file_effect(replace(entry, payload=allowed_entry.payload, tags=[*allowed_entry.tags]))
                    )
                continue
            if effect.root or effect.removes or not effect.path.startswith(folder):
                yield effect
                continue
            key = effect.path.removeprefix(folder).removesuffix(".json")
            value = decode_memory(effect.content, effect.path_key)
            try:
                allowed_value = self.check_memory(key, value)
            except ToolError as error:
                self._turn_state.add_result(
                    "memory_update", {"key": key}, ToolResult(False, str(error), outcome="refused")
                )
                continue
            yield effect if allowed_value == value else make_memory_effect(name, key, allowed_value, at)

    def reset(self) -> None:
        """Forget rolled-back entries, so they may be written again."""
        digests = {content_digest(entry.payload) for entry in self._turn_state.entries}
        self._earlier = {*self._snapshot.get("said_before", ()), *digests}

    def _base_facts(self) -> dict[str, Any]:
        turn_state, trust = self._turn_state, self._turn_state.trust_label
        facts = {"agent": turn_state.inputs.agent.name, "tick": turn_state.inputs.tick}
        return {**facts, "trust": trust} if trust else facts

    def _evaluate(self, content: Any, facts: Any, about: str, rules: Sequence[GateRule]) -> GateResult:
        result = evaluate_gates(
            rules, content, facts, about=about, earlier=self._earlier, check=self._run_check, judge=self._ask_judge
        )
        self._turn_state.verdicts += [verdict.as_json() for verdict in result.verdicts]
        if result.then == "stop":
            self._turn_state.fail(StoppedByGate(result.explain_to_model()[:2000]))
        return result

    def check_call(self, call: ToolCall) -> ToolCall:
        """Return a call with the findings of judges."""
        return self._judges.judge_call(call) if self._judges else call

    def check_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return the result of a call as allowed by judges."""
        return self._judges.judge_result(call, result) if self._judges else result

    def _ask_judge(self, rule: GateRule, fields: dict[str, Any]) -> CheckFinding | None:
        return self._judges.ask_judge(rule, fields) if self._judges else reject_judges(rule, fields)

    def _run_check(self, name: str, fields: dict[str, Any]) -> CheckFinding | None:
        number, self._check_count = self._check_count, self._check_count + 1
        return self._turn_state.source.call_function(number, name, fields, make_check_runner)


def _applies_to_tags(gate: Gate) -> bool:
    """Return True if a gate also applies to tags: pattern gates, and a gate with "pass" for whole entries."""
    return gate.finding_key in ("deny", "redact") or (gate.then == "pass" and not gate.finding_key)


def _parse_entry(effect: FileEffect, agent_name: str) -> OutboxEntry | None:
    """Return the entry in a tool's write to the agent's outbox, or None for any other file."""
    folder, _, file_name = effect.path.rpartition("/")
    if effect.root or effect.removes or folder != paths.outbox_folder(agent_name):
        return None
    name = next(iter(parse_file_names(agent_name, [file_name])), None)
    return decode_entry(name, effect.content) if name else None
