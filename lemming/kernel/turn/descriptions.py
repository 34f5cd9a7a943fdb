"""Kinds of descriptions that a capability gives of itself, and the query for those of an organisation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.capability_state import D, Query, StateQuery
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


DescribeQuery = OrgQuery[Any] | StateQuery[Any]


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
