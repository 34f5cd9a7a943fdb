"""Preview of the gates at a call, line by line. No tool and no function is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lemming.capabilities.gates.call_gates import CallGates, common_approvers
from lemming.capabilities.gates.gate_evaluation import Facts, evaluate_gates
from lemming.capabilities.gates.gate_format import SETTLES, Gate, GateRule
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.ext import LemmingError, ToolCall, find_people, load_tick
from lemming.kernel.agents import Agent, Survey, suggest_agent
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.times import Expiry
from lemming.kernel.journal.turn_report import Then
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.guards import CheckFunctionError

Json = dict[str, Any]


class GatePreview(NamedTuple):
    """Predicted action of one gate, with its reason.

    `then` is None if the gate does nothing. `undecided_by`: the function or judge with the decision.
    """

    line: str
    gate: Gate
    then: Then | None = None
    reason: str = ""
    undecided_by: str = ""


@dataclass(frozen=True)
class CallPreview:
    """Predicted outcome of a call.

    `refusal`: the reason the agent may not call the tool regardless of gates, or the empty string. `then`:
    the action of the decisive gate at `line`, or "pass". `undecided_gates`: gates with functions or judges.
    `argument_error`: the tool's objection to the arguments. `other_labels`: different outcomes under other
    trust labels.
    """

    agent: str
    tool: str
    tool_class: str
    refusal: str
    trust: str
    args: Any
    steps: Sequence[GatePreview] = ()
    then: Then = "pass"
    line: str = ""
    reason: str = ""
    args_after: Any = None
    persons: Sequence[str] = ()
    expires: Sequence[Expiry] = ()
    argument_error: str = ""
    results: Sequence[str] = ()
    other_labels: Sequence[tuple[str, Then, str]] = ()

    @property
    def undecided_gates(self) -> list[GatePreview]:
        """Gates before the decisive gate that run a function or ask a judge."""
        return [step for step in self.steps if step.undecided_by]

    @property
    def is_rewritten(self) -> bool:
        """Return True if gates would change the arguments of the call."""
        return bool(self.args_after != self.args)


def explain_call(
    context: ToolContext, config: Config, survey: Survey, name: str, args: Any, trust: str | None = None
) -> CallPreview:
    """Return the predicted outcome of a call.

    Raises: UsageError for an unknown trust label.
    """
    agent = context.agent
    trusted = config.org.extensions.get("trust")
    labels = [*trusted.order] if trusted else []
    _require_label(trust, labels)
    tool = get_toolset(context.settings, context.org).for_agent(agent.name).get(name)
    granted = _refusal_reason(context, name)
    label = trust or _base_label(context, config, survey)
    preview = CallPreview(agent.name, name, tool.tool_class if tool else "", granted, label, args, args_after=args)
    if tool is None or granted:
        return preview
    explained = _preview_call(preview, context, config, survey, tool)
    other_labels = [] if trust else [candidate for candidate in labels if candidate != label]
    elsewhere = [
        _preview_call(replace(preview, trust=candidate), context, config, survey, tool) for candidate in other_labels
    ]
    differing = (
        (candidate.trust, candidate.then, candidate.line) for candidate in elsewhere if candidate.line != explained.line
    )
    return replace(explained, other_labels=[*differing], argument_error=_argument_error(tool, explained.args_after))


def build_tool_context(org: Organisation, config: Config, agent: Agent, current_time: str) -> ToolContext:
    """Return the context of a tool call by the agent at this time."""
    return ToolContext(
        agent=agent, org=org, settings=config.org, now=current_time, tick=load_tick(org), began_at=current_time
    )


def _preview_call(
    preview: CallPreview, context: ToolContext, config: Config, survey: Survey, tool: Tool
) -> CallPreview:
    rules = rules_for_agent(context.agent, config.org)
    gates = CallGates([], [], context.agent, config.org, context.tick, preview.trust)
    call = ToolCall(preview.tool, preview.args)
    args_after, steps = preview.args, list[GatePreview]()
    facts = gates.make_facts_builder(call, tool, context)
    at_calls = [rule for rule in rules if rule.gate.at == "call" and _concerns(rule.gate, tool)]
    resolved_rules = gates.resolve_paths(at_calls, tool, context.base)
    for step, args_after in _preview_gates(resolved_rules, call, facts):  # noqa: B007 - the last is what counts
        steps.append(step)
    last = steps[-1] if steps and steps[-1].then in SETTLES else None
    asking_steps = [step for step in steps if step.then == "ask"]
    persons: Sequence[str] = ()
    expires: Sequence[Expiry] = ()
    if asking_steps and (last is None or last.then == "pass"):
        last = asking_steps[0]
        person_names, expires = common_approvers([step.gate for step in asking_steps])
        if person_names != frozenset():
            persons = find_approvers(find_people(survey, config), survey.agents, preview.agent, person_names or ())
    results = [rule.line for rule in rules if rule.gate.at == "result" and _concerns(rule.gate, tool)]
    return replace(
        preview,
        steps=steps,
        then=(last.then if last else None) or "pass",
        line=last.line if last else "",
        reason=last.reason if last else "",
        args_after=args_after,
        persons=persons,
        expires=expires,
        results=results,
    )


def _concerns(gate: Gate, tool: Tool) -> bool:
    return gate.concerns_tool(tool.name, tool.tool_class)


def _preview_gates(rules: Iterable[GateRule], call: ToolCall, facts: Facts) -> Iterator[tuple[GatePreview, Any]]:
    """Yield the action of each gate and the arguments after it, up to the decisive gate."""
    args = call.args
    for rule in rules:
        asks = _RecordingStub()
        # A gate that passes gives no reason: asked as a gate that warns, it shows if the call concerns it.
        gate = replace(rule.gate, then="warn") if rule.gate.then == "pass" else rule.gate
        result = evaluate_gates([GateRule(rule.line, gate)], args, facts, about=call.tool, check=asks, judge=asks.judge)
        if asks.name:
            yield GatePreview(rule.line, rule.gate, undecided_by=asks.name), args
            continue
        if not result.verdicts:
            yield GatePreview(rule.line, rule.gate), args
            continue
        verdict = result.decisive_verdict
        then: Then = "pass" if rule.gate.then == "pass" and verdict.then == "warn" else verdict.then
        args = result.content
        yield GatePreview(rule.line, rule.gate, then, verdict.why), args
        if then in SETTLES:
            return


class _RecordingStub:
    """Stub for functions and judges: records names and runs nothing."""

    name = ""

    def __call__(self, name: str, fields: Json) -> None:
        """Note the name of a function.

        Raises: CheckFunctionError always, because the function does not run.
        """
        self.name = f"the function {name}"
        raise CheckFunctionError(f"{self.name} is not asked here")

    def judge(self, rule: GateRule, fields: Json) -> None:
        """Note the name of a judge.

        Raises: CheckFunctionError always, because the judge is not asked.
        """
        self.name = f"the judge {rule.gate.by}"
        raise CheckFunctionError(f"{self.name} is not asked here")


def _require_label(trust: str | None, labels: list[str]) -> None:
    if trust is not None and not labels:
        hint = 'set "trust": {} in config/org.json to track trust'
        raise UsageError("trust tracking is off in this organisation", hint=hint)
    if trust is not None and trust not in labels:
        hint = did_you_mean(trust, labels) or f"use one of {', '.join(labels)}"
        raise UsageError(f'--trust must be a trust label, got "{trust}"', hint=hint)


def _refusal_reason(context: ToolContext, name: str) -> str:
    try:
        get_toolset(context.settings, context.org).require_allowed(name, context.agent, context.settings)
    except LemmingError as error:
        return str(error)
    return ""


def _argument_error(tool: Tool, args: Any) -> str:
    if not isinstance(args, dict):
        return "args must be an object"
    try:
        tool.parse_arguments(args)
    except LemmingError as error:
        return error.message
    return ""


def _base_label(context: ToolContext, config: Config, survey: Survey) -> str:
    """Return the trust label of a turn after trusted text only, or the empty string without trust tracking."""
    if "trust" not in config.org.extensions:
        return ""
    from lemming.capabilities.trust.author_labels import OrgTrustLabeler

    authors = OrgTrustLabeler(context.org, config, survey.agents, context.tick)
    return authors.author_label(context.agent.name)


def find_agent(survey: Survey, name: str) -> Agent:
    """Return an agent by name.

    Raises: UsageError with the nearest name if there is no such agent, ConfigError if its resume is broken.
    """
    if name in survey.broken:
        raise survey.broken[name]
    if name not in survey.agents:
        raise UsageError(f'there is no agent "{name}"', hint=suggest_agent(name, [*survey.agents]))
    return survey.agents[name]
