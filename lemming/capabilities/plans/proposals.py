"""Plans that come with a request: followed once a person has approved them, never before. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lemming.capabilities.plans.each import in_words
from lemming.capabilities.plans.format import FAIL, AgentPlan, Choice, Member, Step, kind_of
from lemming.capabilities.plans.plan_problems import problems_in
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.unknown import unknown_keys

PROPOSE = "plan_propose"
"""The tool that checks a plan; where it succeeds, the turn writes the request."""
APPROVAL = "approval:"
"""The step that is put before all others; no step of a plan can have this name."""
DECISION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"]},
        "reasons": {"type": "string"},
    },
    "required": ["decision"],
}


def proposal_in(call: ToolCall) -> NewEntry:
    """Return the request that a successful call of `plan_propose` stands for."""
    args = call.args
    return NewEntry("request", {"text": args["text"], "target": args["agent"], "plan": args["plan"]}, [])


def plan_of(payload: Mapping[str, Any], own: AgentPlan) -> Any:
    """Return the plan that comes with a request; None when none does, or none may come to this agent."""
    return payload.get("plan") if own.proposals else None


def proposed_plan(plain: Any) -> AgentPlan:
    """Return a plan given as JSON values; raise `ConfigError` that lists what is wrong with it."""
    try:
        plan: AgentPlan = value_of(AgentPlan, plain)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    found = [replace(each, severity="error") for each in unknown_keys(plain, AgentPlan)]
    found += [problem for problem in problems_in(plan) if problem.severity == "error"]
    for member, _, place in plan.members():
        judge = member.verify.judge if member.verify else None
        if judge and judge.who.kind == "command":
            what, hint = "a plan that is proposed runs no program", "let an agent or a model judge"
            found.append(Problem(what, pointer=f"{place}/verify/by", hint=hint))
    if plan.proposals:
        found.append(
            Problem("a plan that is proposed takes no others", pointer="/proposals", hint="take it out")
        )
    if found:
        raise ConfigError("; ".join(map(str, found[:5])), problems=tuple(found))
    return plan


def followed(plain: Any, own: AgentPlan) -> AgentPlan:
    """Return the plan to follow: a person is asked first, and shown all of it. Raises `ConfigError`."""
    plan = proposed_plan(plain)
    first = plan.steps[0].name
    asking = Step(
        name=APPROVAL,
        ask=own.proposals,
        task=_shown(plan),
        context=["start", "start.plan"],
        output=DECISION,
        choose=Choice(field_="decision", to={"approve": first, "reject": FAIL}),
    )
    return replace(plan, steps=[asking, *plan.steps], keep_runs=own.keep_runs)


def _shown(plan: AgentPlan) -> str:
    """Return a line a step for who is to approve them; references in them stand for nothing here."""
    steps = "\n".join(_line(number, step) for number, step in enumerate(plan.steps, start=1))
    # it becomes a task, in which references are filled in: a proposal must not make any
    return f"Approve this plan, or reject it?\n{steps}".replace("{{", "{ {")


def _line(number: int, step: Step) -> str:
    return f"{number}. {step.name}: " + (
        "; ".join(map(_step_in_words, step.parallel)) if step.parallel else _step_in_words(step)
    )


def _step_in_words(member: Member) -> str:
    each = in_words(member) if isinstance(member, Step) else ""
    match kind_of(member):
        case "ask" | "plan":
            given = f" with {to_line(member.args)}" if member.args else ""
            return f"asks {member.asked}{each}: {member.task}{given}"
        case "tool":
            return f"calls {member.tool}{each} with {to_line(member.args)}"
        case "wait":
            return "waits"
        case _:
            return "decides"
