"""Tables of the capabilities that ship, by key, provider, tool, command and other names: nothing is loaded for them.

A capability is loaded only if an organisation uses it, by `lemming.kernel.plugins.capability_loader`.
`lemming.kernel.turn.turn_hooks` defines the hooks of a capability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from lemming.kernel.plugins.shipped_capabilities import JUDGES as JUDGES
from lemming.kernel.plugins.shipped_capabilities import LISTED as LISTED
from lemming.kernel.plugins.shipped_capabilities import SHIPPED as SHIPPED
from lemming.kernel.plugins.shipped_capabilities import STRATEGIES as STRATEGIES

Owned = Mapping[str, tuple[str, str]]
"""Names, each with the capability it belongs to and the import path of its code."""


@cache
def declared_keys(place: str) -> Owned:
    """Return the keys that capabilities have at a place in user files, such as "resume" or "gate.then"."""
    return {key: (spec.name, path) for spec in LISTED.values() for key, path in spec.keys_at(place).items()}


@cache
def provided(*kinds: str) -> Owned:
    """Return the items of these kinds by name; `CapabilitySpec` has the kinds. Of equal names the last kind counts."""
    return {
        name: (spec.name, path) for kind in kinds for spec in LISTED.values() for name, path in spec.items(kind).items()
    }


def paths_of(owned: Owned) -> dict[str, str]:
    """Return the import paths of a table, by name."""
    return {name: path for name, (_, path) in owned.items()}


RESUME_KEYS, ORG_KEYS = declared_keys("resume"), declared_keys("org")

REQUEST_RULES, DECISION_RULES = (provided("rules")[kind][0] for kind in ("requests", "decisions"))
"""The capabilities that decide about requests, and about what waits for persons. Records have their states by these names."""
GRANTING_KEYS = {tool: LISTED[name].keys_at("resume").keys() for tool, (name, _) in provided("tools").items()}
"""Keys of a resume, any of which may grant a tool in place of `permissions.tools`."""
PREFIXES = tuple(name for name in provided("tool_sources") if name.endswith("."))
"""Prefixes of tools that only a server can list."""

MODEL_PROVIDERS = provided("model_providers", "harness_providers")
SPEAKING_PROVIDERS = provided("channel_providers", "computed_providers")
"""Providers that speak for an agent: its capability is in use."""
POLICY_PROVIDERS = {**SPEAKING_PROVIDERS, **provided("harness_providers")}
"""Providers whose capability sets the defaults of an agent's turns."""
CHANNELS = frozenset(provided("channel_providers"))
"""The providers that ship which are channels."""
NO_MODELS = frozenset(provided("computed_providers"))
"""Providers without costs; their answers are not model calls."""
PROVIDERS = paths_of({**SPEAKING_PROVIDERS, **MODEL_PROVIDERS})
STRATEGIES_SHIPPED = paths_of(provided("strategies"))

USES = {name: spec.uses for name, spec in LISTED.items() if spec.uses}
USING_REQUESTS = frozenset(name for name, spec in LISTED.items() if REQUEST_RULES in spec.needs)
TEMPORARY_FILES = [file for spec in LISTED.values() for file, role in spec.files.items() if role == "temporary"]


def find_key_owners(owned: Owned, keys: Iterable[str]) -> list[str]:
    """Return the capabilities with a folder of their own whose keys are among `keys`, in the order of the list."""
    owners = {owned[key][0] for key in keys if key in owned}
    return [name for name in SHIPPED if name in owners] if owners else []


def find_asked_capabilities(asker: Any, payload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the capabilities needed by a request's payload, or by the team of the asking agent.

    After a handoff the payload has the payload of the first request as `asked`.
    """
    original = payload.get("asked") if "hands_on" in payload else None
    fields = {*payload, *(original if isinstance(original, dict) else ())}
    yield from (name for key, (name, _) in declared_keys("request").items() if key in fields)
    yield from find_member_capabilities(asker)


def find_member_capabilities(agent: Any) -> Iterator[str]:
    """Yield the capabilities with keys in the members of an agent's team."""
    members = agent.extensions["team"].ask_members if "team" in agent.extensions else ()
    for key, (name, _) in declared_keys("member").items():
        if any(key in member.extensions for member in members):
            yield name
