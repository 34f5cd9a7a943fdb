"""Gates at the inputs of a turn: entries, memories, files and results of earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.gates.check_functions import make_check_runner
from lemming.capabilities.gates.gate_evaluation import GateResult, content_digest, evaluate_gates, rules_at_stage
from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import rules_for_agent
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import StoppedByGate
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.turn_task import RequestOutcome, Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry, read_outbox_entries
from lemming.kernel.turn.guards import ContextCandidates, IsPreapproved, TrustLabeler
from lemming.kernel.turn.interceptor_chain import find_trust_labeler
from lemming.kernel.turn.prompt_prefix import TickContext

RECENT_ENTRIES = 200
"""Number of the agent's newest entries that `dedupe` compares with."""
WITHHELD = "withheld"
"""Key of a payload with the reason why gates withhold the rest."""


def never_preapproved(entry: OutboxEntry) -> bool:
    """Return False: without approvals, no entry is approved in advance."""
    return False


class InputGates:
    """Input gates of one turn. `verdicts` collects their verdicts."""

    def __init__(
        self,
        rules: Sequence[GateRule],
        agent: Agent,
        tick: int,
        plugins: Sequence[str],
        trust_labeler: TrustLabeler | None,
        channels: Collection[str] = (),
        is_preapproved: IsPreapproved = never_preapproved,
    ) -> None:
        self._is_preapproved, self._channels = is_preapproved, channels
        self._rules, self._agent, self._tick, self._trust_labeler = rules, agent, tick, trust_labeler
        self._run_check = make_check_runner(tuple(plugins))
        self._earlier: set[str] = set()
        self._entries: dict[str, OutboxEntry] = {}
        self._results: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        self.verdicts: list[dict[str, Any]] = []

    def filter_inbox(self, inbox: Inbox) -> Inbox:
        """Return an inbox as filtered by the gates."""
        return replace(
            inbox, unread=[*map(self.filter_entry, inbox.unread)], earlier=[*map(self.filter_entry, inbox.earlier)]
        )

    def filter_task(self, task: Task) -> Task:
        """Return the task of a turn as filtered by the gates."""
        return task._replace(
            request=self.filter_entry(task.request) if task.request else None,
            thread=[*map(self.filter_entry, task.thread)],
            outcomes=[*map(self._filter_outcome, task.outcomes)],
        )

    def _filter_outcome(self, ended: RequestOutcome) -> RequestOutcome:
        return ended._replace(answer=self.filter_entry(ended.answer) if ended.answer else None)

    def filter_entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return an entry of another agent as filtered by the gates. Each entry is evaluated once."""
        if entry.agent == self._agent.name:
            return entry
        # An entry may appear in several parts of one prompt: it is evaluated, and reported, once.
        if entry.identity not in self._entries:
            self._entries[entry.identity] = self._evaluate_entry(entry)
        return self._entries[entry.identity]

    def find_approval_gate(self, entry: OutboxEntry) -> GateRule | None:
        """Return the gate that requires a person's approval of an entry, or None."""
        result = evaluate_gates(
            self._rules, entry.payload, self._entry_facts(entry), about=entry.identity, check=self._run_check
        )
        if result.then != "ask":
            return None
        return next(rule for rule in self._rules if rule.line == result.decisive_verdict.line)

    def _entry_facts(self, entry: OutboxEntry) -> Callable[[Any], dict[str, Any]]:
        def build_facts(payload: Any) -> dict[str, Any]:
            fields: dict[str, Any] = {"from": entry.agent, "kind": entry.kind, "tags": entry.tags}
            fields |= {"id": entry.id, "channel": entry.agent in self._channels}
            trust = self._trust_fact(self._trust_labeler.entry_label(entry)) if self._trust_labeler else {}
            fields = {**self._base_facts("entry"), **fields, **trust}
            return {**fields, "text": payload.get("text"), "payload": payload}

        return build_facts

    def _evaluate_entry(self, entry: OutboxEntry) -> OutboxEntry:
        rules = None
        if self._is_preapproved(entry):
            rules = [rule for rule in self._rules if rule.gate.then != "ask"]
        result = self._evaluate(entry.payload, self._entry_facts(entry), f"entry {entry.identity}", rules)
        if result.is_allowed:
            return entry if result.content == entry.payload else replace(entry, payload=result.content)
        target: dict[str, Any] = {key: entry.payload[key] for key in ("target", "reply_to") if key in entry.payload}
        # Tags are text of the author too.
        return replace(entry, payload={**target, WITHHELD: result.explain_to_model()}, tags=[])

    def filter_memories(self, memories: Memories) -> Memories:
        """Return memories as filtered by the gates."""
        values = {}
        labels = self._trust_labeler.memory_labels(self._agent.name, memories) if self._trust_labeler else {}
        for key, value in memories.values.items():
            fields = {"key": key, **self._trust_fact(labels.get(key))}
            values[key] = self._filter_value("memory", fields, value, f"memory {key}")
        return memories._replace(values=values)

    def filter_files(self, context: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return labelled files as filtered by the gates."""
        return [(label, self._filter_value("file", {"label": label}, text, f"file {label}")) for label, text in context]

    def filter_results(self, results: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return results of earlier calls as filtered by the gates."""
        return [*map(self._filter_cached_result, results)]

    def _filter_cached_result(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a filtered result. The same result object is evaluated once."""
        if id(result) not in self._results:
            # The result is kept too, or another object could get its `id`.
            self._results[id(result)] = result, {**result, "output": self._filter_result(result)}
        return self._results[id(result)][1]

    def _filter_result(self, result: Mapping[str, Any]) -> Any:
        fields = {"tool": result["tool"], **self._trust_fact(result.get("trust"))}
        return self._filter_value("result", fields, result["output"], f"result of {result['tool']}")

    def _trust_fact(self, label: str | None) -> dict[str, str]:
        return (
            {"trust": self._trust_labeler.normalize(label or self._trust_labeler.default)}
            if self._trust_labeler
            else {}
        )

    def _filter_value(self, kind: str, extra_fields: dict[str, Any], value: Any, about: str) -> Any:
        def build_facts(value: Any) -> dict[str, Any]:
            text = value if isinstance(value, str) else None
            return {**self._base_facts(kind), **extra_fields, "value": value, "text": text}

        result = self._evaluate(value, build_facts, about)
        return result.content if result.is_allowed else f"[{WITHHELD}: {result.explain_to_model()}]"

    def _base_facts(self, kind: str) -> dict[str, Any]:
        return {"what": kind, "agent": self._agent.name, "tick": self._tick}

    def _evaluate(
        self, content: Any, facts: Callable[[Any], dict[str, Any]], about: str, rules: Sequence[GateRule] | None = None
    ) -> GateResult:
        applicable_rules = self._rules if rules is None else rules
        result = evaluate_gates(
            applicable_rules, content, facts, about=about, earlier=self._earlier, check=self._run_check
        )
        self._earlier.add(content_digest(content))
        self.verdicts += [verdict.as_json() for verdict in result.verdicts]
        if result.then == "stop":
            raise StoppedByGate(result.explain_to_model(), where=paths.agent_folder(self._agent.name))
        return result


def make_input_gates(
    tick_context: TickContext,
    agent: Agent,
    rules: Sequence[GateRule],
    is_preapproved: IsPreapproved = never_preapproved,
) -> InputGates:
    """Return the input gates of one turn, ready for evaluation."""
    settings = tick_context.config.org
    trust_labeler = find_trust_labeler(tick_context, agent)
    channels = tick_context.config.find_channels(tick_context.mail.resumes) if tick_context.config.has_channels else ()
    return InputGates(rules, agent, tick_context.tick, settings.plugins, trust_labeler, channels, is_preapproved)


def filter_shown(
    tick_context: TickContext, agent: Agent, candidates: ContextCandidates, is_preapproved: IsPreapproved
) -> tuple[ContextCandidates, dict[str, Any]]:
    """Return the candidates allowed by the input gates, and the snapshot of gates for the turn's record.

    Raises: StoppedByGate if a gate ends the turn.
    """
    settings = tick_context.config.org
    rules = rules_for_agent(agent, settings)
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
    if not (input_rules := rules_at_stage(rules, "in")):
        return candidates, snapshot
    input_gates = make_input_gates(tick_context, agent, input_rules, is_preapproved)
    task = input_gates.filter_task(candidates.task) if candidates.task else None

    def render_results(filtered_task: Task | None) -> Sequence[Mapping[str, Any]]:
        return input_gates.filter_results(
            candidates.render_results(_with_filtered_answers(candidates.task, filtered_task))
        )

    allowed_candidates = ContextCandidates(
        task=task,
        inbox=input_gates.filter_inbox(candidates.inbox),
        requests=[*map(input_gates.filter_entry, candidates.requests)],
        memories=input_gates.filter_memories(candidates.memories),
        context=input_gates.filter_files(candidates.context),
        render_results=render_results,
    )
    return allowed_candidates, {**snapshot, "verdicts": input_gates.verdicts}


def _with_filtered_answers(task: Task | None, filtered_task: Task | None) -> Task | None:
    """Return the task with filtered answers. Answers with pending state stay unfiltered."""
    if task is None or filtered_task is None:
        return None
    pairs = zip(task.outcomes, filtered_task.outcomes, strict=True)
    return task._replace(outcomes=[original if original.sub_request.held else filtered for original, filtered in pairs])
