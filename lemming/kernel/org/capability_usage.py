"""Capabilities used by an agent, from settings and resumes, and the resulting turn policy and credits."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.org.config import Config
from lemming.kernel.org.resume import Agent, AgentCredits, Take
from lemming.kernel.org.schedule import Wake
from lemming.kernel.plugins.capability_loader import find_capability, get_capability, missing_reason
from lemming.kernel.plugins.capability_table import (
    DECISION_RULES,
    ORG_KEYS,
    POLICY_PROVIDERS,
    RESUME_KEYS,
    SPEAKING_PROVIDERS,
    USES,
    declared_keys,
    find_key_owners,
)


class TurnPolicy(NamedTuple):
    """Turn policy of an agent, or the defaults for agents whose provider belongs to a capability.

    `wake` and `take`: values of the resume's keys. `is_asked`: True if the agent receives requests
    and reads an inbox. `is_written`: True if people wrote the texts in a file, and no model is used.
    """

    wake: Wake
    take: Take = None
    is_asked: bool = True
    is_written: bool = False


def find_used_capabilities(agent: Agent, config: Config) -> AbstractSet[str]:
    """Return the names of the capabilities used by a resume or by the settings."""
    entry = config.models.get(agent.model.key)
    names = {name for name, uses in USES.items() if uses(agent, entry)}
    names.update(
        name for key, (name, _) in declared_keys("schedule").items() if getattr(agent.schedule, key) is not None
    )
    if agent.capabilities or config.org.capabilities:
        names |= {*agent.capabilities, *config.org.capabilities}
        if asks_persons(agent, config) and not missing_reason(DECISION_RULES):
            names.add(DECISION_RULES)
    if entry and entry.provider in SPEAKING_PROVIDERS:
        names.add(SPEAKING_PROVIDERS[entry.provider][0])
    if not (agent.extensions or config.org.extensions):
        return names
    names.update(find_key_owners(RESUME_KEYS, agent.extensions), find_key_owners(ORG_KEYS, config.org.extensions))
    rules = (rule for source in (config.org, agent) for rule in source.extensions.get("gates", ()))
    names.update(declared_keys("gate.then")[rule.then][0] for rule in rules if rule.then in declared_keys("gate.then"))
    return names


def asks_persons(agent: Agent, config: Config) -> bool:
    """Return True if a capability of a plugin, in use for an agent, may ask persons to approve."""
    for name in {*agent.capabilities, *config.org.capabilities}:
        with suppress(ConfigError):  # a missing one is reported where it is used
            if get_capability(name, config.org.plugins).asks_persons:
                return True
    return False


def resolve_turn_policy(agent: Agent, config: Config) -> TurnPolicy:
    """Return an agent's turn policy: from the provider's capability, its resume, or the settings."""
    entry = config.models.get(agent.model.key)
    owner = POLICY_PROVIDERS.get(entry.provider) if entry else None
    capability = find_capability(owner[0]) if owner else None
    policy: TurnPolicy = (capability and capability.turn_policy) or TurnPolicy(config.org.defaults.wake)
    wake = agent.schedule.wake if policy.is_asked else None  # its resume may say when requests wake it
    return policy._replace(wake=wake or policy.wake, take=agent.turn.take or policy.take)


def parse_org_settings(capability: Any, config: Config) -> Any:
    """Return a capability's block of `config/org.json` as its class, or None without a block. Raises `ConfigError`."""
    return _parse_block(capability.name, capability.org_settings_type, config.org.capabilities, paths.ORG_FILE)


def parse_agent_settings(capability: Any, agent: Agent) -> Any:
    """Return a capability's block of a resume as its class, or None without a block. Raises `ConfigError`."""
    file = paths.resume_file(agent.name)
    return _parse_block(capability.name, capability.agent_settings_type, agent.capabilities, file)


def _parse_block(name: str, kind: type[Any], blocks: Mapping[str, dict[str, Any]], file: str) -> Any:
    if name not in blocks:
        return None
    try:
        return to_value(kind, blocks[name])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"capabilities.{name}: {error}", where=file) from error


def resolve_credits(config: Config, agent_name: str, resume: AgentCredits) -> AgentCredits:
    """Return an agent's credits: values from `config/credits.json`, and from the resume for missing values."""
    override = config.allocations.get(agent_name)
    if override is None:
        return resume
    return AgentCredits(
        max_credits=resume.max_credits if override.max_credits is None else override.max_credits,
        soft_cap=resume.soft_cap if override.soft_cap is None else override.soft_cap,
    )
