"""Capability of gates at the inputs, calls, outputs and spending of a turn. Rules: docs/gates.md."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.capabilities.gates.call_gates import CallGates
from lemming.capabilities.gates.content_gates import InputGates, OutputGates
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_format import GATES
from lemming.capabilities.gates.gate_settings import iter_rules, rules_for_agent
from lemming.ext import (
    Capability,
    CheckResult,
    DescribeQuery,
    Interception,
    Interceptor,
    LiveEffect,
    ModelEntry,
    OrgQuery,
    Preparation,
    Problem,
    RunTool,
    SendRequest,
    SharedResource,
    StateQuery,
    ToolReference,
    TurnSubject,
    TurnView,
)
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation


class GatesCapability(Capability):
    """Gates of the key `gates` in settings and resumes, at the inputs and outputs of turns."""

    name = GATES
    describes = (ModelEntry, SharedResource, ToolReference)
    handles = (RunTool, CheckResult, SendRequest)
    reads = ("trust", "trust_source", "args_trust")
    joins_later = True  # gates of the current settings
    decides_by_results = False  # but for facts of others

    def prepare(self, turn: Preparation) -> Json:
        """Return the recorded gates of the turn, the required facts, and earlier verdicts."""
        return turn.get_cache(InputGates).to_snapshot()

    facts = ("judged",)

    def interceptor(self, turn: Preparation | TurnView) -> Interceptor:
        """Return the input or output gates of a turn. Its snapshot has `rules`, `channels`, `said_before` and `verdicts`."""
        gates: InputGates | OutputGates
        if isinstance(turn, Preparation):
            gates = turn.get_cache(InputGates)
        else:
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
        if isinstance(effect, RunTool):
            return gates.intercept_call(effect, turn.live)
        return gates.intercept_result(effect) if isinstance(effect, CheckResult) and gates.results else None

    def describe(self, query: DescribeQuery) -> Iterator[ModelEntry | SharedResource | ToolReference]:
        """Yield the programs of recorded judges, the limits that turns share, and the tools in gates."""
        if isinstance(query, StateQuery):
            judge_snapshots = [rule["judge"] for rule in query.state.get("rules", ()) if "judge" in rule]
            if judge_snapshots:
                from lemming.capabilities.judges.resolved_judges import iter_program_entries  # imported only if needed

                yield from iter_program_entries(judge_snapshots)
        elif isinstance(query, OrgQuery) and query.kind is ToolReference:
            for rule in iter_rules(query.config.org, *query.agents.values()):
                yield from map(ToolReference, rule.gate.tool_patterns)
        elif isinstance(query, OrgQuery):
            from lemming.capabilities.gates.tick_spending import find_shared_limits

            yield from find_shared_limits(query.agents, query.config.org)


def find_added_gates(turn: TurnSubject) -> Iterator[Problem]:
    """Yield a problem for an output gate that was added after the turn started."""
    agent, recorded = turn.inputs.agent, turn.inputs.given.get(GATES, {}).get("rules", ())
    recorded_gates = [recorded_rule["gate"] for recorded_rule in recorded]
    for rule in rules_at_stage(rules_for_agent(agent, turn.tick_context.config.org), "out"):
        if rule.as_json()["gate"] not in recorded_gates:
            yield Problem(f"a gate stands at {rule.line} which the turn was not begun with")


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions required by judge programs at gates."""
    for rule in iter_rules(config.org, *agents):
        if rule.gate.by:
            from lemming.capabilities.judges.judges_capability import program_permission  # only a judge needs judges

            file = rule.line.partition("#")[0]
            yield from program_permission(org.base, rule.gate.by, f"at a gate of {file}", rule.line)
