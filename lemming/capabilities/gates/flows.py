"""Which agents could tell others something: by entries, or by a file that one may write and the other reads.

It is what permissions and tools allow, not what a model is likely to do. Looks only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.dependencies import Touch, overlap, touch_of
from lemming.kernel.tools.toolset import Toolset

_PATTERN = "*"


class Flow(NamedTuple):
    """One agent could tell another something: by its entries, or by a file at `place`, where that is one."""

    author: str
    reader: str
    place: str = ""


class Flows:
    """Who of an organisation's agents could tell whom something, each pair by one way."""

    def __init__(
        self, org: Organisation, settings: Org, agents: Mapping[str, Agent], toolset: Toolset
    ) -> None:
        self._org, self._agents = org, agents
        self._touch = {name: touch_of(it, settings, toolset, org) for name, it in agents.items()}

    @cached_property
    def all(self) -> list[Flow]:
        """The pairs of which the first could tell the second something, and how."""
        return [flow for author in self._agents for flow in self.by(author)]

    def by(self, author: str) -> list[Flow]:
        """Return whom an agent could tell something."""
        others = (reader for reader in self._agents if reader != author)
        return [flow for reader in others if (flow := self._flow(author, reader))]

    def places_of(self, name: str) -> list[str]:
        """Return where an agent's tools may write."""
        touch = self._touch.get(name, Touch())
        return [self._shown(place) for place in touch.writes if _PATTERN not in place]

    def _flow(self, author: str, reader: str) -> Flow | None:
        if self._agents[reader].may_read(author):
            return Flow(author, reader)
        written, read = self._touch[author].writes, self._touch[reader].reads
        both = (max(mine, his, key=len) for mine in read for his in written if _is_one(mine, his))
        shared = next(both, None)
        return Flow(author, reader, self._shown(shared)) if shared is not None else None

    def _shown(self, place: Sequence[str]) -> str:
        home = Path(self._org.base).resolve()
        path = Path("/", *place)
        return str(path.relative_to(home)) if path.is_relative_to(home) and path != home else str(path)


def _is_one(place: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two places may be the same file; that of all resumes is nobody's in particular."""
    return _PATTERN not in place and _PATTERN not in other and overlap((*place,), (*other,))
