"""Guides in a tick: the files read by the turns of their agents."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.capabilities.skills.guides import list_guide_files
from lemming.kernel.agents import Agent
from lemming.kernel.tick.tick_hooks import TickInterceptor


class SkillsTickInterceptor(TickInterceptor):
    """Tick interceptor for agents with guides or skills."""

    def read_paths(self, agent: Agent) -> Mapping[str, str]:
        """Return the possible paths of an agent's guides."""
        return {file: f"guides: {file}" for file in list_guide_files(agent)}
