"""Registration of a plugin's capability, and of the tools, providers, strategies, commands and facts it provides."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.plugins.capability_spec import PLUGIN_KINDS, PLUGIN_SCOPES, CapabilitySpec, load_object
from lemming.kernel.plugins.capability_table import LISTED, paths_of, provided
from lemming.kernel.plugins.plugin_registry import register
from lemming.kernel.providers import register_provider
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.strategy_registry import strategy

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


def register_capability(kind: Any) -> Any:
    """Register a class as the capability of its name, in a plugin module. Usable as a decorator.

    What its `provides` declares is registered too.

    Raises:
        TypeError: A hook or an attribute is misspelled, or has a wrong type.
        ValueError: A shipped capability has the name, the name is invalid, settings are not a dataclass, or a plugin
            cannot provide an item.
    """
    instance = kind()
    if not hasattr(kind, "check_declaration"):
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} must be derived from lemming.ext.Capability")
    kind.check_declaration(instance)
    if not _NAME.match(instance.name):
        raise ValueError(f'a capability\'s name must be of a-z, 0-9, - and _, got "{instance.name}"')
    settings_types = (instance.org_settings_type, instance.agent_settings_type)
    if invalid := [item for item in settings_types if not dataclasses.is_dataclass(item)]:
        raise ValueError(f"settings of capability {instance.name} must be a dataclass, got {invalid[0]!r}")
    import_path = f"{kind.__module__}:{kind.__qualname__}"
    spec = CapabilitySpec(instance.name, import_path, after=instance.after, provides=instance.provides)
    registrations = _find_registrations(spec, kind)
    shipped = {name: listed.import_path for name, listed in LISTED.items()}
    register("capability", instance.name, instance, defined_by=kind, shipped=shipped)
    for register_item in registrations:
        register_item()
    return kind


def _find_registrations(spec: CapabilitySpec, defined_by: type[Any]) -> list[Callable[[], object]]:
    """Return the registrations of what a capability provides, to be called after all of them were checked.

    Raises `ValueError` for a kind that plugins cannot provide, and for a fact without the capability's name.
    """
    registrations: list[Callable[[], object]] = []
    for kind in spec.provides:
        if kind not in PLUGIN_KINDS:
            hint = did_you_mean(kind, PLUGIN_KINDS) or f"use one of {', '.join(PLUGIN_KINDS)}"
            raise ValueError(f'capability {spec.name}: a plugin cannot provide "{kind}"; {hint}')
        for name, value in spec.items(kind).items():
            if kind == "facts" and not name.startswith(f"{spec.name}."):
                raise ValueError(f'capability {spec.name}: the name of a fact must be "{spec.name}.NAME", got "{name}"')
            if kind == "checks":  # found in `provides` itself
                if name not in PLUGIN_SCOPES:
                    hint = did_you_mean(name, PLUGIN_SCOPES) or f"use one of {', '.join(PLUGIN_SCOPES)}"
                    raise ValueError(f'capability {spec.name}: a plugin has no checks of the scope "{name}"; {hint}')
                continue
            registrations.append(partial(_register_item, kind, name, value, defined_by))
    return registrations


def _register_item(kind: str, name: str, value: Any, defined_by: type[Any]) -> None:
    if kind in ("commands", "screens"):  # its module is loaded when somebody types it
        register("command", name, value, defined_by=defined_by, shipped=paths_of(provided("screens", "commands")))
    elif kind == "facts":
        register("fact", name, value, defined_by=defined_by, shipped={})
    else:
        item = load_object(value) if isinstance(value, str) else value
        if kind == "tools":
            _register_tool(name, item)
        elif kind == "strategies":
            strategy(name)(item)
        else:
            _register_provider(name, item, is_channel=kind == "channel_providers")


def _register_tool(name: str, item: Any) -> None:
    tool = item() if isinstance(item, type) else item
    ToolRegistry.register(tool)
    registered_name = getattr(tool, "name", name)  # a function with @tool has its own
    if registered_name != name:
        raise ValueError(f'the tool "{registered_name}" must be provided under its own name, got "{name}"')


def _register_provider(name: str, provider: Any, *, is_channel: bool) -> None:
    if getattr(provider, "is_channel", False) != is_channel:
        kind = "model_providers" if is_channel else "channel_providers"
        raise ValueError(f'the provider "{name}" must be one of `{kind}`: see its attribute is_channel')
    register_provider(name, provider)
