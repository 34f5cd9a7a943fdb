"""Status lines that capabilities report to people. A broken or missing capability spoils its own section only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.capability_table import PREFIXES, SHIPPED, provided
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.turn.descriptions import OrgQuery
from lemming.kernel.turn.preparation import CapabilityStatus

T = TypeVar("T")


def list_capability_names(config: Config, agents: Iterable[Agent]) -> list[str]:
    """Return the names of shipped capabilities and of capabilities named in settings or resumes."""
    named = dict.fromkeys(name for agent in agents for name in sorted(agent.capabilities))
    sources = {
        capability: None
        for source, (capability, _) in provided("tool_sources").items()
        if source not in PREFIXES and getattr(config.org, source)
    }
    return [*{**SHIPPED, **sources, **config.org.capabilities, **named}]


def collect_capability_status(base: OrgPath, config: Config, survey: Survey) -> dict[str, list[CapabilityStatus]]:
    """Return the status lines of the capabilities in use, by capability name, without empty entries."""
    users = map_users(config, survey)
    org = Organisation.from_path(base)
    status_by_name = {}
    for name in sorted(users):
        lines = call_status_lines(org, config, name, users[name])
        if not isinstance(lines, list):
            text = f"no status: {lines.message}" if isinstance(lines, ConfigError) else f"broke: {lines}"
            lines = [CapabilityStatus("", text)]
        if lines:
            status_by_name[name] = lines
    return status_by_name


def map_users(config: Config, survey: Survey) -> dict[str, dict[str, Agent]]:
    """Return the agents that use each capability, by capability name."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in survey.agents.values():
        for name in find_used_capabilities(agent, config) if config.has_model_turns(agent) else ():
            users.setdefault(name, {})[agent.name] = agent
    return users


def call_status_lines(
    org: Organisation, config: Config, name: str, agents: dict[str, Agent]
) -> list[CapabilityStatus] | ConfigError | str:
    """Return the status lines of a capability, or its error if unavailable, or a description of its failure."""
    at = timestamp(SystemClock().now())
    query = OrgQuery(CapabilityStatus, org, agents, config, _ReadableStates(org, agents), at)
    return isolate_capability(lambda: query.list_answers(get_capability(name, config.org.plugins)))


class _ReadableStates(Mapping[str, AgentState]):
    """The ledgers of agents, read on use. A damaged one, which is reported elsewhere, is as a new one."""

    def __init__(self, org: Organisation, names: Collection[str]) -> None:
        self._org, self._names = org, names

    def __getitem__(self, name: str) -> AgentState:
        if name not in self._names:
            raise KeyError(name)
        try:
            return read_state(self._org, name)
        except CorruptState:
            return AgentState()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def isolate_capability(call: Callable[[], T]) -> T | ConfigError | str:
    """Return the result of a capability call, its `ConfigError` if unavailable, or a description of its failure."""
    result = isolate(call)
    if isinstance(result, Exception) and not isinstance(result, ConfigError):
        return f"{describe_exception(result)}, at {locate_error(result)}"
    return result
