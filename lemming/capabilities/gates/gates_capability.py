"""Capability of gates at the inputs, calls, outputs and spending of a turn. Rules: docs/gates.md."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.capabilities.gates.call_gates import CallGates
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_format import GATES
from lemming.capabilities.gates.gate_settings import get_gates, rules_for_agent
from lemming.capabilities.gates.input_gates import InputGates, make_snapshot
from lemming.capabilities.gates.output_gates import OutputGates
from lemming.ext import (
    AgentCheck,
    Capability,
    CheckResult,
    CheckSubject,
    DescribeQuery,
    Interception,
    Interceptor,
    LiveEffect,
    ModelEntry,
    OrgCheck,
    OrgQuery,
    PointerProblem,
    Preparation,
    Problem,
    ReferenceCheck,
    ResumeCheck,
    RunTool,
    SendRequest,
    SharedResource,
    StateQuery,
    TickContext,
    ToolReference,
    TurnInputs,
    TurnView,
    to_problems,
)
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import Config, OrgSettings
from lemming.kernel.org.organisation import Organisation, OrgPath


class GatesCapability(Capability):
    """Gates of the key `gates` in settings and resumes, at the inputs and outputs of turns."""

    name = GATES
    describes = (ModelEntry, SharedResource, ToolReference)
    handles = (RunTool, CheckResult, SendRequest)
    reads = ("trust", "trust_source", "args_trust")
    joins_later = True  # gates of the current settings
    decides_by_results = False  # but for facts of others

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the input gates of a turn."""
        gates = turn.get_cache(InputGates)
        return Interceptor(self.name, gates.handles, self.facts, gates.intercept)

    def prepare(self, turn: Preparation) -> Json:
        """Return the recorded gates of the turn, the required facts, and earlier verdicts."""
        snapshot = make_snapshot(turn, turn.get_cache(InputGates))
        # Turns started up to 0.2.0 keep their notes unchanged.
        notes = any(rule["gate"].get("at") == "out" and rule["gate"].get("redact") for rule in snapshot["rules"])
        return {key: value for key, value in {**snapshot, "notes": notes}.items() if value}

    facts = ("judged",)

    def interceptor(self, turn: TurnView) -> Interceptor:
        """Return the output gates of a turn. Its snapshot holds `rules`, `channels`, `said_before` and `verdicts`."""
        turn.add_verdicts(turn.snapshot.get("verdicts", ()))
        if "rules" not in turn.snapshot:
            return super().interceptor(turn)
        gates = OutputGates(turn)
        return Interceptor(self.name, gates.handles, self.facts, gates.intercept)

    def intercept(self, effect: LiveEffect, turn: TurnView) -> Interception:
        """Apply the gates to a call, to its whole result, and to the spending of a model call."""
        if isinstance(effect, SendRequest):
            from lemming.capabilities.gates.turn_spending import find_turn_limits

            limits = turn.live.get_cache(find_turn_limits)
            return limits.intercept(effect, turn.live) if limits else None
        gates = turn.live.get_cache(CallGates.for_turn)
        if gates is None:
            return None
        return (
            gates.intercept_call(effect, turn.live)
            if isinstance(effect, RunTool)
            else gates.intercept_result(effect)
            if isinstance(effect, CheckResult) and gates.results
            else None
        )

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield the problems of gates: unknown names, invalid limits and judges, no effect, unchecked actions."""
        if isinstance(subject, ReferenceCheck):
            yield from to_problems(_validate_references(subject))
        elif isinstance(subject, AgentCheck):
            yield from _validate_settings(subject.base, subject.agent, subject.config)
        elif isinstance(subject, OrgCheck):
            from lemming.capabilities.gates.gates_validation import validate_gates
            from lemming.capabilities.gates.untrusted_senders import validate_untrusted_access

            yield from validate_gates(subject.base, subject.config, subject.only)
            yield from validate_untrusted_access(subject.base, subject.config, subject.only)
            if subject.only is None:
                yield from _validate_settings(subject.base, None, subject.config)
        elif isinstance(subject, ResumeCheck):
            yield from _validate_resumed_turn(subject.inputs, subject.tick_context)

    def describe(self, query: DescribeQuery) -> Iterator[ModelEntry | SharedResource | ToolReference]:
        """Yield the programs of recorded judges, the limits that turns share, and the tools in gates."""
        if isinstance(query, StateQuery):
            judge_snapshots = [rule["judge"] for rule in query.state.get("rules", ()) if "judge" in rule]
            if judge_snapshots:
                from lemming.capabilities.judges.judge_prompts import iter_program_entries  # imported only if needed

                yield from iter_program_entries(judge_snapshots)
        elif isinstance(query, OrgQuery) and query.kind is ToolReference:
            sources: list[OrgSettings | Agent] = [query.config.org, *query.agents.values()]
            gates = (gate for source in sources for gate in get_gates(source))
            yield from (ToolReference(pattern) for gate in gates for pattern in gate.tool_patterns)
        elif isinstance(query, OrgQuery):
            from lemming.capabilities.gates.tick_spending import find_shared_limits

            yield from find_shared_limits(query.agents, query.config.org)


def _validate_resumed_turn(inputs: TurnInputs, tick_context: TickContext) -> Iterator[Problem]:
    """Yield a problem for an output gate that was added after the turn started."""
    agent, recorded = inputs.agent, inputs.given.get(GATES, {}).get("rules", ())
    recorded_gates = [recorded_rule["gate"] for recorded_rule in recorded]
    for rule in rules_at_stage(rules_for_agent(agent, tick_context.config.org), "out"):
        if rule.as_json()["gate"] not in recorded_gates:
            yield Problem(f"a gate stands at {rule.line} which the turn was not begun with")


def _validate_references(subject: ReferenceCheck) -> Iterator[PointerProblem]:
    from lemming.capabilities.gates.dead_gates import validate_gate

    for index, gate in enumerate(get_gates(subject.agent or subject.names.config.org)):
        for reference_error in validate_gate(gate, subject.names, subject.agent):
            yield reference_error._replace(at=f"/gates/{index}{reference_error.at}")


def _validate_settings(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield problems of spending limits and of judges in the gates of an agent, or of the settings."""
    gates = get_gates(agent or config.org)
    if gates:
        from lemming.capabilities.gates.gates_validation import validate_limits

        yield from validate_limits(base, agent, config)
    if any(gate.by for gate in gates):
        from lemming.capabilities.gates.gates_validation import validate_gate_judges

        yield from validate_gate_judges(base, agent, config)


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions required by judge programs at gates."""
    sources: list[OrgSettings | Agent] = [config.org, *agents]
    judged = [source for source in sources if any(gate.by for gate in get_gates(source))]
    if judged:
        from lemming.capabilities.gates.gates_validation import gate_judge_programs

        for source in judged:
            yield from gate_judge_programs(org.base, source)
