"""Tool `plan_propose`: sends a plan to another agent after a person's approval."""

from __future__ import annotations

from typing import Annotated, Any

from lemming.capabilities.plans.plan_format import AgentPlan, is_planner, load_plan
from lemming.capabilities.plans.plan_permissions import validate_permissions
from lemming.capabilities.plans.plans_validation import build_validation_context
from lemming.capabilities.plans.proposed_plans import PROPOSE, parse_proposed_plan
from lemming.ext import ConfigError, Problem, describe_field
from lemming.kernel.agents import load_agent, suggest_agent, survey_agents
from lemming.kernel.base.errors import ToolError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.resume import Agent
from lemming.kernel.tools import EngineTool, ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext

MAX_QUOTED = 5


class PlanProposeTool(EngineTool):
    """Tool for proposing a plan. After a successful check, the turn sends the plan as a request."""

    name = PROPOSE
    description = "Propose a plan to an agent that follows plans. A person is asked to approve it first."
    tool_class = "write"
    keeps_deadline = True
    success_is_news = False

    def plan(
        self,
        context: ToolContext,
        agent: Annotated[str, describe_field("The agent that follows it.")],
        plan: Annotated[dict[str, Any], describe_field("The plan, as plan.json has it.")],
        text: Annotated[str, describe_field("What it is for: its request.", min_length=1)],
    ) -> ToolResult:
        """Return a result confirming the proposal. Raises: ToolError with all problems of the plan."""
        follower, follower_plan = self._find_follower(context, agent)
        try:
            proposed = parse_proposed_plan(plan)
        except ConfigError as error:
            raise ToolError(f"{self.name}: {_format_problems(error.problems)}") from error
        tools = get_toolset(context.settings, context.org)
        validation_context = build_validation_context(follower, load_config(context.org), context.org, tools)
        problems = validate_permissions(proposed, follower, validation_context)
        if errors := tuple(problem for problem in problems if problem.severity == "error"):
            raise ToolError(f"{self.name}: {_format_problems(errors)}")
        return ToolResult(True, f"proposed to {agent}; {follower_plan.proposals} is asked first, and may reject it")

    def _find_follower(self, context: ToolContext, name: str) -> tuple[Agent, AgentPlan]:
        """Return the agent for a proposed plan, and its plan. Raises: ToolError if the agent accepts no proposals."""
        config, agents = load_config(context.org), survey_agents(context.org).agents
        follower_names = [candidate.name for candidate in agents.values() if is_planner(candidate, config)]
        if name not in follower_names:
            hint = suggest_agent(name, follower_names)
            raise ToolError(f'{self.name}: no agent "{name}" follows plans', hint=hint)
        try:
            follower, follower_plan = load_agent(context.org, name), load_plan(context.org, name).value
        except ConfigError as error:
            raise ToolError(f"{self.name}: {name} cannot follow one now: {error.message}") from error
        if not follower_plan.proposals:
            raise ToolError(f'{self.name}: {name} takes no plans of others ("proposals" in its plan.json)')
        if not (follower.may_read(context.agent.name) and context.agent.may_read(name)):
            raise ToolError(f"{self.name}: {name} and {context.agent.name} may not read each other")
        return follower, follower_plan


def _format_problems(problems: tuple[Problem, ...]) -> str:
    omitted = len(problems) - MAX_QUOTED
    text = "; ".join(map(str, problems[:MAX_QUOTED]))
    return f"{text}; and {omitted} more" if omitted > 0 else text
