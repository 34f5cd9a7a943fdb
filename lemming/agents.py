"""Agents, their resumes and schedules: everything in `lemming.kernel.agents`, and functions for programs."""

import os
from typing import TYPE_CHECKING

from lemming.kernel.agents import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.org.resume import Agent as Agent
from lemming.kernel.org.resume import AgentCredits as AgentCredits
from lemming.kernel.org.resume import AgentModel as AgentModel
from lemming.kernel.org.resume import AgentPermissions as AgentPermissions
from lemming.kernel.org.resume import ContextFile as ContextFile
from lemming.kernel.org.resume import Example as Example
from lemming.kernel.org.resume import FileAccess as FileAccess
from lemming.kernel.org.resume import TurnLimits as TurnLimits
from lemming.kernel.org.schedule import AgentSchedule as AgentSchedule
from lemming.kernel.org.schedule import is_due

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)


def discover_agents(base_path: str | os.PathLike[str]) -> list[Agent]:
    """Return all valid agents, sorted by name. `survey_agents` also returns the problems of invalid agents."""
    return list(survey_agents(base_path).agents.values())


def should_run(agent: Agent, tick: int) -> bool:
    """Return True if the agent is due at this tick: `(tick + phase_offset) % run_every_n_ticks == 0`."""
    return is_due(agent.schedule, tick)
