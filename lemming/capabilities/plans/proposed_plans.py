"""Proposed plans: plans sent with a request, run only after a person's approval. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lemming.capabilities.plans.foreach_step import describe_items
from lemming.capabilities.plans.plan_format import FAIL, AgentPlan, ChoiceSettings, StepAction, StepDefinition, get_kind
from lemming.capabilities.plans.plan_rules import validate_plan
from lemming.ext import ConfigError, NewEntry, Problem, ToolCall
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.files.unknown_keys import unknown_keys

PROPOSE = "plan_propose"
"""The tool that checks a plan; where it succeeds, the turn writes the request."""
APPROVAL = "approval:"
"""The step that is put before all others; no step of a plan can have this name."""
DECISION: dict[str, Any] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["approve", "reject"]}, "reasons": {"type": "string"}},
    "required": ["decision"],
}


def build_proposal(call: ToolCall) -> NewEntry:
    """Return the request created by a successful call of `plan_propose`."""
    args = call.args
    return NewEntry("request", {"text": args["text"], "target": args["agent"], "plan": args["plan"]}, [])


def get_proposed_plan(payload: Mapping[str, Any], follower_plan: AgentPlan) -> Any:
    """Return the plan sent with a request, or None if there is none or the agent accepts none."""
    return payload.get("plan") if follower_plan.proposals else None


def parse_proposed_plan(plain: Any) -> AgentPlan:
    """Return a proposed plan from JSON values. Raises: ConfigError with all problems of the plan."""
    try:
        plan: AgentPlan = to_value(AgentPlan, plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    errors = [replace(unknown_key, severity="error") for unknown_key in unknown_keys(plain, AgentPlan)]
    errors += [problem for problem in validate_plan(plan) if problem.severity == "error"]
    for action, _, pointer in plan.iter_actions():
        judge = action.verify.judge_settings if action.verify else None
        if judge and judge.target.kind == "command":
            message, hint = "a plan that is proposed runs no program", "let an agent or a model judge"
            errors.append(Problem(message, pointer=f"{pointer}/verify/by", hint=hint))
    if plan.proposals:
        errors.append(Problem('a proposed plan must not have "proposals"', pointer="/proposals", hint="remove it"))
    if errors:
        raise ConfigError("; ".join(map(str, errors[:5])), problems=tuple(errors))
    return plan


def resolve_proposal(plain: Any, follower_plan: AgentPlan) -> AgentPlan:
    """Return the plan behind an approval step: a person sees it first. Raises: ConfigError for an invalid plan."""
    plan = parse_proposed_plan(plain)
    first = plan.steps[0].name
    approval_step = StepDefinition(
        name=APPROVAL,
        ask=follower_plan.proposals,
        task=_summarize_plan(plan),
        context=["start", "start.plan"],
        output=DECISION,
        choose=ChoiceSettings(field_="decision", to={"approve": first, "reject": FAIL}),
    )
    return replace(plan, steps=[approval_step, *plan.steps], keep_runs=follower_plan.keep_runs)


def _summarize_plan(plan: AgentPlan) -> str:
    """Return a line per step for the approver. References are escaped, because the text becomes a task."""
    steps = "\n".join(_summarize_step(number, step) for number, step in enumerate(plan.steps, start=1))
    # it becomes a task, in which references are filled in: a proposal must not make any
    return f"Approve this plan, or reject it?\n{steps}".replace("{{", "{ {")


def _summarize_step(number: int, step: StepDefinition) -> str:
    return f"{number}. {step.name}: " + (
        "; ".join(map(_describe_step, step.parallel)) if step.parallel else _describe_step(step)
    )


def _describe_step(action: StepAction) -> str:
    items_note = describe_items(action) if isinstance(action, StepDefinition) else ""
    match get_kind(action):
        case "ask" | "plan":
            arguments_note = f" with {to_line(action.args)}" if action.args else ""
            return f"asks {action.target_agent}{items_note}: {action.task}{arguments_note}"
        case "tool":
            return f"calls {action.tool}{items_note} with {to_line(action.args)}"
        case "wait":
            return "waits"
        case _:
            return "decides"
