"""Gates at the calls of a turn and at their results. Live, not replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemming.capabilities.gates.gate_evaluation import (
    CheckRunner,
    Facts,
    GateResult,
    evaluate_gates,
    make_check_runner,
    reject_judges,
    rules_at_stage,
)
from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import build_question, rules_for_agent
from lemming.capabilities.gates.path_arguments import PathResolver, find_defaults, path_parameters
from lemming.ext import Allowed, CheckResult, Interception, LemmingError, LivePhase, Rejected, RunTool, ToolCall
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tools import EngineTool, Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.turn_values import CheckFinding
from lemming.obligations.pending_actions import find_call_review


class CallNotPlannable(ToolError):
    """Planning a call failed, so its changes are unknown: the call is not made."""


@dataclass
class CallGates:
    """Gates at an agent's calls and at their results.

    `trust`: the label of the turn, or for a result the label after the result. Empty without tracking.
    """

    calls: Sequence[GateRule]
    results: Sequence[GateRule]
    agent: Agent
    settings: OrgSettings
    tick: int
    trust: str = ""
    argument_facts: Callable[[Any], dict[str, Any]] = lambda _: {}

    @classmethod
    def for_turn(cls, phase: LivePhase) -> CallGates | None:
        """Return the call gates of a turn by the current settings, or None without any."""
        return cls.for_agent(phase.inputs.agent, phase.tick_context.config.org, phase.inputs.tick)

    @classmethod
    def for_agent(cls, agent: Agent, settings: OrgSettings, tick: int) -> CallGates | None:
        """Return the call gates of an agent, or None without any."""
        rules = rules_for_agent(agent, settings)
        calls, results = rules_at_stage(rules, "call"), rules_at_stage(rules, "result")
        results = tuple(rule for rule in results if not rule.gate.by)  # the turn evaluates gates with judges
        return cls(calls, results, agent, settings, tick) if calls or results else None

    def intercept_call(self, effect: RunTool, phase: LivePhase) -> Interception:
        """Let a call run, as rewritten by gates, reject the call, or ask persons."""
        self.trust = effect.facts.get("trust", "")
        self.argument_facts = effect.facts.get("args_trust", self.argument_facts)
        try:
            result = self.evaluate_call(effect.call, effect.tool, effect.context)
        except CallNotPlannable as error:
            return Allowed(effect, ToolResult(False, redact_untrusted(str(error))))
        phase.add_verdicts(result.verdicts)
        if result.then not in ("pass", "ask"):
            return Rejected(result.explain_to_model(), is_final=result.then == "stop")
        passed = effect.with_args(result.content)
        if not result.is_allowed:
            source = effect.facts.get("trust_source", "")
            exposure = f"this turn was shown {self.trust} text: {source}" if source else ""
            outcome = yield build_question(passed, self.calls, result.approval_verdicts, exposure)
            if isinstance(outcome.answer, ToolResult):  # it would fail anyway, and nobody was asked
                return Allowed(passed, outcome.answer)
        return (yield passed)

    def evaluate_call(self, call: ToolCall, tool: Tool, context: ToolContext) -> GateResult:
        """Evaluate the gates on a call before the call is made. The allowed content is the arguments."""
        concerned = [rule for rule in self.calls if rule.gate.concerns_tool(call.tool, tool.tool_class)]
        rules = self._make_resolver(context.base).resolve_rules(concerned, tool.place_arguments)
        review = find_call_review(call.tool) if rules else None
        args = review.expand_arguments(context.org, call.args) if review else call.args
        facts = self.make_facts_builder(call, tool, context) if rules else dict

        def get_verdict(rule: GateRule, fields: dict[str, Any]) -> CheckFinding | None:
            reason = (call.judged or {}).get(rule.line)  # asked earlier, within the turn
            return reject_judges(rule, fields) if reason is None else CheckFinding(reason) if reason else None

        result = evaluate_gates(rules, args, facts, about=call.tool, check=self._check_runner, judge=get_verdict)
        return result._replace(content=call.args) if result.content == args else result

    def make_facts_builder(self, call: ToolCall, tool: Tool, context: ToolContext) -> Facts:
        """Return the facts builder for conditions on a call, for any rewritten arguments."""

        planned_facts = self._describe_changes(tool, call.args, context)

        def build_facts(args: Any) -> dict[str, Any]:
            # Planned once, and again only if a gate changed the arguments.
            change_facts = planned_facts if args == call.args else self._describe_changes(tool, args, context)
            origin = self.argument_facts(args)
            if self.trust and not origin:  # arguments of unknown origin have the label of the turn
                labels = dict.fromkeys(args if isinstance(args, dict) else (), self.trust)
                origin = {"args_trust": labels, "args_lowest": self.trust}
            resolved_args = self._resolve_arguments(args, tool, context.base)
            return {**self._base_facts(call, tool), **change_facts, **origin, "args": resolved_args}

        return build_facts

    def intercept_result(self, effect: CheckResult) -> Interception:
        """Evaluate the gates on the whole result of a call, before truncation."""
        call, tool, base, result = effect.call, effect.tool, effect.context.base, effect.result
        self.trust = effect.facts.get("trust", "")
        args = self._resolve_arguments(call.args, tool, base) if self.results else call.args

        def build_facts(output: Any) -> dict[str, Any]:
            result_facts = {"args": args, "success": result.success, "outcome": result.outcome}
            return {**self._base_facts(call, tool), **result_facts, "output": output}

        rules = self._make_resolver(base).resolve_rules(self.results, tool.place_arguments)
        gate_result = evaluate_gates(rules, result.output, build_facts, about=call.tool, check=self._check_runner)
        return (yield replace(effect, result=gate_result.apply_to_result(result)))

    def _make_resolver(self, base: Path) -> PathResolver:
        return PathResolver(self.agent.name, base)

    def _resolve_arguments(self, args: Any, tool: Tool, base: Path) -> Any:
        path_defaults = path_parameters(tool.place_arguments, tool.parameters)
        return self._make_resolver(base).resolve_arguments(args, find_defaults(tool.parameters), path_defaults)

    def _base_facts(self, call: ToolCall, tool: Tool) -> dict[str, Any]:
        facts = {"agent": self.agent.name, "tick": self.tick, "tool": call.tool, "class": tool.tool_class}
        return {**facts, "trust": self.trust} if self.trust else facts

    def _describe_changes(self, tool: Tool, args: Any, context: ToolContext) -> dict[str, Any]:
        """Return the facts about the planned changes of a call. `own`: all changes are to the agent's own files."""
        if not (isinstance(tool, EngineTool) and tool.is_plan_only):
            return {}
        plan = isolate(lambda: tool.plan(context, **tool.parse_arguments(args)))
        if isinstance(plan, Exception) and not isinstance(plan, LemmingError):
            # A gate on `writes` would see no change and let the call pass.
            raise CallNotPlannable(f"{tool.name} failed: {describe_exception(plan)}") from plan
        # A call that cannot be planned will fail for the same reason.
        changed_paths = [] if isinstance(plan, LemmingError) else [effect.path_key for effect in plan.effects]
        own_folders = f"{paths.workspace_folder(self.agent.name)}/", f"{paths.memory_folder(self.agent.name)}/"
        return {"writes": changed_paths, "own": all(path.startswith(own_folders) for path in changed_paths)}

    @property
    def _check_runner(self) -> CheckRunner:
        return make_check_runner(tuple(self.settings.plugins))
