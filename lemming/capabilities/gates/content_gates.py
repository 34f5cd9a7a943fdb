"""Gates at the inputs of a turn, and at its outputs: entries, memories, files and results of earlier calls.

All writes for readers outside the turn pass the output gates, including writes by tools. The output gates are pure over
the turn's recorded answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
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
from lemming.capabilities.gates.gate_settings import build_question, rules_for_agent
from lemming.ext import (
    BuildPrompt,
    CallTool,
    Effect,
    Interception,
    Outcome,
    Preparation,
    ReceiveEntry,
    Rejected,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
    TakeResult,
    TurnView,
    Withdraw,
    WriteEntry,
    WriteMemory,
    WriteNotes,
    list_grants,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import StoppedByGate
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.messages import OutboxEntry, parse_targets
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.turn.prompt_input import withhold_payload, withhold_value
from lemming.kernel.turn.turn_values import CheckFinding
from lemming.libraries.outbox_files import read_outbox_entries

if TYPE_CHECKING:
    from lemming.capabilities.gates.gate_judges import GateJudges

RECENT_ENTRIES = 200
"""Number of the agent's newest entries that `dedupe` compares with."""


class InputGates:
    """Input gates of a turn. `verdicts` collects their verdicts."""

    def __init__(self, turn: Preparation) -> None:
        tick_context, settings = turn.context.tick_context, turn.context.tick_context.config.org
        self._all_rules = rules_for_agent(turn.agent, settings)
        self._rules = rules_at_stage(self._all_rules, "in")
        self._judged_rules = [rule for rule in self._all_rules if rule.gate.by]
        self._tick_context = tick_context
        self._agent, self._tick = turn.agent, turn.tick
        self._channels: Collection[str] = ()
        if self._rules and tick_context.config.has_channels:
            self._channels = tick_context.config.find_channels(tick_context.mail.resumes)
        self._run_check = make_check_runner(tuple(settings.plugins))
        self._earlier: set[str] = set()
        self._admitted: set[str] = set()
        self._entries: dict[str, OutboxEntry] = {}
        self.verdicts: list[dict[str, Any]] = []

    @property
    def handles(self) -> Sequence[type[Effect]]:
        """The types of effects that the gates decide about."""
        types: list[type[Effect]] = []
        if self._rules:
            types += [ShowEntry, ShowMemory, ShowFile, ShowEarlierResult]
        if any(rule.gate.then == "ask" for rule in self._rules):
            types.append(ReceiveEntry)
        return [*types, BuildPrompt] if self._judged_rules else types

    def intercept(self, effect: Effect) -> Interception:
        """Pass an effect as the gates allow it. Raises `StoppedByGate` if a gate ends the turn."""
        match effect:
            case ReceiveEntry(is_approved=False):
                return self._receive(effect)
            case ShowEntry() if effect.part != "sub-request":
                return _pass(effect, "entry", self._filter_entry(effect))
            case ShowMemory(memory_key=key, value=value):
                fields = {"key": key, **_trust_fact(effect.labels.memory_trust(key))}
                return _pass(effect, "value", self._filter_value("memory", fields, value, f"memory {key}"))
            case ShowFile(label=label, text=text):
                return _pass(effect, "text", self._filter_value("file", {"label": label}, text, f"file {label}"))
            case BuildPrompt():
                return self._add_judge_files(effect)
            case ShowEarlierResult(result=result):
                fields = {"tool": result["tool"], **_trust_fact(effect.labels.result_trust(result))}
                output = self._filter_value("result", fields, result["output"], f"result of {result['tool']}")
                return _pass(effect, "result", {**result, "output": output})
        return None

    def _add_judge_files(self, effect: BuildPrompt) -> Interception:
        """Add the policy files of gate judges to the files read by the turn."""
        from lemming.capabilities.gates.gate_judges import judge_files  # imported only if needed

        files = judge_files(self._tick_context, self._judged_rules)
        return (yield effect.change(source_paths=[*effect.prompt.source_paths, *files]))

    def _receive(self, effect: ReceiveEntry) -> Interception:
        """Ask a person about an entry if a gate says so."""
        entry = effect.entry
        result = evaluate_gates(
            self._rules, entry.payload, self._entry_facts(effect), about=entry.identity, check=self._run_check
        )
        if result.then == "ask":
            question = build_question(effect, self._rules, result.approval_verdicts)
            yield replace(question, reason=question.reason or f"it is by {entry.agent}")
        else:
            self._admitted.add(entry.identity)
        return (yield effect)

    def _filter_entry(self, effect: ShowEntry) -> OutboxEntry:
        """Return an entry of another agent as filtered by the gates. Each entry is evaluated once."""
        entry = effect.entry
        if entry.agent == self._agent.name:
            return entry
        # An entry may appear in several parts of one prompt: it is evaluated, and reported, once.
        if entry.identity not in self._entries:
            is_admitted = effect.is_approved or entry.identity in self._admitted
            rules = [rule for rule in self._rules if not (is_admitted and rule.gate.then == "ask")]
            result = self._evaluate(entry.payload, self._entry_facts(effect), f"entry {entry.identity}", rules)
            if not result.is_allowed:
                entry = withhold_payload(entry, result.explain_to_model())
            elif result.content != entry.payload:
                entry = replace(entry, payload=result.content)
            self._entries[entry.identity] = entry
        return self._entries[entry.identity]

    def _entry_facts(self, effect: ReceiveEntry | ShowEntry) -> Callable[[Any], dict[str, Any]]:
        entry = effect.entry

        def build_facts(payload: Any) -> dict[str, Any]:
            fields: dict[str, Any] = {"from": entry.agent, "kind": entry.kind, "tags": entry.tags}
            fields |= {"id": entry.id, "channel": entry.agent in self._channels}
            fields = {**self._base_facts("entry"), **fields, **_trust_fact(effect.labels.entry_trust(entry))}
            return {**fields, "text": payload.get("text"), "payload": payload}

        return build_facts

    def _filter_value(self, kind: str, extra_fields: dict[str, Any], value: Any, about: str) -> Any:
        def build_facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            return {**self._base_facts(kind), **extra_fields, "value": value, "text": text}

        result = self._evaluate(value, build_facts, about, self._rules)
        return result.content if result.is_allowed else withhold_value(result.explain_to_model())

    def _base_facts(self, kind: str) -> dict[str, Any]:
        return {"what": kind, "agent": self._agent.name, "tick": self._tick}

    def _evaluate(
        self, content: Any, facts: Callable[[Any], dict[str, Any]], about: str, rules: Sequence[GateRule]
    ) -> GateResult:
        result = evaluate_gates(rules, content, facts, about=about, earlier=self._earlier, check=self._run_check)
        self._earlier.add(content_digest(content))
        self.verdicts += [verdict.as_json() for verdict in result.verdicts]
        if result.then == "stop":
            raise StoppedByGate(result.explain_to_model(), where=paths.agent_folder(self._agent.name))
        return result

    def to_snapshot(self) -> dict[str, Any]:
        """Return the snapshot of gates for the turn's record."""
        tick_context, output_rules = self._tick_context, rules_at_stage(self._all_rules, "out")
        snapshot: dict[str, Any] = {"rules": [rule.as_json() for rule in output_rules]}
        if output_rules and tick_context.config.has_channels:
            snapshot["channels"] = sorted(tick_context.config.find_channels(tick_context.mail.resumes))
        if self._judged_rules:
            from lemming.capabilities.gates.gate_judges import to_recorded_rules  # imported only if needed

            snapshot["rules"] = to_recorded_rules(tick_context, self._agent, self._all_rules)
        if any(rule.gate.dedupe for rule in output_rules):
            own_entries = read_outbox_entries(tick_context.org.base, self._agent.name, RECENT_ENTRIES)
            snapshot["said_before"] = [content_digest(entry.payload) for entry in own_entries]
        # Turns started up to 0.2.0 keep their notes unchanged.
        notes = any(rule["gate"].get("at") == "out" and rule["gate"].get("redact") for rule in snapshot["rules"])
        return {key: value for key, value in {**snapshot, "verdicts": self.verdicts, "notes": notes}.items() if value}


def _trust_fact(label: str) -> dict[str, str]:
    return {"trust": label} if label else {}


def _pass(effect: Any, name: str, value: Any) -> Interception:
    """Pass an effect with the value that the gates allow; unchanged if they changed nothing."""

    def pass_changed() -> Generator[Effect, Outcome, Outcome]:
        return (yield replace(effect, **{name: value}))

    return None if value is getattr(effect, name) else pass_changed()


class OutputGates:
    """Output gates of a turn, and the judges of its call gates."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._snapshot = turn, turn.snapshot
        rules = [GateRule(rule["line"], to_value(Gate, rule["gate"])) for rule in self._snapshot["rules"]]
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
        rules = [rule for rule in self._rules if not _is_answered(rule.gate, approvers)]
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
        inputs, request = self._turn.inputs, self._turn.request
        channels = self._snapshot.get("channels", ())
        if not channels or not parse_targets(payload).isdisjoint(channels):
            return bool(channels)
        if kind != "response":
            return False
        askers = dict(inputs.open_requests)
        if request and request.request:
            askers |= {request.request: request.asker, request.reference: request.asker}
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
        return self._turn.run_check(
            name, lambda context: make_check_runner(tuple(context.settings.plugins))(name, fields)
        )


def _is_answered(gate: Gate, approvers: Collection[str]) -> bool:
    return gate.then == "ask" and any(not gate.persons or name in gate.persons for name in approvers)


def _applies_to_tags(gate: Gate) -> bool:
    """Return True if a gate also applies to tags: pattern gates, and a gate with "pass" for whole entries."""
    return gate.finding_key in ("deny", "redact") or (gate.then == "pass" and not gate.finding_key)
