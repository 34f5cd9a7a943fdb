"""Grants and allocations that are about nobody and nothing here. Only what is sure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lemming.kernel.access.grants import MEMORY_GRANT, why_no_grant
from lemming.kernel.agents import Agent, nearest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import meant, nearest
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.models import says_of_model
from lemming.kernel.org.resume import says_of_turns
from lemming.kernel.plugins.capabilities import missing_for_model, missing_for_provider, missing_for_turn
from lemming.kernel.plugins.shipped import NO_MODELS, PREFIXES
from lemming.kernel.tick.soundness.inventory import Fault, Inventory

_LATER = '"may_be_absent": true says that it is for later'


def wrong_with_creators(known: Inventory) -> Iterator[Fault]:
    """Yield what new agents can never have, or nobody can be who may create them."""
    settings, keys = known.config.org, [*known.config.models]
    for index, key in enumerate(settings.create_agent_models):
        if key not in keys:
            hint = nearest(key, keys) or f"keys there: {', '.join(sorted(keys))}"
            yield Fault(f"/create_agent_models/{index}", f'no model key "{key}"', hint)
    for index, name in enumerate(settings.create_agent_allowed):
        if name not in known.names and (other := meant(name, known.names)):
            yield Fault(
                f"/create_agent_allowed/{index}", f'there is no agent "{name}"', f'did you mean "{other}"?'
            )


def wrong_with_allocations(known: Inventory) -> Iterator[Fault]:
    """Yield allocations that limit nobody, and are surely meant for an agent that has none.

    One of an agent that has left stays, for when it is put back.
    """
    allocations = known.config.allocations
    without = [name for name in known.names if name not in allocations]
    for name, allocation in allocations.items():
        if name in known.names:
            continue
        if not paths.AGENT_NAME.match(name):
            yield Fault(f"/{name}", f'"{name}" is no name of an agent', nearest_agent(name, known.names))
        elif (other := meant(name, without)) and not allocation.may_be_absent:
            yield Fault(f"/{name}", f'there is no agent "{name}"', f'did you mean "{other}"? {_LATER}')


def wrong_with_agent(agent: Agent, known: Inventory) -> Iterator[Fault]:
    """Yield what an agent's grants name and nobody understands.

    A tool or an agent in a grant that is not there may come later, and grants nothing till then: it is only
    told of elsewhere, unless it is one that is there, with a slip.
    """
    for key, missing in missing_for_turn().items():
        if says_of_turns(agent.turn, key):
            yield Fault(f"/turn/{key}", f'nobody here reads "{key}": {missing}', "take the key out")
    if missing := missing_for_provider(known.provider_of(agent.name)):
        yield Fault("/model/key", missing, "take another model key")
    for model, (key, missing) in product(
        (agent.model.key, *agent.model.fallback), missing_for_model().items()
    ):
        entry = known.config.models.get(model)
        if entry and entry.provider not in NO_MODELS and says_of_model(entry, key):
            unread = f'nobody here reads "{key}" of the line "{model}" in {MODELS_FILE}: {missing}'
            yield Fault("/model", unread, "take the key out there")
    permissions, tools = agent.permissions, known.tool_names
    for index, name in enumerate(() if permissions.may_be_absent else permissions.tools):
        at = f"/permissions/tools/{index}"
        if not (why := known.why_no_tool(name)):
            continue
        if other := meant(name, sorted(tools)):
            gaps = f"{known.toolset.gaps}; " if known.toolset and known.toolset.gaps else ""
            yield Fault(at, f'no tool "{name}"', f'{gaps}did you mean "{other}"?')
        elif "*" in name or name.startswith(PREFIXES):
            yield Fault(at, why[0], f"{why[1]}; {_LATER}")
    for index, name in enumerate(() if permissions.may_be_absent else permissions.read_outboxes):
        at = f"/permissions/read_outboxes/{index}"
        if name in ("*", *known.names):
            continue
        if "*" in name:
            yield Fault(at, f'"{name}" is no name', 'names of agents, or "*" alone for all')
        elif other := meant(name, known.names):
            yield Fault(at, f'there is no agent "{name}"', f'did you mean "{other}"?')
    for index, grant in enumerate(permissions.read_memories):
        at, found = f"/permissions/read_memories/{index}", MEMORY_GRANT.fullmatch(grant)
        if found is None:
            yield Fault(at, f'"{grant}" names no memory', 'AGENT/KEY, such as "planner/goal" or "planner/*"')
        elif found["owner"] not in known.names and not permissions.may_be_absent:
            hint = nearest(found["owner"], sorted(known.names)) or _LATER
            yield Fault(at, f'there is no agent "{found["owner"]}"', hint)
    files = permissions.file_access
    for key, grants in (("allow_read", files.allow_read), ("allow_write", files.allow_write)):
        for index, grant in enumerate(grants):
            if why_not := why_no_grant(grant):
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                at = f"/permissions/file_access/{key}/{index}"
                yield Fault(at, f'"{grant}" grants nothing: {why_not}', hint)
