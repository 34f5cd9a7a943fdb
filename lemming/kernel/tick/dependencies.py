"""Which turns of a tick wait for which: a turn waits for those before it whose writing it may see.

That is: outboxes it may read (unless `visibility` is "tick"), files that one of the two may change and
the other may read or change, and what else they share. What nothing connects runs at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.context_files import folders_of_memories, read_for
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.paths import Components, components
from lemming.kernel.files.real_place import real_path
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.edge import tried
from lemming.kernel.tools import Places
from lemming.kernel.tools.toolset import Toolset

if TYPE_CHECKING:
    from lemming.kernel.turn.places import Shared

NO_FILES: Mapping[str, str] = {}


class Files(NamedTuple):
    """What an agent's turns look at that no grant of a tool says, nor `context`.

    `read`: files of the organisation, each with what says so; `may_read`: files as its grants name them.
    """

    read: Mapping[str, str] = NO_FILES
    may_read: Sequence[str] = ()


LookedAt = Mapping[str, Files]
NOTHING = Files()


@dataclass(frozen=True)
class Connections:
    """What tells which turns may see what others write.

    `looked_at`: files that agents read beside those of their tools, by agent (`looked_at_by`). `shared`: what
    they share beside files.
    """

    agents: Mapping[str, Agent]
    settings: Org
    toolset: Toolset
    base: OrgPath
    looked_at: LookedAt = field(default_factory=dict)
    shared: Sequence[Shared] = ()

    def touch_of(self, name: str) -> Touch:
        """Return where an agent's turn may read and change files."""
        looked_at = self.looked_at.get(name, NOTHING)
        return touch_of(self.agents[name], self.settings, self.toolset, self.base, looked_at)


@dataclass(frozen=True)
class Waits:
    """Whom a turn waits for: `everyone` before it, or those with these names.

    Who waits for somebody waits for those he waits for, so not every pair is named.
    """

    names: frozenset[str] = frozenset()
    everyone: bool = False


NOWHERE: Mapping[Components, str] = MappingProxyType({})


@dataclass(frozen=True)
class Touch:
    """Where a turn may read and change files, by the components of the path; each with what allows it.

    It is kept from tick to tick, so nothing is added to it: `with_place` gives another one.
    """

    reads: Mapping[Components, str] = field(default_factory=lambda: NOWHERE)
    writes: Mapping[Components, str] = field(default_factory=lambda: NOWHERE)

    def with_place(self, place: Components, why: str, *, is_written: bool) -> Touch:
        """Return the folders that a turn may read and change, and one place more."""
        if is_written:
            return replace(self, writes=MappingProxyType({**self.writes, place: why}))
        return replace(self, reads=MappingProxyType({**self.reads, place: why}))


def find_waits(order: list[str], connections: Connections) -> dict[str, Waits]:
    """Return whom each turn waits for. A name in the order that is no agent waits for nobody.

    What was found of the very same agents is kept, but of those with links on the disk that may matter.
    """
    latest = _latest(connections)
    if latest.may_follow_links or latest.order != order:
        touches = latest.touches_of(order, connections)
        latest.order, latest.waits = order, _find_waits(order, connections, touches)
    return latest.waits


def reached_by(writers: list[str], names: Iterable[str], connections: Connections) -> set[str]:
    """Return which of these agents may be shown, in this tick, what a turn of one of the writers writes.

    Whether its turn comes first is not looked at.
    """
    latest, agents = _latest(connections), connections.agents
    written = {place for touch in latest.touches_of(writers, connections).values() for place in touch.writes}
    above = {place[:depth] for place in written for depth in range(len(place))}
    depths = {len(place) for place in written}
    is_in_order = connections.settings.visibility == "order"
    readable = frozenset((*writers, "*") if writers and is_in_order else ())
    return {
        name
        for name, touch in latest.touches_of(names, connections).items()
        if not readable.isdisjoint(agents[name].permissions.read_outboxes)
        or any(
            place in above or any(place[:depth] in written for depth in depths)
            for place in (*touch.reads, *touch.writes)
        )
    }


def _latest(now: Connections) -> _Latest:
    latest = Organisation.at(now.base).own(_Latest)
    grounds = (now.settings, now.toolset, real_path(f"{now.base}"), now.looked_at, now.shared)
    # The survey hands out the very same agents until a resume changes; to compare thousands costs more.
    if latest.agents is not now.agents or latest.grounds != grounds:
        latest.begin(now.agents, grounds)
    return latest


class _Latest:
    """The latest answer for an organisation, what it followed from, and what agents may touch."""

    def __init__(self, _: Organisation) -> None:
        self.agents: Mapping[str, Agent] = {}
        self.grounds: tuple[Any, ...] = ()

    def begin(self, agents: Mapping[str, Agent], grounds: tuple[Any, ...]) -> None:
        """Forget what followed from other agents, or from other grounds."""
        self.agents, self.grounds = agents, grounds
        self.order: list[str] = []
        self.waits: dict[str, Waits] = {}
        self.may_follow_links = {name for name, agent in agents.items() if _may_follow_links(agent)}
        self._touches: dict[str, Touch] = {}

    def touches_of(self, names: Iterable[str], connections: Connections) -> Mapping[str, Touch]:
        """Return what these may touch; a name that is no agent is left out."""
        names = [name for name in names if name in self.agents]
        for name in names:
            if name not in self._touches or name in self.may_follow_links:  # a link may lead elsewhere by now
                self._touches[name] = _touch_of(connections, name)
        return {name: self._touches[name] for name in names}


def _may_follow_links(agent: Agent) -> bool:
    access = agent.permissions.file_access
    grants = (*access.allow_read, *access.allow_write)
    return bool(agent.context) or any(grant.startswith("/") for grant in grants)


def _find_waits(order: list[str], connections: Connections, touches: Mapping[str, Touch]) -> dict[str, Waits]:
    touches = {**touches}
    for it in connections.shared:  # as a file that those change who are bound by it, and that the others read
        for name in touches.keys() & it.counted:
            is_bound = name in it.bound
            touches[name] = touches[name].with_place(("", it.what), it.what, is_written=is_bound)
    agents, is_in_order = connections.agents, connections.settings.visibility == "order"
    files = _FileOrder(touches)
    waits: dict[str, Waits] = {}
    for name in order:
        if name not in agents:
            waits[name] = Waits()
            continue
        names = files.take(name)
        readable = agents[name].permissions.read_outboxes if is_in_order else []
        if "*" in readable:
            waits[name] = Waits(everyone=True)
        else:
            waits[name] = Waits(frozenset(names).union(waits.keys() & readable) - {name})
    return waits


def _touch_of(connections: Connections, name: str) -> Touch:
    """Return what a turn may touch; an agent of which that cannot be told may touch everything."""
    touch = tried(lambda: connections.touch_of(name))
    if isinstance(touch, Exception):
        return Touch(writes=MappingProxyType({(): "nobody can tell"}))
    return touch


def touch_of(
    agent: Agent, settings: Org, toolset: Toolset, base: OrgPath, looked_at: Files = NOTHING
) -> Touch:
    """Return where an agent's turn may read and change files. `looked_at`: what it reads besides."""
    home = components(real_path(f"{base}"))
    reads, writes = dict[Components, str](), {(*home, "agents", agent.name): "its own folder"}
    for tool in toolset.allowed(agent, settings).values():
        reads.update(_located(home, tool.reads(agent, settings)))
        writes.update(_located(home, tool.writes(agent, settings)))
    for folder in folders_of_memories(agent):
        reads[(*home, *components(folder))] = "permissions.read_memories"
    read = [(read_for(item), f"context {item.file}") for item in agent.context]
    for file, why in looked_at.read.items():
        reads[(*home, *components(file))] = why
    read += [(file, f"it looks at {file}") for file in looked_at.may_read]
    for file, why in read:
        try:
            place = resolve(agent, Path(base), file, "read", caller="context")
        except ToolError:  # the turn will fail and say so
            continue
        # By where it really lies: two paths to one file are one place.
        reads[components(real_path(f"{place.root / place.relative}"))] = why
    return Touch(MappingProxyType(reads), MappingProxyType(writes))


def _located(home: Components, places: Places) -> Iterator[tuple[Components, str]]:
    """Yield where places really lie, each with what allows it."""
    for place, why in places.items():
        if place.startswith("/"):
            yield components(real_path(place)), why
        else:
            yield (*home, *components(place)), why


def overlap(one: Components, other: Components) -> bool:
    """Return whether one of two places is, or lies below, the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


@dataclass
class _Users:
    """Who has used one place so far: the last that may change it, and those that may read it since."""

    writer: str = ""
    readers: list[str] = field(default_factory=list)


class _FileOrder:
    """Hands out, turn by turn, whom a turn waits for because of files."""

    def __init__(self, touches: Mapping[str, Touch]) -> None:
        self._touches = touches
        everywhere = sorted({place for touch in touches.values() for place in (*touch.reads, *touch.writes)})
        self._users = {place: _Users() for place in everywhere}
        self._below: dict[Components, list[Components]] = {place: [] for place in everywhere}
        for place in everywhere:
            for depth in range(len(place)):
                if place[:depth] in self._below:
                    self._below[place[:depth]].append(place)

    def take(self, name: str) -> set[str]:
        """Return whom this turn waits for, and take note of what it may touch."""
        touch, found = self._touches[name], set[str]()
        for place in (*touch.reads, *touch.writes):
            for users in self._overlapping(place):
                found.add(users.writer)
                # Who only read it since must not see what this turn is about to write.
                if place in touch.writes:
                    found.update(users.readers)
        for place in touch.reads:
            self._users[place].readers.append(name)
        for place in touch.writes:
            # The readers are forgotten: who comes later waits for this turn, which waits for them.
            self._users[place] = _Users(writer=name)
        return found - {"", name}

    def _overlapping(self, place: Components) -> Iterable[_Users]:
        above = (place[:depth] for depth in range(len(place)) if place[:depth] in self._users)
        return (self._users[other] for other in (*above, place, *self._below[place]))
