"""Validate grants and allocations that match no agent, tool or model. Reports only certain problems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lemming.kernel.access.grant_syntax import MEMORY_GRANT, grant_error
from lemming.kernel.agents import suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import correct_typo, did_you_mean
from lemming.kernel.org.model_entries import has_model_key
from lemming.kernel.org.resume import has_turn_key
from lemming.kernel.plugins.capability_loader import missing_for_provider, missing_keys
from lemming.kernel.plugins.capability_table import NO_MODELS, PREFIXES
from lemming.kernel.tick.validation.checks import AgentSubject, CheckSubject

_LATER = 'set "may_be_absent": true for a later agent'


def find_creator_typos(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of unknown model keys and agents in the settings for creating agents."""
    settings, keys, names = subject.config.org, [*subject.config.models], subject.names.agent_names
    for index, key in enumerate(settings.create_agent_models):
        if key not in keys:
            hint = did_you_mean(key, keys) or f"use one of the keys: {', '.join(sorted(keys))}"
            yield Problem(f'model key "{key}" does not exist', pointer=f"/create_agent_models/{index}", hint=hint)
    for index, name in enumerate(settings.create_agent_allowed):
        if name not in names and (suggestion := correct_typo(name, names)):
            yield _missing_agent(name, f"/create_agent_allowed/{index}", f'did you mean "{suggestion}"?')


def _missing_agent(name: str, pointer: str, hint: str, file: str = "") -> Problem:
    return Problem(f'agent "{name}" does not exist', file, pointer=pointer, hint=hint)


def find_allocation_typos(subject: CheckSubject) -> Iterator[Problem]:
    """Yield allocations for unknown names that resemble an agent without an allocation.

    The allocation of a removed agent is kept, for its return.
    """
    allocations, names = subject.config.allocations, subject.names.agent_names
    unallocated = [name for name in names if name not in allocations]
    for name, allocation in allocations.items():
        if name in names:
            continue
        if not paths.AGENT_NAME.match(name):
            hint = suggest_agent(name, names)
            yield Problem(f'"{name}" is not a valid agent name', paths.CREDITS_FILE, pointer=f"/{name}", hint=hint)
        elif (suggestion := correct_typo(name, unallocated)) and not allocation.may_be_absent:
            yield _missing_agent(name, f"/{name}", f'did you mean "{suggestion}"? {_LATER}', paths.CREDITS_FILE)


def find_missing_readers(subject: AgentSubject) -> Iterator[Problem]:
    """Yield keys and models of a resume whose capability is not installed."""
    agent, models = subject.agent, subject.config.models
    for key, missing in missing_keys("turn").items():
        if has_turn_key(agent.turn, key):
            message = f'key "{key}" needs a capability that is not installed: {missing}'
            yield Problem(message, pointer=f"/turn/{key}", hint="remove the key")
    if missing := missing_for_provider(subject.names.agent_provider(agent.name)):
        yield Problem(missing, pointer="/model/key", hint="choose another model key")
    for model, (key, missing) in product((agent.model.key, *agent.model.fallback), missing_keys("model").items()):
        entry = models.get(model)
        if entry and entry.provider not in NO_MODELS and has_model_key(entry, key):
            line = f'key "{key}" of the line "{model}" in {paths.MODELS_FILE}'
            message = f"{line} needs a capability that is not installed: {missing}"
            yield Problem(message, pointer="/model", hint="remove the key there")


def find_grant_typos(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of unknown names in an agent's grants.

    A missing tool or agent in a grant may be added later and grants nothing until then: a warning elsewhere
    reports it. A name that resembles an existing tool or agent is a problem.
    """
    permissions, inventory = subject.agent.permissions, subject.names
    agent_names = inventory.agent_names
    for index, name in enumerate(() if permissions.may_be_absent else permissions.tools):
        pointer = f"/permissions/tools/{index}"
        if not (problem := inventory.missing_tool_reason(name)):
            continue
        if suggestion := correct_typo(name, sorted(inventory.tool_names)):
            gaps = f"{inventory.toolset.gaps}; " if inventory.toolset and inventory.toolset.gaps else ""
            hint = f'{gaps}did you mean "{suggestion}"?'
            yield Problem(f'tool "{name}" does not exist', pointer=pointer, hint=hint)
        elif "*" in name or name.startswith(PREFIXES):
            yield Problem(problem[0], pointer=pointer, hint=f"{problem[1]}; {_LATER}")
    for index, name in enumerate(() if permissions.may_be_absent else permissions.read_outboxes):
        pointer = f"/permissions/read_outboxes/{index}"
        if name in ("*", *agent_names):
            continue
        if "*" in name:
            hint = 'use names of agents, or "*" alone for all'
            yield Problem(f'must be the name of an agent, got "{name}"', pointer=pointer, hint=hint)
        elif suggestion := correct_typo(name, agent_names):
            yield _missing_agent(name, pointer, f'did you mean "{suggestion}"?')
    for index, grant in enumerate(permissions.read_memories):
        pointer, match = f"/permissions/read_memories/{index}", MEMORY_GRANT.fullmatch(grant)
        if match is None:
            hint = 'write for example "planner/goal" or "planner/*"'
            yield Problem(f'must be AGENT/KEY, got "{grant}"', pointer=pointer, hint=hint)
        elif match["owner"] not in agent_names and not permissions.may_be_absent:
            yield _missing_agent(match["owner"], pointer, did_you_mean(match["owner"], sorted(agent_names)) or _LATER)
    files = permissions.file_access
    for key, grants in (("allow_read", files.allow_read), ("allow_write", files.allow_write)):
        for index, grant in enumerate(grants):
            if why_not := grant_error(grant):
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                pointer = f"/permissions/file_access/{key}/{index}"
                yield Problem(f'"{grant}" grants nothing: {why_not}', pointer=pointer, hint=hint)
