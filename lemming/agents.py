"""Agents, their resumes and schedules: everything in `lemming.kernel.agents`."""

from typing import TYPE_CHECKING

from lemming.kernel.agents import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.org.resume import AgentCredits as AgentCredits
from lemming.kernel.org.resume import AgentModel as AgentModel
from lemming.kernel.org.resume import AgentPermissions as AgentPermissions
from lemming.kernel.org.resume import ContextFile as ContextFile
from lemming.kernel.org.resume import Example as Example
from lemming.kernel.org.resume import FileAccess as FileAccess
from lemming.kernel.org.resume import TurnLimits as TurnLimits
from lemming.kernel.org.schedule import AgentSchedule as AgentSchedule

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
