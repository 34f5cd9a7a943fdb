"""Tables of the capabilities that ship, by key, provider, tool, command and other names: nothing is loaded for them.

A capability is loaded only if an organisation uses it, by `lemming.kernel.plugins.capability_loader`.
`lemming.kernel.turn.turn_hooks` defines the hooks of a capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lemming.kernel.plugins.shipped_capabilities import JUDGES as JUDGES
from lemming.kernel.plugins.shipped_capabilities import LISTED as LISTED
from lemming.kernel.plugins.shipped_capabilities import SHIPPED as SHIPPED
from lemming.kernel.plugins.shipped_capabilities import STRATEGIES as STRATEGIES

Owned = Mapping[str, tuple[str, str]]
"""Names, each with the capability it belongs to and the import path of its code."""


def _index_keys(place: str) -> Owned:
    return {key: (spec.name, path) for spec in LISTED.values() for key, path in spec.keys_at(place).items()}


def _index_items(*kinds: str) -> Owned:
    return {
        name: (spec.name, path) for kind in kinds for spec in LISTED.values() for name, path in spec.items(kind).items()
    }


def paths_of(owned: Owned) -> dict[str, str]:
    """Return the import paths of a table, by name."""
    return {name: path for name, (_, path) in owned.items()}


RESUME_KEYS, ORG_KEYS, MEMBER_KEYS = _index_keys("resume"), _index_keys("org"), _index_keys("member")
TURN_KEYS, MODEL_KEYS, SCHEDULE_KEYS = _index_keys("turn"), _index_keys("model"), _index_keys("schedule")
GATE_ACTIONS, REQUEST_KEYS = _index_keys("gate.then"), _index_keys("request")

REQUEST_RULES, DECISION_RULES = (_index_items("rules")[kind][0] for kind in ("requests", "decisions"))
"""The capabilities that decide about requests, and about what waits for persons. Records have their states by these names."""
TOOLS = _index_items("tools")
CALL_REVIEWS = _index_items("call_reviews")
GRANTING_KEYS = {tool: LISTED[name].keys_at("resume").keys() for tool, (name, _) in TOOLS.items()}
"""Keys of a resume, any of which may grant a tool in place of `permissions.tools`."""
TOOL_SOURCES = _index_items("tool_sources")
"""Sources of an organisation's own tools, by prefix or by key of the settings."""
PREFIXES = tuple(name for name in TOOL_SOURCES if name.endswith("."))
"""Prefixes of tools that only a server can list."""

MODEL_PROVIDERS = _index_items("model_providers", "harness_providers")
SPEAKING_PROVIDERS = _index_items("channel_providers", "computed_providers")
"""Providers that speak for an agent: its capability is in use."""
HARNESS_PROVIDERS = _index_items("harness_providers")
POLICY_PROVIDERS = {**SPEAKING_PROVIDERS, **HARNESS_PROVIDERS}
"""Providers whose capability sets the defaults of an agent's turns."""
CHANNELS = frozenset(_index_items("channel_providers"))
"""The providers that ship which are channels."""
NO_MODELS = frozenset(_index_items("computed_providers"))
"""Providers without costs; their answers are not model calls."""
PROVIDERS = paths_of({**SPEAKING_PROVIDERS, **MODEL_PROVIDERS})
PRICING = _index_items("pricing")
STRATEGIES_SHIPPED = paths_of(_index_items("strategies"))

COMMANDS = _index_items("screens", "commands")
"""Commands of capabilities, each with the capability and the code. A screen is a command, unless a command has its name."""
SCREENS = _index_items("screens")
"""Screens of capabilities, each with the capability and the declaration."""
FACTS = _index_items("facts")
"""Facts of capabilities for screens, each with the capability and the function."""
FORMATS = _index_items("formats")
RECORDED = _index_items("records")
"""Record types of capabilities, each with the capability and the class."""
EXECUTORS = _index_items("executors")
"""The values of `executor` by which others make the model calls."""
FUNCTION_TOOLS, SERVER_PROFILES = _index_items("function_tools"), _index_items("server_profiles")
GATEWAYS = _index_items("gateways")
TICK_CAPABILITIES = _index_items("in_ticks").keys()
CALL_BATCHERS, FOLDER_MOVES = _index_items("call_batchers"), _index_items("folder_moves")
REPLY_HOLDS, PERMISSIONS = _index_items("reply_holds"), _index_items("permissions")

CHECKS: dict[str, Owned] = {
    scope: {
        spec.name: (spec.name, spec.items("checks")[scope]) for spec in LISTED.values() if scope in spec.items("checks")
    }
    for scope in ("settings", "resume", "agent", "organisation", "turn")
}
"""Functions that yield problems, by scope and capability: `lemming.kernel.tick.validation.checks`."""

USES = {name: spec.uses for name, spec in LISTED.items() if spec.uses}
USING_REQUESTS = frozenset(name for name, spec in LISTED.items() if REQUEST_RULES in spec.needs)
TEMPORARY_FILES = [file for spec in LISTED.values() for file, role in spec.files.items() if role == "temporary"]


def find_key_owners(owned: Owned, keys: Iterable[str]) -> list[str]:
    """Return the capabilities with a folder of their own whose keys are among `keys`, in the order of the list."""
    owners = {owned[key][0] for key in keys if key in owned}
    return [name for name in SHIPPED if name in owners] if owners else []


def find_asked_capabilities(asker: Any, payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the capabilities that a request needs by its payload, or by the team of the agent that asks.

    A request that was handed on holds the payload of the first one as `asked`.
    """
    original = payload.get("asked") if "hands_on" in payload else None
    fields = {*payload, *(original if isinstance(original, dict) else ())}
    yield from (name for key, (name, _) in REQUEST_KEYS.items() if key in fields)
    yield from find_member_capabilities(asker)


def find_member_capabilities(agent: Any) -> Iterator[str]:
    """Yield the capabilities with keys in the members of an agent's team."""
    members = agent.extensions["team"].ask_members if "team" in agent.extensions else ()
    yield from (name for key, (name, _) in MEMBER_KEYS.items() if any(key in member.extensions for member in members))
