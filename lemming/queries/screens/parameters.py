"""Parameters that several screens have."""

from __future__ import annotations

from typing import Annotated

from lemming.queries.screens.screen import Parameter

AgentName = Annotated[str, Parameter("AGENT", "Name of the agent.")]
AnyAgentName = Annotated[str | None, Parameter("AGENT", "Name of an agent; default: all agents.")]
