"""Gates at the inputs of a turn: entries, memories, files and results of earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from lemming.capabilities.gates.gate_evaluation import (
    GateResult,
    content_digest,
    evaluate_gates,
    make_check_runner,
    rules_at_stage,
)
from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import build_question, rules_for_agent
from lemming.ext import (
    BuildPrompt,
    Effect,
    Interception,
    Outcome,
    Preparation,
    ReceiveEntry,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import StoppedByGate
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.preparation_chain import find_trust_labeler
from lemming.kernel.turn.prompt_input import withhold_payload, withhold_value
from lemming.libraries.outbox_files import read_outbox_entries

RECENT_ENTRIES = 200
"""Number of the agent's newest entries that `dedupe` compares with."""


class InputGates:
    """Input gates of a turn. `verdicts` collects their verdicts."""

    def __init__(self, turn: Preparation) -> None:
        tick_context, settings = turn.context.tick_context, turn.context.tick_context.config.org
        all_rules = rules_for_agent(turn.agent, settings)
        self._rules, self._judged_rules = rules_at_stage(all_rules, "in"), [rule for rule in all_rules if rule.gate.by]
        self._tick_context = tick_context
        self._agent, self._tick = turn.agent, turn.tick
        self._trust_labeler = find_trust_labeler(tick_context, turn.agent) if self._rules else None
        self._channels: Collection[str] = ()
        if self._rules and tick_context.config.has_channels:
            self._channels = tick_context.config.find_channels(tick_context.mail.resumes)
        self._run_check = make_check_runner(tuple(settings.plugins))
        self._earlier: set[str] = set()
        self._admitted: set[str] = set()
        self._entries: dict[str, OutboxEntry] = {}
        self._memories = turn.memories
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
                return _pass(effect, "entry", self._filter_entry(effect.entry, is_approved=effect.is_approved))
            case ShowMemory(memory_key=key, value=value):
                fields = {"key": key, **self._trust_fact(self._memory_labels.get(key))}
                return _pass(effect, "value", self._filter_value("memory", fields, value, f"memory {key}"))
            case ShowFile(label=label, text=text):
                return _pass(effect, "text", self._filter_value("file", {"label": label}, text, f"file {label}"))
            case BuildPrompt():
                return self._add_judge_files(effect)
            case ShowEarlierResult(result=result):
                fields = {"tool": result["tool"], **self._trust_fact(result.get("trust"))}
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
            self._rules, entry.payload, self._entry_facts(entry), about=entry.identity, check=self._run_check
        )
        if result.then == "ask":
            question = build_question(effect, self._rules, result.approval_verdicts)
            yield replace(question, reason=question.reason or f"it is by {entry.agent}")
        else:
            self._admitted.add(entry.identity)
        return (yield effect)

    def _filter_entry(self, entry: OutboxEntry, *, is_approved: bool) -> OutboxEntry:
        """Return an entry of another agent as filtered by the gates. Each entry is evaluated once."""
        if entry.agent == self._agent.name:
            return entry
        # An entry may appear in several parts of one prompt: it is evaluated, and reported, once.
        if entry.identity not in self._entries:
            is_admitted = is_approved or entry.identity in self._admitted
            rules = [rule for rule in self._rules if not (is_admitted and rule.gate.then == "ask")]
            result = self._evaluate(entry.payload, self._entry_facts(entry), f"entry {entry.identity}", rules)
            if not result.is_allowed:
                entry = withhold_payload(entry, result.explain_to_model())
            elif result.content != entry.payload:
                entry = replace(entry, payload=result.content)
            self._entries[entry.identity] = entry
        return self._entries[entry.identity]

    def _entry_facts(self, entry: OutboxEntry) -> Callable[[Any], dict[str, Any]]:
        def build_facts(payload: Any) -> dict[str, Any]:
            fields: dict[str, Any] = {"from": entry.agent, "kind": entry.kind, "tags": entry.tags}
            fields |= {"id": entry.id, "channel": entry.agent in self._channels}
            trust = self._trust_fact(self._trust_labeler.entry_label(entry)) if self._trust_labeler else {}
            fields = {**self._base_facts("entry"), **fields, **trust}
            return {**fields, "text": payload.get("text"), "payload": payload}

        return build_facts

    @cached_property
    def _memory_labels(self) -> Mapping[str, str]:
        labeler = self._trust_labeler
        return labeler.memory_labels(self._agent.name, self._memories) if labeler else {}

    def _trust_fact(self, label: str | None) -> dict[str, str]:
        labeler = self._trust_labeler
        return {"trust": labeler.normalize(label or labeler.default)} if labeler else {}

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


def _pass(effect: Any, name: str, value: Any) -> Interception:
    """Pass an effect with the value that the gates allow; unchanged if they changed nothing."""

    def pass_changed() -> Generator[Effect, Outcome, Outcome]:
        return (yield replace(effect, **{name: value}))

    return None if value is getattr(effect, name) else pass_changed()


def make_snapshot(turn: Preparation, input_gates: InputGates) -> dict[str, Any]:
    """Return the snapshot of gates for the turn's record."""
    tick_context, agent = turn.context.tick_context, turn.agent
    rules = rules_for_agent(agent, tick_context.config.org)
    output_rules = rules_at_stage(rules, "out")
    snapshot: dict[str, Any] = {"rules": [rule.as_json() for rule in output_rules]}
    if output_rules and tick_context.config.has_channels:
        snapshot["channels"] = sorted(tick_context.config.find_channels(tick_context.mail.resumes))
    if any(rule.gate.by for rule in rules):
        from lemming.capabilities.gates.gate_judges import to_recorded_rules  # imported only if needed

        snapshot["rules"] = to_recorded_rules(tick_context, agent, rules)
    if any(rule.gate.dedupe for rule in output_rules):
        own_entries = read_outbox_entries(tick_context.org.base, agent.name, RECENT_ENTRIES)
        snapshot["said_before"] = [content_digest(entry.payload) for entry in own_entries]
    return {**snapshot, "verdicts": input_gates.verdicts}
