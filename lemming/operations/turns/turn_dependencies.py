"""Dependencies between the turns of a tick: a turn waits for earlier turns with output visible to it.

Dependencies are outboxes the agent may read (unless `visibility` is "tick"), files that one turn may change
and the other may read or change, and other shared resources. Turns without a dependency run concurrently.

Agents without news, and without possible news in this tick, are skipped before any turn runs: thousands may be idle, and
no idle agent needs a thread or a wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.access.context_files import granted_memory_folders, path_to_read
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.paths import Components, components
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.config import Config, OrgSettings
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.tick_hooks import get_capability_uses
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import Places
from lemming.kernel.tools.toolset import Toolset
from lemming.kernel.turn.descriptions import OptionalReadPath, ReadPath, SharedResource
from lemming.operations.turns.idle_cache import find_idle_cache
from lemming.operations.turns.running_tick import RunningTick

NO_FILES: Mapping[str, str] = {}


class ImplicitReads(NamedTuple):
    """Files an agent's turns read beyond its tool grants and `context`.

    `required`: files of the organisation, each with a reason. `optional`: files in the form of the agent's
    grants.
    """

    required: Mapping[str, str] = NO_FILES
    optional: Sequence[str] = ()


ImplicitReadsByAgent = Mapping[str, ImplicitReads]
NO_READS = ImplicitReads()


@dataclass(frozen=True)
class TurnDependencies:
    """Inputs from which the dependencies between turns are derived.

    `implicit_reads`: files read beyond those of tools, by agent (`find_implicit_reads`). `shared`: shared
    resources other than files.
    """

    agents: Mapping[str, Agent]
    settings: OrgSettings
    toolset: Toolset
    base: OrgPath
    implicit_reads: ImplicitReadsByAgent = field(default_factory=dict)
    shared: Sequence[SharedResource] = ()

    def footprint(self, name: str) -> PathFootprint:
        """Return the path footprint of an agent's turn."""
        implicit_reads = self.implicit_reads.get(name, NO_READS)
        return compute_footprint(self.agents[name], self.settings, self.toolset, self.base, implicit_reads)


@dataclass(frozen=True)
class TurnWaits:
    """The turns a turn waits for: every earlier turn (`everyone`), or the turns of the named agents.

    Waiting is transitive, so not every pair is listed. `begun`: agents whose turns must have begun; calls of tools that
    run in turn order also wait for the end of these turns.
    """

    names: frozenset[str] = frozenset()
    everyone: bool = False
    begun: frozenset[str] = frozenset()


NO_PATHS: Mapping[Components, str] = MappingProxyType({})


@dataclass(frozen=True)
class PathFootprint:
    """Paths a turn may read and write, by path components, each with the permission that allows the access.

    A footprint is cached across ticks and never changed; `add_path` returns a new footprint.
    """

    reads: Mapping[Components, str] = field(default_factory=lambda: NO_PATHS)
    writes: Mapping[Components, str] = field(default_factory=lambda: NO_PATHS)

    def add_path(self, path: Components, reason: str, *, is_written: bool) -> PathFootprint:
        """Return a footprint with a further path."""
        if is_written:
            return replace(self, writes=MappingProxyType({**self.writes, path: reason}))
        return replace(self, reads=MappingProxyType({**self.reads, path: reason}))


def find_waits(order: list[str], dependencies: TurnDependencies) -> dict[str, TurnWaits]:
    """Return the waits of each turn in the order. A name without an agent waits for no turn.

    Results are cached while the agents are unchanged, except for agents with symbolic links in their paths.
    """
    cache = _get_cache(dependencies)
    if cache.may_follow_links or cache.order != order:
        footprints = cache.get_footprints(order, dependencies)
        cache.order, cache.waits = order, _compute_waits(order, dependencies, footprints)
    return cache.waits


def find_affected_agents(writers: list[str], names: Iterable[str], dependencies: TurnDependencies) -> set[str]:
    """Return the agents that may see, in this tick, output of a turn of a writer. The order of the turns is ignored."""
    cache, agents = _get_cache(dependencies), dependencies.agents
    written_paths = {
        path for footprint in cache.get_footprints(writers, dependencies).values() for path in footprint.writes
    }
    parents = {path[:depth] for path in written_paths for depth in range(len(path))}
    depths = {len(path) for path in written_paths}
    is_in_order = dependencies.settings.visibility == "order"
    readable = frozenset((*writers, "*") if writers and is_in_order else ())
    return {
        name
        for name, footprint in cache.get_footprints(names, dependencies).items()
        if not readable.isdisjoint(agents[name].permissions.read_outboxes)
        or any(
            path in parents or any(path[:depth] in written_paths for depth in depths)
            for path in (*footprint.reads, *footprint.writes)
        )
    }


def _get_cache(dependencies: TurnDependencies) -> _DependencyCache:
    cache = Organisation.from_path(dependencies.base).get_cache(_DependencyCache)
    grounds = (
        dependencies.settings,
        dependencies.toolset,
        real_path(f"{dependencies.base}"),
        dependencies.implicit_reads,
        dependencies.shared,
    )
    # The survey returns the same objects until a resume changes: comparing thousands by value costs more.
    if cache.agents is not dependencies.agents or cache.inputs != grounds:
        cache.reset(dependencies.agents, grounds)
    return cache


class _DependencyCache:
    """Cached waits and footprints of an organisation, with the inputs they were derived from."""

    def __init__(self, _: Organisation) -> None:
        self.agents: Mapping[str, Agent] = {}
        self.inputs: tuple[Any, ...] = ()

    def reset(self, agents: Mapping[str, Agent], inputs: tuple[Any, ...]) -> None:
        """Clear the cache for other agents or other inputs."""
        self.agents, self.inputs = agents, inputs
        self.order: list[str] = []
        self.waits: dict[str, TurnWaits] = {}
        self.may_follow_links = {name for name, agent in agents.items() if _may_follow_links(agent)}
        self._footprints: dict[str, PathFootprint] = {}

    def get_footprints(self, names: Iterable[str], dependencies: TurnDependencies) -> Mapping[str, PathFootprint]:
        """Return the footprints of the agents, without names of no agent."""
        names = [name for name in names if name in self.agents]
        for name in names:
            if name not in self._footprints or name in self.may_follow_links:  # a link may lead elsewhere by now
                self._footprints[name] = _safe_footprint(dependencies, name)
        return {name: self._footprints[name] for name in names}


def _may_follow_links(agent: Agent) -> bool:
    access = agent.permissions.file_access
    grants = (*access.allow_read, *access.allow_write)
    return bool(agent.context) or any(grant.startswith("/") for grant in grants)


def _compute_waits(
    order: list[str], dependencies: TurnDependencies, footprints: Mapping[str, PathFootprint]
) -> dict[str, TurnWaits]:
    footprints = {**footprints}
    for resource in dependencies.shared:  # like a file written by bound agents, read by others
        for name in footprints.keys() & resource.counted:
            is_bound = name in resource.bound
            footprints[name] = footprints[name].add_path(("", resource.name), resource.name, is_written=is_bound)
    agents, is_in_order = dependencies.agents, dependencies.settings.visibility == "order"
    files = _FileWaits(footprints)
    waits: dict[str, TurnWaits] = {}
    for name in order:
        if name not in agents:
            waits[name] = TurnWaits()
            continue
        names = files.add_turn(name)
        readable = agents[name].permissions.read_outboxes if is_in_order else []
        if "*" in readable:
            waits[name] = TurnWaits(everyone=True)
        else:
            waits[name] = TurnWaits(frozenset(names).union(waits.keys() & readable) - {name})
    for resource in dependencies.shared:
        earlier = frozenset[str]()
        for name in order if resource.ordered else ():
            if name in resource.ordered:
                waits[name] = replace(waits[name], begun=waits[name].begun | earlier)
                earlier |= {name}
    return waits


def _safe_footprint(dependencies: TurnDependencies, name: str) -> PathFootprint:
    """Return a turn's footprint; an agent with an unknown footprint counts as writing everywhere."""
    footprint = isolate(lambda: dependencies.footprint(name))
    if isinstance(footprint, Exception):
        return PathFootprint(writes=MappingProxyType({(): "unknown files"}))
    return footprint


def compute_footprint(
    agent: Agent, settings: OrgSettings, toolset: Toolset, base: OrgPath, implicit_reads: ImplicitReads = NO_READS
) -> PathFootprint:
    """Return the path footprint of an agent's turn, including its implicit reads."""
    org_path = components(real_path(f"{base}"))
    reads, writes = dict[Components, str](), {(*org_path, "agents", agent.name): "its own folder"}
    for tool in toolset.allowed_tools(agent, settings).values():
        reads.update(_resolve_paths(org_path, tool.read_paths(agent, settings)))
        writes.update(_resolve_paths(org_path, tool.write_paths(agent, settings)))
    for folder in granted_memory_folders(agent):
        reads[(*org_path, *components(folder))] = "permissions.read_memories"
    read = [(path_to_read(item), f"context {item.file}") for item in agent.context]
    for file, reason in implicit_reads.required.items():
        reads[(*org_path, *components(file))] = reason
    read += [(file, f"it looks at {file}") for file in implicit_reads.optional]
    for file, reason in read:
        try:
            path = resolve_path(agent, Path(base), file, "read", caller="context")
        except ToolError:  # the turn fails and reports it
            continue
        # By its real path: two paths to one file are one dependency.
        reads[components(real_path(f"{path.root / path.relative}"))] = reason
    return PathFootprint(MappingProxyType(reads), MappingProxyType(writes))


def _resolve_paths(org_path: Components, path_rules: Places) -> Iterator[tuple[Components, str]]:
    """Yield real paths as components, each with the permission that allows the access."""
    for path, reason in path_rules.items():
        if path.startswith("/"):
            yield components(real_path(path)), reason
        else:
            yield (*org_path, *components(path)), reason


def paths_overlap(first: Components, second: Components) -> bool:
    """Return True if a path equals, contains or lies within the second path."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


@dataclass
class _PathUsers:
    """Turns that have used a path: the last writer, and the readers since."""

    writer: str = ""
    readers: list[str] = field(default_factory=list)


class _FileWaits:
    """Compute, turn by turn, the turns to wait for because of shared files."""

    def __init__(self, footprints: Mapping[str, PathFootprint]) -> None:
        self._footprints = footprints
        paths = sorted({path for touch in footprints.values() for path in (*touch.reads, *touch.writes)})
        self._users = {path: _PathUsers() for path in paths}
        self._descendants: dict[Components, list[Components]] = {path: [] for path in paths}
        for path in paths:
            for depth in range(len(path)):
                if path[:depth] in self._descendants:
                    self._descendants[path[:depth]].append(path)

    def add_turn(self, name: str) -> set[str]:
        """Record a turn's footprint, and return the turns it waits for."""
        footprint, waits = self._footprints[name], set[str]()
        for path in (*footprint.reads, *footprint.writes):
            for users in self._overlapping_users(path):
                waits.add(users.writer)
                # Turns that read the file since must not see the write of this one.
                if path in footprint.writes:
                    waits.update(users.readers)
        for path in footprint.reads:
            self._users[path].readers.append(name)
        for path in footprint.writes:
            # The readers can be dropped: later turns wait for this one, which waits for them.
            self._users[path] = _PathUsers(writer=name)
        return waits - {"", name}

    def _overlapping_users(self, path: Components) -> Iterable[_PathUsers]:
        parents = (path[:depth] for depth in range(len(path)) if path[:depth] in self._users)
        return (self._users[other] for other in (*parents, path, *self._descendants[path]))


def build_dependencies(running_tick: RunningTick, agents: Mapping[str, Agent]) -> TurnDependencies:
    """Return the dependencies between the turns of a tick, from the capabilities in use."""
    tick_context = running_tick.tick_context
    reads = find_implicit_reads(tick_context.org, tick_context.survey, tick_context.config)
    shared = running_tick.find_shared_resources(agents)
    return TurnDependencies(agents, tick_context.config.org, tick_context.toolset, tick_context.org, reads, shared)


def skip_idle(
    tick_context: TickContext, started: Collection[str], root: int, dependencies: TurnDependencies
) -> dict[str, TurnReport]:
    """Return the reports of the turns that can be skipped without a check, in order.

    An agent qualifies if it had no news before, nothing has changed since, and no turn of this tick can
    affect it. A turn already started does not qualify. `root` is a descriptor of the organisation's open
    folder.
    """
    order, idle_cache = tick_context.plan.order, tick_context.get_cache(find_idle_cache)
    reports = {
        name: report
        for name in order
        if name in idle_cache.news_driven
        and name not in started
        and (report := idle_cache.get_report(name, tick_context.mail, root))
    }
    writers = [name for name in order if name not in reports]
    while reports and (woken := find_affected_agents(writers, reports, dependencies)):
        for name in woken:
            del reports[name]
        writers = [*woken]  # an agent that may take a turn may reach others
    return reports


def find_implicit_reads(org: Organisation, survey: Survey, config: Config) -> dict[str, ImplicitReads]:
    """Return the files read by capabilities, by agent."""
    required: dict[str, dict[str, str]] = {}
    optional: dict[str, list[str]] = {}
    for use in get_capability_uses(org, survey, config):
        for item in use.make_query(ReadPath, org, survey, config).ask(use.capability):
            required.setdefault(item.agent, {})[item.path] = item.reason
        for item in use.make_query(OptionalReadPath, org, survey, config).ask(use.capability):
            optional.setdefault(item.agent, []).append(item.path)
    return {name: ImplicitReads(required.get(name, {}), optional.get(name, ())) for name in {**required, **optional}}
