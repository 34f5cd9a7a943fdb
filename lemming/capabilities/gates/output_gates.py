"""Gates at the outputs of a turn: entries and memories. Pure over the turn's recorded answers.

All writes for readers outside the turn pass these gates, including writes by tools.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lemming.capabilities.gates.gate_evaluation import (
    GateResult,
    content_digest,
    evaluate_gates,
    make_check_runner,
    redact,
    reject_judges,
    rules_at_stage,
)
from lemming.capabilities.gates.gate_format import GATE_POINTER, Gate, GateRule
from lemming.capabilities.gates.gate_settings import build_question
from lemming.ext import (
    CallTool,
    Effect,
    Interception,
    Rejected,
    TakeResult,
    Withdraw,
    WriteEntry,
    WriteMemory,
    WriteNotes,
    list_grants,
)
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.messages import parse_targets
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.turn.turn_values import CheckFinding

if TYPE_CHECKING:
    from lemming.capabilities.gates.gate_judges import GateJudges
    from lemming.ext import TurnView


class OutputGates:
    """Output gates of a turn, and the judges of its call gates."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._snapshot = turn, turn.snapshot
        rules = [
            GateRule(recorded_rule["line"], to_value(Gate, recorded_rule["gate"]))
            for recorded_rule in self._snapshot["rules"]
        ]
        self._rules = rules_at_stage(rules, "out")
        self._judges: GateJudges | None = None
        if any(rule.gate.by for rule in rules):
            from lemming.capabilities.gates.gate_judges import GateJudges  # imported only if needed

            self._judges = GateJudges(turn, {rule.line: rule.gate for rule in rules})
        self._earlier = set(self._snapshot.get("said_before", ()))
        self.handles: tuple[type[Effect], ...] = (WriteEntry, WriteMemory, WriteNotes, Withdraw)
        if self._judges:
            self.handles = (*self.handles, CallTool, TakeResult)

    def intercept(self, effect: Effect) -> Interception:
        """Apply the gates to entries, memories and notes, and let judges see calls and results."""
        match effect:
            case WriteEntry():
                return self._check_entry(effect)
            case WriteMemory():
                return self._check_memory(effect)
            case WriteNotes():
                return self._redact_notes(effect)
            case CallTool() | TakeResult():
                return self._judge(effect)
            case Withdraw():
                return self._forget(effect)
        return None

    def _check_entry(self, effect: WriteEntry) -> Interception:
        """Pass an entry as the gates allow it. An approved entry skips gates with "ask"."""

        def build_facts(payload: Any) -> dict[str, Any]:
            fields = {"what": "entry", "kind": effect.kind, "tags": effect.tags, "text": payload.get("text")}
            fields |= {"target": payload.get("target"), "leaves": self._leaves_organisation(effect.kind, payload)}
            return {**fields, **self._base_facts(), "payload": payload}

        # An approval that a gate asked for answers the gates that name its person. Gates that block still decide.
        grants = list_grants(effect.grant) if effect.grant else ()
        approvers = {grant["by"] for grant in grants if GATE_POINTER in grant.get("gate", "")}
        rules = [rule for rule in self._rules if rule.gate.then != "ask" or not _accepts_any(rule.gate, approvers)]
        result, passed = self._evaluate(effect.payload, build_facts, f"entry of kind {effect.kind}", rules), effect
        verdicts = result.approval_verdicts
        text_rules = [rule for rule in rules if _applies_to_tags(rule.gate)] if effect.tags else []
        if text_rules and result.then in ("pass", "ask"):
            payload = result.content
            # Tags are text of the author too: what a gate denies must not leave in a tag.
            about = f"tags of {effect.kind}"
            tags_result = self._evaluate(effect.tags, lambda _: build_facts(payload), about, text_rules)
            passed, verdicts = replace(effect, tags=tags_result.content), verdicts + tags_result.approval_verdicts
            if tags_result.then not in ("pass", "ask"):
                result = tags_result
        passed = replace(passed, payload=result.content)
        if result.then not in ("pass", "ask"):
            return Rejected(result.explain_to_model(), is_final=result.then == "stop")
        if verdicts:
            yield build_question(passed, self._rules, verdicts)
        else:
            self._earlier.add(content_digest(effect.payload))
        return (yield passed)

    def _leaves_organisation(self, kind: str, payload: dict[str, Any]) -> bool:
        """Return True if a channel would send an entry out of the organisation, as a target or as the asker.

        An answer to an unknown request counts as leaving.
        """
        inputs, task = self._turn.inputs, self._turn.request
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

    def _check_memory(self, effect: WriteMemory) -> Interception:
        """Pass a memory as the gates allow it."""
        key = effect.memory_key

        def build_facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            fields = {"what": "memory", "key": key, "value": value, "text": text}
            return {**fields, **self._base_facts()}

        result = self._evaluate(effect.value, build_facts, f"memory {key}", self._rules)
        if not result.is_allowed:
            return Rejected(f'memory "{key}": {result.explain_to_model()}', is_final=result.then == "stop")
        if key_rules := [rule for rule in self._rules if _applies_to_tags(rule.gate)]:  # every reader sees the key
            about = f"the key of memory {key}"
            key_result = self._evaluate(key, lambda _: build_facts(result.content), about, key_rules)
            if not key_result.is_allowed:
                reason = f'memory "{key}": its key: {key_result.explain_to_model()}'
                return Rejected(reason, is_final=key_result.then == "stop")
            if key_result.content != key:
                reason = f"a gate redacts something in its key ({key_result.verdicts[-1].line}): use another key"
                return Rejected(f'memory "{key_result.content}": {reason}')
        self._earlier.add(content_digest(effect.value))
        return (yield replace(effect, value=result.content))

    def _redact_notes(self, effect: WriteNotes) -> Interception:
        """Pass the notes of a reply with redactions applied. Notes appear in prompts, logs and screens."""
        text = effect.text
        for rule in self._rules if self._snapshot.get("notes") else ():
            if rule.gate.redact:
                text = redact(rule.gate.redact, text)
        return (yield replace(effect, text=text))

    def _judge(self, effect: CallTool | TakeResult) -> Interception:
        """Let judges see a call before it is made, or the result of a call."""
        assert self._judges, "only gates with judges handle calls and results"
        if isinstance(effect, TakeResult):
            return (yield replace(effect, result=self._judges.judge_result(effect.call.call, effect.result)))
        judged = self._judges.judge_call(effect.call).judged
        return (yield replace(effect, facts={**effect.facts, "judged": judged}) if judged else effect)

    def _forget(self, effect: Withdraw) -> Interception:
        """Forget withdrawn entries, so they may be written again."""
        outcome = yield effect
        digests = {content_digest(entry.payload) for entry in self._turn.entries}
        self._earlier = {*self._snapshot.get("said_before", ()), *digests}
        return outcome

    def _base_facts(self) -> dict[str, Any]:
        trust = self._turn.trust_label
        facts = {"agent": self._turn.agent.name, "tick": self._turn.tick}
        return {**facts, "trust": trust} if trust else facts

    def _evaluate(self, content: Any, facts: Any, about: str, rules: Sequence[GateRule]) -> GateResult:
        result = evaluate_gates(
            rules, content, facts, about=about, earlier=self._earlier, check=self._run_check, judge=self._ask_judge
        )
        self._turn.add_verdicts(verdict.as_json() for verdict in result.verdicts)
        return result

    def _ask_judge(self, rule: GateRule, fields: dict[str, Any]) -> CheckFinding | None:
        return self._judges.ask_judge(rule, fields) if self._judges else reject_judges(rule, fields)

    def _run_check(self, name: str, fields: dict[str, Any]) -> CheckFinding | None:
        return self._turn.call_function(name, fields, make_check_runner)


def _accepts_any(gate: Gate, approvers: Collection[str]) -> bool:
    """Return True for a gate with an accepted person among the approvers."""
    return any(not gate.persons or name in gate.persons for name in approvers)


def _applies_to_tags(gate: Gate) -> bool:
    """Return True if a gate also applies to tags: pattern gates, and a gate with "pass" for whole entries."""
    return gate.finding_key in ("deny", "redact") or (gate.then == "pass" and not gate.finding_key)
