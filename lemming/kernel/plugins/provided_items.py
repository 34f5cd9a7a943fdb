"""Registration of the tools, providers, strategies, commands and facts that a plugin's capability provides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.plugins.capability_spec import PLUGIN_KINDS, PLUGIN_SCOPES, CapabilitySpec, load_object
from lemming.kernel.plugins.capability_table import paths_of, provided
from lemming.kernel.plugins.plugin_registry import Kind, collect_items, load_installed_plugins, register
from lemming.kernel.plugins.provider_errors import describe_exception


def find_registrations(spec: CapabilitySpec, defined_by: type[Any]) -> list[Callable[[], object]]:
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
            import_module("lemming.libraries.strategy_registry").strategy(name)(item)
        else:
            _register_provider(name, item, is_channel=kind == "channel_providers")


def _register_tool(name: str, item: Any) -> None:
    tool = item() if isinstance(item, type) else item
    import_module("lemming.kernel.tools").ToolRegistry.register(tool)
    registered_name = getattr(tool, "name", name)  # a function with @tool has its own
    if registered_name != name:
        raise ValueError(f'the tool "{registered_name}" must be provided under its own name, got "{name}"')


def _register_provider(name: str, provider: Any, *, is_channel: bool) -> None:
    if getattr(provider, "is_channel", False) != is_channel:
        kind = "model_providers" if is_channel else "channel_providers"
        raise ValueError(f'the provider "{name}" must be one of `{kind}`: see its attribute is_channel')
    import_module("lemming.kernel.providers").register_provider(name, provider)


def find_plugin_item(kind: Kind, name: str) -> Any:
    """Return a command or a fact of an installed plugin, or of one loaded by this process, or None.

    Raises `ConfigError` for an item that cannot be imported, and as `load_installed_plugins` does.
    """
    load_installed_plugins()
    value = collect_items(kind, None, _as_registered).get(name)
    if not isinstance(value, str):
        return value
    try:
        return load_object(value)
    except (ImportError, AttributeError, SyntaxError) as error:
        plugin = value.partition(":")[0].partition(".")[0]
        message = f'the {kind} "{name}" of the plugin {plugin} cannot be loaded: {redact(describe_exception(error))}'
        hint = f'install {plugin} again, or correct "{value}" in `provides` of its capability'
        raise ConfigError(message, where=value, hint=hint) from error


def _as_registered(registered: Mapping[str, Any]) -> Mapping[str, Any]:
    return registered
