"""Status of an organisation's plans and runs, from its files, and their screens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.plans.plan_format import (
    END,
    AgentPlan,
    StepAction,
    StepDefinition,
    default_next_step,
    get_kind,
    has_conditions,
    is_planner,
    load_plan,
)
from lemming.capabilities.plans.plan_run import PREFIX, ActionState, PlanRun, parse_run
from lemming.capabilities.plans.step_requests import describe_wait
from lemming.ext import ConfigError
from lemming.kernel.agents import survey_agents
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.wording import format_count
from lemming.obligations.org_requests import load_requests
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of a run: request, start, current step and awaited events."""

    agent: str
    request: str
    asker: str
    status: str
    began: int
    ended: int | None
    step: str
    waits_for: str
    steps_begun: int


@dataclass(frozen=True, kw_only=True)
class PlanStatus:
    """An agent's plan, or the problem of its file, with its runs: active runs first, then the newest."""

    agent: str
    plan: AgentPlan | None
    problem: str = ""
    runs: list[RunStatus] = field(default_factory=list)

    @property
    def active_runs(self) -> list[RunStatus]:
        """Runs in progress."""
        return [run for run in self.runs if run.status == "running"]


def list_plans(org: Organisation) -> list[PlanStatus]:
    """List plans and the state of their runs."""
    config, agents = load_config(org), survey_agents(org).agents
    return [get_plan_status(org, name) for name, agent in agents.items() if is_planner(agent, config)]


def get_plan_status(org: Organisation, agent: str) -> PlanStatus:
    """Return an agent's plan with its runs."""
    plan, problem = None, ""
    try:
        plan = load_plan(org, agent).value
    except ConfigError as error:
        problem = error.message
    runs = sorted(_iter_runs(org, agent), key=lambda run: (run.status != "running", -run.began, run.request))
    return PlanStatus(agent=agent, plan=plan, problem=problem, runs=runs)


def _iter_runs(org: Organisation, agent: str) -> Iterator[RunStatus]:
    requests = None
    for key, value in load_memories(org, agent).values.items():
        if not key.startswith(PREFIX):
            continue
        try:
            run = parse_run(value)
        except ValueError as error:
            problem = f"memory/{key}.json is not a valid run: {error}"
            yield RunStatus(agent=agent, request=key.removeprefix(PREFIX), asker="", status="broken", began=0, ended=None,
                         step="", waits_for=problem, steps_begun=0)  # fmt: skip
            continue
        requests = requests or load_requests(org).requests
        matching = [request for request in requests.find_matches(run.request) if request.asker == run.asker]
        is_gone = run.status == "running" and len(matching) == 1 and not matching[0].is_open
        yield _run_status(agent, run, str(matching[0].end) if is_gone else run.status)


def _run_status(agent: str, run: PlanRun, status: str) -> RunStatus:
    waits = [description for name, state in run.doing.items() if (description := _describe_wait(name, state))]
    return RunStatus(
        agent=agent,
        request=run.request,
        asker=run.asker,
        status=status,
        began=run.began,
        ended=run.ended,
        step=run.at,
        waits_for=run.why or ("; ".join(waits) if status == "running" else ""),
        steps_begun=run.steps_begun,
    )


def _describe_wait(name: str, state: ActionState) -> str:
    match state.phase:
        case "asked":
            return f"the answer to {name}"
        case "verifying":
            return f"whether {name} passes"
        case "called":
            return f"what the tool of {name} gives"
        case "waiting":
            return describe_wait(state.wait or {})
    return ""


def describe_step(action: StepAction) -> str:
    """Return a description of a step's action.

    >>> describe_step(StepAction(name="a", ask="ada"))
    'asks ada'
    """
    items_note = ""
    if isinstance(action, StepDefinition) and action.each:
        items_note = f" for each of {action.each} (at most {action.most}), {action.at_once} at once"
    match get_kind(action):
        case "ask" | "plan":
            return f"asks {action.target_agent}{items_note}"
        case "tool":
            return f"calls {action.tool}{items_note}"
        case "wait":
            wait = action.wait
            assert wait, "a step of the kind wait has one"
            ticks = f"{wait.ticks} ticks" if wait.ticks else f"tick {wait.tick}"
            return f"waits for {wait.file or wait.time or ticks}"
        case "parallel":
            return "at once"
    return "decides"


def _describe_next_steps(plan: AgentPlan, step: StepDefinition) -> str:
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
