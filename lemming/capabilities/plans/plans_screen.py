"""The screens of plans and of their runs."""

from __future__ import annotations

from typing import Any

from lemming.capabilities.plans.plan_format import END, AgentPlan, StepDefinition
from lemming.capabilities.plans.plan_runs import PlanStatus, RunStatus, describe_step, list_plan_statuses
from lemming.capabilities.plans.step_graph import default_next_step, has_conditions
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.wording import format_count
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult


def list_plans(org: Organisation) -> list[PlanStatus]:
    """List plans and the state of their runs."""
    return list_plan_statuses(org)


def _describe_next_steps(plan: AgentPlan, step: StepDefinition) -> str:
    """Return the steps that may come after a step, in words."""
    if not has_conditions(step):
        next_step = default_next_step(plan, step.name)
        return "the answer" if next_step == END else next_step
    targets = [*(step.choose.to.values() if step.choose else ()), *(route.to for route in step.routes), step.else_]
    return " or ".join(dict.fromkeys(filter(None, targets)))


def _step_to_json(plan: AgentPlan, step: StepDefinition) -> dict[str, Any]:
    return {"name": step.name, "does": describe_step(step), "then": _describe_next_steps(plan, step)}


def list_steps(plan: AgentPlan) -> ScreenResult:
    """Return the steps of a plan, each followed by its parallel members."""
    rows = list[dict[str, Any]]()
    for number, step in enumerate(plan.steps, start=1):
        rows.append({"number": str(number), **_step_to_json(plan, step)})
        rows += [{"name": f"  {member.name}", "does": describe_step(member)} for member in step.parallel]
    return ScreenResult(rows, [Note(f"{format_count(len(plan.steps), 'step')}; a run starts at most {plan.max_steps}")])


def _format_purpose(status: PlanStatus) -> str:
    return status.plan.description if status.plan else f"cannot be read: {status.problem}"


def _format_ticks(run: RunStatus) -> str:
    return f"tick {run.began}" + (f" to {run.ended}" if run.ended is not None else "")


STEPS = Screen(
    "steps",
    kind="step",
    title="Steps of a plan",
    columns=(
        Column("", "", text=lambda row: row.get("number", "")),
        Column("name", "STEP", "Name of the step."),
        Column("does", "DOES", "Action of the step."),
        Column("then", "THEN", "Steps that may come next.", text=lambda row: row.get("then", "")),
    ),
)
RUNS = Screen(
    "runs",
    kind="run",
    title="Runs of plans",
    row=RunStatus,
    columns=(
        Column("agent", "AGENT", "Agent that follows the plan."),
        Column("request", "REQUEST", "Request that started the run."),
        Column("asker", "OF", "Agent or person that asked."),
        Column("began", "SINCE", "Tick of the start.", text=_format_ticks),
        Column("ended", about="Tick of the end, or null."),
        Column("status", "STATUS", "running, done, failed or another end."),
        Column("step", "AT", "Current step."),
        Column("waits_for", "WAITS FOR", "What the run waits for.", width=70),
        Column("steps_begun", about="Number of steps started."),
    ),
)  # fmt: skip

PLANS = Screen(
    "plans",
    kind="plan_of",
    title="Plans",
    query=list_plans,
    empty='no plans; an agent follows a plan with "model": {"key": "plan"} in its resume and a plan.json beside it',
    columns=(
        Column("agent", "AGENT", "Agent that follows the plan.", shown="agent"),
        Column(
            "steps", "STEPS", "Steps of the plan: name, action and next step.", list[dict[str, Any]],
            value=lambda status: [_step_to_json(status.plan, step) for step in status.plan.steps] if status.plan else [],
            text=lambda status: str(len(status.plan.steps)) if status.plan else "-",
        ),
        Column("", "RUNNING", text=lambda status: str(len(status.active_runs))),
        Column("", "ENDED", text=lambda status: str(len(status.runs) - len(status.active_runs))),
        Column(
            "description", "PURPOSE", "Purpose of the plan.", width=70, text=_format_purpose,
            value=lambda status: status.plan.description if status.plan else "",
        ),
        Column("problem", about="Error of plan.json, or empty."),
        Column(
            "runs", about="Runs of the plan: active ones first, then the newest.", type=list[dict[str, Any]],
            value=lambda status: [RUNS.to_json(run) for run in status.runs],
        ),
    ),
)  # fmt: skip
