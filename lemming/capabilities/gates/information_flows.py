"""Information flows between agents: by entries, or by a file shared by a writer and a reader.

A flow is an effect of permissions and tools, not a prediction about a model. Read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.turn_dependencies import PathFootprint, compute_footprint, paths_overlap
from lemming.kernel.tools.toolset import Toolset

_PATTERN = "*"


class InformationFlow(NamedTuple):
    """Possible flow from one agent to another: by entries, or by the file at `path` if set."""

    author: str
    reader: str
    path: str = ""


class FlowGraph:
    """Possible information flows of an organisation, one per pair of agents."""

    def __init__(self, org: Organisation, settings: OrgSettings, agents: Mapping[str, Agent], toolset: Toolset) -> None:
        self._org, self._agents = org, agents
        self._touch = {name: compute_footprint(agent, settings, toolset, org) for name, agent in agents.items()}

    @cached_property
    def all_flows(self) -> list[InformationFlow]:
        """All pairs of author and reader with a possible flow."""
        return [flow for author in self._agents for flow in self.outgoing_flows(author)]

    def outgoing_flows(self, author: str) -> list[InformationFlow]:
        """Return the flows from one agent to other agents."""
        readers = (reader for reader in self._agents if reader != author)
        return [flow for reader in readers if (flow := self._find_flow(author, reader))]

    def writable_places(self, name: str) -> list[str]:
        """Return the paths writable by an agent's tools."""
        touch = self._touch.get(name, PathFootprint())
        return [self._display_path(components) for components in touch.writes if _PATTERN not in components]

    def _find_flow(self, author: str, reader: str) -> InformationFlow | None:
        if self._agents[reader].may_read(author):
            return InformationFlow(author, reader)
        write_places, read_places = self._touch[author].writes, self._touch[reader].reads
        shared_places = (
            max(read_place, written_place, key=len)
            for read_place in read_places
            for written_place in write_places
            if _may_overlap(read_place, written_place)
        )
        shared = next(shared_places, None)
        return InformationFlow(author, reader, self._display_path(shared)) if shared is not None else None

    def _display_path(self, components: Sequence[str]) -> str:
        root = Path(self._org.base).resolve()
        path = Path("/", *components)
        return str(path.relative_to(root)) if path.is_relative_to(root) and path != root else str(path)


def _may_overlap(components: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if two paths may be the same file.

    The pattern for all resumes matches no particular file.
    """
    return _PATTERN not in components and _PATTERN not in other and paths_overlap((*components,), (*other,))
