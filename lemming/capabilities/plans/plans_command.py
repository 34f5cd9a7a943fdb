"""`lemming plans`: plans of agents and the state of their runs."""

from __future__ import annotations

from lemming.capabilities.plans.plan_format import END, AgentPlan, StepDefinition, is_planner, plan_file
from lemming.capabilities.plans.plan_runs import (
    PlanStatus,
    RunStatus,
    describe_step,
    get_plan_status,
    list_plan_statuses,
)
from lemming.capabilities.plans.step_graph import default_next_step, has_conditions
from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    make_command_group,
    require_agent_folder,
)
from lemming.commands.terminal import format_count, one_line, print_data, print_json, print_notice, print_table
from lemming.commands.trust import load_settings
from lemming.ext import ConfigError
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import Organisation


def list_plans(context: CommandContext) -> None:
    """List plans and the state of their runs."""
    statuses = list_plan_statuses(context.org)
    if context.as_json:
        for plan in statuses:
            print_json("plan_of", _plan_to_json(plan))
        return
    if not statuses:
        print_notice(
            'no plans; an agent follows a plan with "model": {"key": "plan"} in its resume and a plan.json beside it'
        )
        return
    print_table(["AGENT", "STEPS", "RUNNING", "ENDED", "PURPOSE"], [_format_plan_row(plan) for plan in statuses])
    if running := [[plan.agent, *_format_run_row(run)] for plan in statuses for run in plan.active_runs]:
        print_data("")
        print_table(["AGENT", *_OF_RUNS], running)


app = make_command_group("List plans and the state of their runs.", cls=AgentFallbackGroup, default=list_plans)


@app.subcommand("show")
def show_plan(context: CommandContext, name: AgentName) -> None:
    """Show the steps and runs of an agent's plan.

    \b
    Examples:
      lemming plans show desk
    """
    org = Organisation.from_path(context.org)
    require_agent_folder(org, name)
    config, agents = load_settings(org), survey_agents(org).agents
    if name not in agents or not is_planner(agents[name], config):
        planners = [planner for planner, agent in agents.items() if is_planner(agent, config)]
        hint = did_you_mean(name, planners) or f"agents with plans: {', '.join(planners) or 'none'}"
        raise UsageError(f"{name} does not follow a plan", where=plan_file(name), hint=hint)
    status = get_plan_status(org, name)
    if context.print_as_json("plan_of", _plan_to_json(status)):
        return
    if status.plan is None:
        raise ConfigError(status.problem, hint=f"run `lemming validate {name}`")
    _print_steps(status.plan)
    if status.runs:
        print_data("")
        print_table(_OF_RUNS, [_format_run_row(run) for run in status.runs])


_OF_RUNS = ["REQUEST", "OF", "SINCE", "STATUS", "AT", "WAITS FOR"]


def _format_plan_row(status: PlanStatus) -> list[str]:
    running = len(status.active_runs)
    steps = str(len(status.plan.steps)) if status.plan else "-"
    description = status.plan.description if status.plan else f"cannot be read: {status.problem}"
    return [status.agent, steps, str(running), str(len(status.runs) - running), one_line(description, 70)]


def _format_run_row(run: RunStatus) -> list[str]:
    since = f"tick {run.began}" + (f" to {run.ended}" if run.ended is not None else "")
    return [run.request, run.asker, since, run.status, run.step, one_line(run.waits_for, 70)]


def _print_steps(plan: AgentPlan) -> None:
    if plan.description:
        print_data(plan.description)
    rows = []
    for number, step in enumerate(plan.steps, start=1):
        rows.append([str(number), step.name, describe_step(step), _format_next_steps(plan, step)])
        rows += [["", f"  {member.name}", describe_step(member), ""] for member in step.parallel]
    print_table(["", "STEP", "DOES", "THEN"], rows)
    if plan.proposals:
        print_notice(f"plans proposed in requests run after approval by {plan.proposals}")
    print_notice(f"{format_count(len(plan.steps), 'step')}; a run starts at most {plan.max_steps}")


def _format_next_steps(plan: AgentPlan, step: StepDefinition) -> str:
    if not has_conditions(step):
        next_step = default_next_step(plan, step.name)
        return "the answer" if next_step == END else next_step
    targets = [*(step.choose.to.values() if step.choose else ()), *(route.to for route in step.routes), step.else_]
    return " or ".join(dict.fromkeys(filter(None, targets)))


def _plan_to_json(status: PlanStatus) -> dict[str, object]:
    plan = status.plan or AgentPlan()
    steps = [
        {"name": step.name, "does": describe_step(step), "then": _format_next_steps(plan, step)} for step in plan.steps
    ]
    return {
        "agent": status.agent,
        "problem": status.problem,
        "description": plan.description,
        "steps": steps,
        "runs": [run.as_json() for run in status.runs],
    }
