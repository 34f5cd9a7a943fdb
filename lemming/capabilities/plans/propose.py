"""`plan_propose`: a plan is sent to an agent that follows plans, once a person has approved it."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.capabilities.plans.allowed import permission_problems
from lemming.capabilities.plans.format import AgentPlan, is_planner, read_plan
from lemming.capabilities.plans.proposals import PROPOSE, proposed_plan
from lemming.capabilities.plans.staff import staff_for
from lemming.kernel.agents import load_agent, nearest_agent, survey_agents
from lemming.kernel.base.errors import ConfigError, Problem, ToolError
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import load_config
from lemming.kernel.org.resume import Agent
from lemming.kernel.tools import EngineTool, ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext

MOST_QUOTED = 5


class PlanPropose(EngineTool):
    """Checks a plan; the turn then sends it, as a request, to the agent that is to follow it."""

    name = PROPOSE
    description = "Propose a plan to an agent that follows plans. A person is asked to approve it first."
    tool_class = "write"
    keeps_deadline = True
    success_is_news = False

    def plan(
        self,
        context: ToolContext,
        agent: Annotated[str, about("The agent that follows it.")],
        plan: Annotated[dict[str, Any], about("The plan, as plan.json has it.")],
        text: Annotated[str, about("What it is for: its request.", min_length=1)],
    ) -> ToolResult:
        """Return that the plan is sound. Raises `ToolError` that lists what is wrong with it."""
        follower, own = self._follower(context, agent)
        try:
            proposed = proposed_plan(plan)
        except ConfigError as error:
            raise ToolError(f"{self.name}: {_listed(error.problems)}") from error
        tools = toolset_of(context.settings, context.org)
        staff = staff_for(follower, load_config(context.org), context.org, tools)
        found = permission_problems(proposed, follower, staff)
        if wrong := tuple(each for each in found if each.severity == "error"):
            raise ToolError(f"{self.name}: {_listed(wrong)}")
        return ToolResult(True, f"proposed to {agent}; {own.proposals} is asked first, and may reject it")

    def _follower(self, context: ToolContext, name: str) -> tuple[Agent, AgentPlan]:
        """Return the agent that is to follow the plan, and its own plan. Raises `ToolError`."""
        config, agents = load_config(context.org), survey_agents(context.org).agents
        takers = [each.name for each in agents.values() if is_planner(each, config)]
        if name not in takers:
            hint = nearest_agent(name, takers)
            raise ToolError(f'{self.name}: no agent "{name}" follows plans', hint=hint)
        try:
            follower, own = load_agent(context.org, name), read_plan(context.org, name).value
        except ConfigError as error:
            raise ToolError(f"{self.name}: {name} cannot follow one now: {error.message}") from error
        if not own.proposals:
            raise ToolError(f'{self.name}: {name} takes no plans of others ("proposals" in its plan.json)')
        if not (follower.may_read(context.agent.name) and context.agent.may_read(name)):
            raise ToolError(f"{self.name}: {name} and {context.agent.name} may not read each other")
        return follower, own


def _listed(problems: tuple[Problem, ...]) -> str:
    more = len(problems) - MOST_QUOTED
    said = "; ".join(map(str, problems[:MOST_QUOTED]))
    return f"{said}; and {more} more" if more > 0 else said
