"""The plans of an organisation and where their runs stand, looked up in its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.plans.asking import wait_text
from lemming.capabilities.plans.each import in_words
from lemming.capabilities.plans.format import AgentPlan, Member, Step, is_planner, kind_of, read_plan
from lemming.capabilities.plans.run import PREFIX, Doing, Run, run_in
from lemming.capabilities.requests.now import requests_now
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.memory import read_memories
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath


@dataclass(frozen=True, kw_only=True)
class RunNow:
    """A run as it stands: for whose request since which tick, at which step, and what it waits for."""

    request: str
    asker: str
    status: str
    began: int
    ended: int | None
    step: str
    waits_for: str
    steps_begun: int

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class PlanNow:
    """An agent's plan, or what is wrong with the file, and its runs: those that go on, then the newest."""

    agent: str
    plan: AgentPlan | None
    problem: str = ""
    runs: list[RunNow] = field(default_factory=list)

    @property
    def running(self) -> list[RunNow]:
        """The runs that have not ended."""
        return [run for run in self.runs if run.status == "running"]


def plans_now(base: OrgPath) -> list[PlanNow]:
    """Return the plans of all agents that follow one, by name."""
    org = Organisation.at(base)
    config, agents = load_config(org), survey_agents(org).agents
    return [plan_now(org, name) for name, agent in agents.items() if is_planner(agent, config)]


def plan_now(org: Organisation, agent: str) -> PlanNow:
    """Return one agent's plan, and its runs."""
    plan, problem = None, ""
    try:
        plan = read_plan(org, agent).value
    except ConfigError as error:
        problem = error.message
    runs = sorted(_runs(org, agent), key=lambda run: (run.status != "running", -run.began, run.request))
    return PlanNow(agent=agent, plan=plan, problem=problem, runs=runs)


def _runs(org: Organisation, agent: str) -> Iterator[RunNow]:
    requests = None
    for key, value in read_memories(org, agent).values.items():
        if not key.startswith(PREFIX):
            continue
        try:
            run = run_in(value)
        except ValueError as error:
            what = f"memory/{key}.json is no run: {error}"
            yield RunNow(request=key.removeprefix(PREFIX), asker="", status="broken", began=0, ended=None,
                         step="", waits_for=what, steps_begun=0)  # fmt: skip
            continue
        requests = requests or requests_now(org).requests
        found = [each for each in requests.find(run.request) if each.asker == run.asker]
        is_gone = run.status == "running" and len(found) == 1 and not found[0].is_open
        yield _run_now(run, str(found[0].end) if is_gone else run.status)


def _run_now(run: Run, status: str) -> RunNow:
    waits = [said for name, doing in run.doing.items() if (said := _waits_for(name, doing))]
    return RunNow(
        request=run.request,
        asker=run.asker,
        status=status,
        began=run.began,
        ended=run.ended,
        step=run.at,
        waits_for=run.why or ("; ".join(waits) if status == "running" else ""),
        steps_begun=run.steps_begun,
    )


def _waits_for(name: str, doing: Doing) -> str:
    match doing.phase:
        case "asked":
            return f"the answer to {name}"
        case "verifying":
            return f"whether {name} passes"
        case "called":
            return f"what the tool of {name} gives"
        case "waiting":
            return wait_text(doing.wait or {})
    return ""


def step_in_words(member: Member) -> str:
    """Return in words what a step does.

    >>> step_in_words(Member(name="a", ask="ada"))
    'asks ada'
    """
    each = in_words(member) if isinstance(member, Step) else ""
    match kind_of(member):
        case "ask" | "plan":
            return f"asks {member.asked}{each}"
        case "tool":
            return f"calls {member.tool}{each}"
        case "wait":
            wait = member.wait
            assert wait, "that makes it a wait"
            ticks = f"{wait.ticks} ticks" if wait.ticks else f"tick {wait.tick}"
            return f"waits for {wait.file or wait.time or ticks}"
        case "parallel":
            return "at once"
    return "decides"
