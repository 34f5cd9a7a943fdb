"""Problems and status lines that capabilities report to people.

A capability that breaks or is not installed produces a message in its own section only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import get_capability, missing_reason
from lemming.kernel.plugins.capability_table import PREFIXES, SHIPPED, TOOL_SOURCES
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.firing_plan import has_model_turns
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.turn.descriptions import AgentCheck, OrgCheck, OrgQuery
from lemming.kernel.turn.preparation import CapabilityStatus
from lemming.kernel.turn.turn_hooks import Capability

T = TypeVar("T")


def list_capability_names(config: Config, agents: Iterable[Agent]) -> list[str]:
    """Return the names of shipped capabilities and of capabilities named in settings or resumes."""
    named = dict.fromkeys(name for agent in agents for name in sorted(agent.capabilities))
    listed_sources = (source for source in TOOL_SOURCES if source not in PREFIXES and getattr(config.org, source))
    sources = {TOOL_SOURCES[source][0]: None for source in listed_sources}
    return [*{**SHIPPED, **sources, **config.org.capabilities, **named}]


def validate_org(name: str, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
    """Yield problems a capability finds in the organisation's use of it. `only` restricts the search to an agent."""
    spec = SHIPPED.get(name)
    for file, role in spec.files.items() if spec and only is None and missing_reason(name) else ():
        if role == "settings" and path_exists(f"{base}/{file}"):
            hint = "install lemming-engine again, or remove the file"
            yield Problem(f"the file needs a capability that is not installed: {missing_reason(name)}", file, hint=hint)

    problems = _call_isolated(name, config, lambda capability: [*capability.check(OrgCheck(base, config, only))])
    yield from _to_problems(name, problems, ORG_FILE)
    if only is None and name not in SHIPPED:
        users = _map_users(config, survey_agents(base)).get(name)
        status_lines = _call_status_lines(Organisation.from_path(base), config, name, users) if users else ""
        if status_lines and isinstance(status_lines, str):
            hint = "report the error to the author of the capability"
            message = f'capability "{name}" failed: {status_lines}'
            yield Problem(message, ORG_FILE, hint=hint, severity="warning")


def validate_agents_use(name: str, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
    """Yield the problems a capability finds in its use by each agent, except problems already reported as fatal."""
    if _call_isolated(name, config, lambda capability: _overrides_hook(capability, "check")) is not True:
        return  # a missing or broken capability is reported for the organisation
    survey = survey_agents(base)
    broken_agents = validate_survey(base, config, survey).survey.broken
    for agent in survey.agents.values() if only is None else filter(None, [survey.agents.get(only)]):
        reported_pointers = (
            {problem.pointer for problem in broken_agents[agent.name].problems} if agent.name in broken_agents else ()
        )
        problems = validate_agent_use(name, base, agent, config)
        yield from (problem for problem in problems if problem.pointer not in reported_pointers)


def validate_agent_use(name: str, base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield the problems a capability finds in an agent's use of it, and in the agent's unused files."""

    def validate(capability: Capability) -> list[Problem]:
        is_user = has_model_turns(agent, config) and name in find_used_capabilities(agent, config)
        return [*capability.check(AgentCheck(base, agent, config))] if is_user or name in SHIPPED else []

    yield from _to_problems(name, _call_isolated(name, config, validate), paths.resume_file(agent.name))


def _overrides_hook(capability: Capability, hook: str) -> bool:
    """Return True if a capability overrides a hook; without an override there is no need to call the hook."""
    return getattr(type(capability), hook, None) is not getattr(Capability, hook)


def _to_problems(name: str, result: list[Problem] | ConfigError | str, file: str) -> Iterator[Problem]:
    if isinstance(result, list):
        yield from result
    elif isinstance(result, str):  # otherwise its absence is reported elsewhere
        hint = "report the error to the author of the capability"
        yield Problem(f'capability "{name}" failed: {result}', file, hint=hint)


def collect_capability_status(base: OrgPath, config: Config, survey: Survey) -> dict[str, list[CapabilityStatus]]:
    """Return the status lines of the capabilities in use, by capability name, without empty entries."""
    users = _map_users(config, survey)
    status_by_name = {
        name: _load_status_lines(Organisation.from_path(base), config, name, users[name]) for name in sorted(users)
    }
    return {name: lines for name, lines in status_by_name.items() if lines}


def _map_users(config: Config, survey: Survey) -> dict[str, dict[str, Agent]]:
    """Return the agents that use each capability, by capability name."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in survey.agents.values():
        for name in find_used_capabilities(agent, config) if has_model_turns(agent, config) else ():
            users.setdefault(name, {})[agent.name] = agent
    return users


def _call_status_lines(
    org: Organisation, config: Config, name: str, agents: dict[str, Agent]
) -> list[CapabilityStatus] | ConfigError | str:
    def call_hook(capability: Capability) -> list[CapabilityStatus]:
        at = timestamp(SystemClock().now())
        return [*OrgQuery(CapabilityStatus, org, agents, config, _ReadableStates(org, agents), at).ask(capability)]

    return _call_isolated(name, config, call_hook)


def _load_status_lines(
    org: Organisation, config: Config, name: str, agents: dict[str, Agent]
) -> list[CapabilityStatus]:
    result = _call_status_lines(org, config, name, agents)
    if isinstance(result, list):
        return result
    if isinstance(result, ConfigError):
        return [CapabilityStatus("", f"no status: {result.message}")]
    return [CapabilityStatus("", f"broke: {result}")]


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


def _call_isolated(name: str, config: Config, call: Callable[[Capability], T]) -> T | ConfigError | str:
    """Return the result of a capability call, its `ConfigError` if unavailable, or a description of its failure."""
    result = isolate(lambda: call(get_capability(name, config.org.plugins)))
    if isinstance(result, Exception) and not isinstance(result, ConfigError):
        return f"{describe_exception(result)}, at {locate_error(result)}"
    return result
