"""`lemming plans`: the plans that agents follow, and where each run stands."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.plans.drawing import mermaid
from lemming.capabilities.plans.format import END, AgentPlan, Step, is_planner, plan_file
from lemming.capabilities.plans.runs import PlanNow, RunNow, plan_now, plans_now, step_in_words
from lemming.capabilities.plans.ways import after, is_decided
from lemming.commands.options import (
    AgentName,
    Here,
    OrAnAgent,
    noun,
    option,
    require_folder,
)
from lemming.commands.screen import counted, one_line, show, show_json, show_table, tell
from lemming.commands.trust import load_settings
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.org.organisation import Organisation


def list_plans(here: Here) -> None:
    """Show every plan with its runs that go on."""
    found = plans_now(here.org)
    if here.as_json:
        for plan in found:
            show_json("plan_of", _as_json(plan))
        return
    if not found:
        tell('no agent follows a plan: "model": {"key": "plan"} in a resume, and a plan.json beside it')
        return
    show_table(["AGENT", "STEPS", "RUNNING", "ENDED", "WHAT IT IS FOR"], [_row(plan) for plan in found])
    if running := [[plan.agent, *_row_of_run(run)] for plan in found for run in plan.running]:
        show("")
        show_table(["AGENT", *_OF_RUNS], running)


app = noun("See the plans that agents follow, and where each run stands.", cls=OrAnAgent, alone=list_plans)


@app.verb("show")
def show_plan(
    here: Here,
    name: AgentName,
    as_diagram: Annotated[
        bool, option("--mermaid", "As a Mermaid flowchart, for a page that draws them.")
    ] = False,
) -> None:
    """Show an agent's plan step by step, and all its runs.

    \b
    Examples:
      lemming plans show desk
      lemming plans show desk --mermaid
    """
    org = Organisation.at(here.org)
    require_folder(org, name)
    config, agents = load_settings(org), survey_agents(org).agents
    if name not in agents or not is_planner(agents[name], config):
        planners = [each for each, agent in agents.items() if is_planner(agent, config)]
        hint = nearest(name, planners) or f"agents with plans: {', '.join(planners) or 'none'}"
        raise UsageError(f"{name} follows no plan", where=plan_file(name), hint=hint)
    found = plan_now(org, name)
    if here.shows("plan_of", _as_json(found)):
        return
    if found.plan is None:
        raise ConfigError(found.problem, hint=f"`lemming validate {name}` says what is wrong")
    if as_diagram:
        for line in mermaid(found.plan).split("\n"):
            show(line)
        return
    _show_steps(found.plan)
    if found.runs:
        show("")
        show_table(_OF_RUNS, [_row_of_run(run) for run in found.runs])


_OF_RUNS = ["REQUEST", "OF", "SINCE", "STATUS", "AT", "WAITS FOR"]


def _row(found: PlanNow) -> list[str]:
    running = len(found.running)
    steps = str(len(found.plan.steps)) if found.plan else "-"
    about = found.plan.description if found.plan else f"cannot be read: {found.problem}"
    return [found.agent, steps, str(running), str(len(found.runs) - running), one_line(about, 70)]


def _row_of_run(run: RunNow) -> list[str]:
    since = f"tick {run.began}" + (f" to {run.ended}" if run.ended is not None else "")
    return [run.request, run.asker, since, run.status, run.step, one_line(run.waits_for, 70)]


def _show_steps(plan: AgentPlan) -> None:
    if plan.description:
        show(plan.description)
    rows = []
    for number, step in enumerate(plan.steps, start=1):
        rows.append([str(number), step.name, step_in_words(step), _leads(plan, step)])
        rows += [["", f"  {member.name}", step_in_words(member), ""] for member in step.parallel]
    show_table(["", "STEP", "DOES", "THEN"], rows)
    if plan.proposals:
        tell(f"plans that come with a request are followed once {plan.proposals} approves them")
    tell(f"{counted(len(plan.steps), 'step')}; a run begins at most {plan.max_steps}")


def _leads(plan: AgentPlan, step: Step) -> str:
    if not is_decided(step):
        to = after(plan, step.name)
        return "the answer" if to == END else to
    ways = [
        *(step.choose.to.values() if step.choose else ()),
        *(route.to for route in step.routes),
        step.else_,
    ]
    return " or ".join(dict.fromkeys(filter(None, ways)))


def _as_json(found: PlanNow) -> dict[str, object]:
    plan = found.plan or AgentPlan()
    steps = [
        {"name": step.name, "does": step_in_words(step), "then": _leads(plan, step)} for step in plan.steps
    ]
    return {
        "agent": found.agent,
        "problem": found.problem,
        "description": plan.description,
        "steps": steps,
        "runs": [run.as_json() for run in found.runs],
    }
