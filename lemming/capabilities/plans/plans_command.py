"""`lemming plans`: plans of agents and the state of their runs."""

from __future__ import annotations

from lemming.capabilities.plans.plan_format import is_planner, plan_file
from lemming.capabilities.plans.plan_runs import PLANS, RUNS, STEPS, get_plan_status, list_steps
from lemming.commands.command_context import (
    AgentFallbackGroup,
    AgentName,
    CommandContext,
    make_command_group,
    require_agent_folder,
)
from lemming.commands.terminal import print_data
from lemming.commands.trust import load_settings
from lemming.ext import ConfigError
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import Organisation
from lemming.queries.screens.screen import ScreenResult


def _print_plans(context: CommandContext) -> None:
    result = PLANS.load(context.org, {})
    context.print_screen(PLANS, result)
    runs = [] if context.as_json else [run for plan in result.rows for run in plan.active_runs]
    if runs:
        print_data("")
        context.print_screen(RUNS, ScreenResult(runs))


app = make_command_group("List plans and the state of their runs.", cls=AgentFallbackGroup, default=_print_plans)


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
    if context.print_as_json("plan_of", PLANS.to_json(status)):
        return
    if status.plan is None:
        raise ConfigError(status.problem, hint=f"run `lemming validate {name}`")
    if status.plan.description:
        print_data(status.plan.description)
    context.print_screen(STEPS, list_steps(status.plan))
    if status.runs:
        print_data("")
        context.print_screen(RUNS, ScreenResult(status.runs))
