"""Guides in a tick: the files that the turns of their agents read."""

from __future__ import annotations

from collections.abc import Mapping

from lemming.capabilities.skills.guides import guide_files
from lemming.kernel.agents import Agent
from lemming.kernel.tick.seams import TickPart


class SkillsInTicks(TickPart):
    """Its agents are those that are given guides, or have skills."""

    def reads(self, agent: Agent) -> Mapping[str, str]:
        """Return where the guides of an agent may lie."""
        return {file: f"guides: {file}" for file in guide_files(agent)}
