"""Validate grants and allocations that match no agent, tool or model. Reports only certain problems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lemming.kernel.access.grant_syntax import MEMORY_GRANT, grant_error
from lemming.kernel.agents import Agent, suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import correct_typo, did_you_mean
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.model_entries import has_model_key
from lemming.kernel.org.resume import has_turn_key
from lemming.kernel.plugins.capability_loader import missing_for_model, missing_for_provider, missing_for_turn
from lemming.kernel.plugins.capability_table import NO_MODELS, PREFIXES
from lemming.kernel.tick.validation.inventory import Inventory, PointerProblem

_LATER = 'set "may_be_absent": true for a later agent'


def validate_creators(inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield problems of unknown model keys and agents in the settings for creating agents."""
    settings, keys = inventory.config.org, [*inventory.config.models]
    for index, key in enumerate(settings.create_agent_models):
        if key not in keys:
            hint = did_you_mean(key, keys) or f"use one of the keys: {', '.join(sorted(keys))}"
            yield PointerProblem(f"/create_agent_models/{index}", f'model key "{key}" does not exist', hint)
    for index, name in enumerate(settings.create_agent_allowed):
        if name not in inventory.agent_names and (suggestion := correct_typo(name, inventory.agent_names)):
            yield PointerProblem(
                f"/create_agent_allowed/{index}", f'agent "{name}" does not exist', f'did you mean "{suggestion}"?'
            )


def validate_allocations(inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield allocations for unknown names that resemble an agent without an allocation.

    The allocation of a removed agent is kept, for its return.
    """
    allocations = inventory.config.allocations
    unallocated = [name for name in inventory.agent_names if name not in allocations]
    for name, allocation in allocations.items():
        if name in inventory.agent_names:
            continue
        if not paths.AGENT_NAME.match(name):
            yield PointerProblem(
                f"/{name}", f'"{name}" is not a valid agent name', suggest_agent(name, inventory.agent_names)
            )
        elif (suggestion := correct_typo(name, unallocated)) and not allocation.may_be_absent:
            yield PointerProblem(f"/{name}", f'agent "{name}" does not exist', f'did you mean "{suggestion}"? {_LATER}')


def validate_agent(agent: Agent, inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield problems of unknown names in an agent's grants.

    A missing tool or agent in a grant may be added later and grants nothing until then: a warning elsewhere
    reports it. A name that resembles an existing tool or agent is a problem.
    """
    for key, missing in missing_for_turn().items():
        if has_turn_key(agent.turn, key):
            yield PointerProblem(
                f"/turn/{key}", f'key "{key}" needs a capability that is not installed: {missing}', "remove the key"
            )
    if missing := missing_for_provider(inventory.agent_provider(agent.name)):
        yield PointerProblem("/model/key", missing, "choose another model key")
    for model, (key, missing) in product((agent.model.key, *agent.model.fallback), missing_for_model().items()):
        entry = inventory.config.models.get(model)
        if entry and entry.provider not in NO_MODELS and has_model_key(entry, key):
            unread = (
                f'key "{key}" of the line "{model}" in {MODELS_FILE} needs a capability that is not '
                f"installed: {missing}"
            )
            yield PointerProblem("/model", unread, "remove the key there")
    permissions, tools = agent.permissions, inventory.tool_names
    for index, name in enumerate(() if permissions.may_be_absent else permissions.tools):
        at = f"/permissions/tools/{index}"
        if not (problem := inventory.missing_tool_reason(name)):
            continue
        if suggestion := correct_typo(name, sorted(tools)):
            gaps = f"{inventory.toolset.gaps}; " if inventory.toolset and inventory.toolset.gaps else ""
            yield PointerProblem(at, f'tool "{name}" does not exist', f'{gaps}did you mean "{suggestion}"?')
        elif "*" in name or name.startswith(PREFIXES):
            yield PointerProblem(at, problem[0], f"{problem[1]}; {_LATER}")
    for index, name in enumerate(() if permissions.may_be_absent else permissions.read_outboxes):
        at = f"/permissions/read_outboxes/{index}"
        if name in ("*", *inventory.agent_names):
            continue
        if "*" in name:
            yield PointerProblem(
                at, f'must be the name of an agent, got "{name}"', 'use names of agents, or "*" alone for all'
            )
        elif suggestion := correct_typo(name, inventory.agent_names):
            yield PointerProblem(at, f'agent "{name}" does not exist', f'did you mean "{suggestion}"?')
    for index, grant in enumerate(permissions.read_memories):
        at, match = f"/permissions/read_memories/{index}", MEMORY_GRANT.fullmatch(grant)
        if match is None:
            yield PointerProblem(
                at, f'must be AGENT/KEY, got "{grant}"', 'write for example "planner/goal" or "planner/*"'
            )
        elif match["owner"] not in inventory.agent_names and not permissions.may_be_absent:
            hint = did_you_mean(match["owner"], sorted(inventory.agent_names)) or _LATER
            yield PointerProblem(at, f'agent "{match["owner"]}" does not exist', hint)
    files = permissions.file_access
    for key, grants in (("allow_read", files.allow_read), ("allow_write", files.allow_write)):
        for index, grant in enumerate(grants):
            if why_not := grant_error(grant):
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                at = f"/permissions/file_access/{key}/{index}"
                yield PointerProblem(at, f'"{grant}" grants nothing: {why_not}', hint)
