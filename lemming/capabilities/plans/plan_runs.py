"""Status of an organisation's plans and runs, from its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lemming.capabilities.plans.foreach_step import describe_items
from lemming.capabilities.plans.plan_format import (
    AgentPlan,
    StepAction,
    StepDefinition,
    get_kind,
    is_planner,
    load_plan,
)
from lemming.capabilities.plans.plan_run import PREFIX, ActionState, PlanRun, parse_run
from lemming.capabilities.plans.step_requests import describe_wait
from lemming.ext import ConfigError
from lemming.kernel.agents import survey_agents
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.obligations.current_requests import load_requests


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


def list_plan_statuses(base: OrgPath) -> list[PlanStatus]:
    """Return the plan status of every agent with a plan, by name."""
    org = Organisation.from_path(base)
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
    items_note = describe_items(action) if isinstance(action, StepDefinition) else ""
    match get_kind(action):
        case "ask" | "plan":
            return f"asks {action.target_agent}{items_note}"
        case "tool":
            return f"calls {action.tool}{items_note}"
        case "wait":
            wait = action.wait
            assert wait, "that makes it a wait"
            ticks = f"{wait.ticks} ticks" if wait.ticks else f"tick {wait.tick}"
            return f"waits for {wait.file or wait.time or ticks}"
        case "parallel":
            return "at once"
    return "decides"
