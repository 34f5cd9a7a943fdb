"""Kinds of descriptions that a capability gives of itself, the queries for them, and the subjects that it checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.journal.capability_queries import D, Query, StateQuery
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Message


@dataclass(frozen=True)
class OrgQuery(Query[D]):
    """A query about a capability in an organisation. `agents`: the agents concerned, by name.

    `states`: their ledgers, for a `CapabilityStatus` and a `SkipReason`. `at`: the time, for a `CapabilityStatus`.
    `servers`: servers that a person named, for a `RequiredPermission`. `known_config`: settings, if already loaded.
    """

    org: Organisation
    agents: Mapping[str, Agent]
    known_config: Config | None = None
    states: Mapping[str, AgentState] = field(default_factory=dict)
    at: str = ""
    servers: Collection[str] = ()

    @property
    def config(self) -> Config:
        """The settings. Raises `ConfigError` if they have to be loaded and are invalid."""
        return self.known_config or load_config(self.org)


class TickView(NamedTuple):
    """An organisation at the start of a tick: its agents, and the clock readings of this and the previous tick.

    `since` is empty without a previous reading. `agents`: the agents that use the capability, by name.
    """

    org: Organisation
    config: Config
    survey: Survey
    tick: int
    at: str = ""
    since: str = ""
    agents: Collection[str] = ()


@dataclass(frozen=True)
class ScheduleQuery(Query["ClockSchedule"]):
    """A query for the clock schedules of `tick.agents`, which take turns only by them."""

    tick: TickView


DescribeQuery = OrgQuery[Any] | StateQuery[Any] | ScheduleQuery


class ToolReference(NamedTuple):
    """A tool, or a pattern of tools, that the capability's keys name."""

    pattern: str


class OutsideRoot(NamedTuple):
    """A file or folder outside the standard folders that the capability reads. Copies and the history include it."""

    path: str


class OutsideFile(NamedTuple):
    """An existing file at or below an `OutsideRoot`."""

    path: str


class AuxiliaryPrompt(NamedTuple):
    """A prompt that a snapshot asks before the turn's own. Traces show `purpose`."""

    purpose: str
    messages: Sequence[Message]


class ReadPath(NamedTuple):
    """A file of the organisation that every turn of an agent reads, and the reason.

    Follows from the resume alone. A change of the file ends the idle state of the agent, and turns that may write it
    wait for each other.
    """

    agent: str
    path: str
    reason: str


class OptionalReadPath(NamedTuple):
    """A further file that the turns of an agent may read, in the form of its grants."""

    agent: str
    path: str


class ExpiredMemory(NamedTuple):
    """A memory to remove at the end of a tick in which its agent was due.

    Follows from files and ledgers alone, so that a second attempt at the tick removes the same.
    """

    agent: str
    key: str


class ClockSchedule(NamedTuple):
    """A schedule by the clock: when an agent is due, what comes next, and what counts after a change.

    `name`: unique. `text`: the expression; a new or changed one does not catch up on earlier times, an empty one is not
    recorded. `is_due` takes the reading after which times count; `iter_times` yields the times after a moment.
    `concerns`: the agent named with upcoming events, if another one. `error` keeps the agent from its turns.
    """

    name: str
    agent: str
    text: str
    description: str
    is_due: Callable[[str], bool]
    iter_times: Callable[[datetime], Iterator[datetime]]
    concerns: str = ""
    error: str = ""


class SharedResource(NamedTuple):
    """A resource besides files that turns of a tick share.

    A `bound` agent waits for earlier `counted` agents.

    `counted`: the agents that change the resource; they include all `bound` agents. `ordered`: agents whose turns begin
    in order and then run at once; only their calls of tools that run in turn order wait for the earlier turns.
    """

    name: str
    bound: AbstractSet[str]
    counted: AbstractSet[str]
    ordered: AbstractSet[str] = frozenset()


VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"passes": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["passes", "reason"],
    "additionalProperties": False,
}
