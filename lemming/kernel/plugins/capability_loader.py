"""Capabilities by name, loaded on use: shipped capabilities of the table, and capabilities of plugins.

The table: `lemming.kernel.plugins.capability_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.plugins.capability_spec import load_object
from lemming.kernel.plugins.capability_table import (
    LISTED,
    MODEL_PROVIDERS,
    PREFIXES,
    REQUEST_RULES,
    RESUME_KEYS,
    SPEAKING_PROVIDERS,
    Owned,
    declared_keys,
    find_key_owners,
    provided,
)
from lemming.kernel.plugins.plugin_registry import Kind, collect_items, find_unimported, load_installed_plugins
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.plugins.shipped_capabilities import find_missing_folder

Load = Callable[[], Any]
FOLDER = "lemming.capabilities."


def get_capability(name: str, plugins: Iterable[str] | None = None) -> Any:
    """Return a capability by name, created once. Raises `ConfigError` for an unknown name.

    `plugins`: plugins named by the organisation; None for all plugins of the process.
    """
    if name in LISTED:
        return _load_shipped(name)
    if (registered := plugin_capabilities(plugins).get(name)) is not None:
        return registered
    if can_be_unimported(name, plugins):
        raise ConfigError(
            f'capability "{name}" comes from a plugin\'s module, and this command imports none',
            hint="if it runs turns or replays them, see the module with `lemming trust`, and agree with `lemming trust --yes`",
        )
    raise ConfigError(
        f'capability "{name}" is not installed',
        hint="install its package, or add its module to plugins in config/org.json",
    )


def can_be_unimported(name: str, plugins: Iterable[str] | None) -> bool:
    """Return True if a capability may belong to a plugin module that is not imported."""
    return name not in LISTED and name not in plugin_capabilities(plugins) and bool(find_unimported([*(plugins or ())]))


def find_capability(name: str) -> Any:
    """Return a capability by name, or None for an unknown name. For read-only callers."""
    try:
        return get_capability(name)
    except ConfigError:
        return None


def missing_owner(owned: Owned, name: str) -> str:
    """Return the missing capability of a name in a table as text, or an empty text."""
    return missing_reason(owned[name][0]) if name in owned else ""


def find_fact(name: str) -> Any:
    """Return the function for a fact of a capability, such as "gates.rules", or None if it is not installed.

    Raises `KeyError` for a name that no capability declares, if the capability is one that ships.
    """
    if name.partition(".")[0] not in LISTED:
        return find_plugin_item("fact", name)
    return None if missing_reason(provided("facts")[name][0]) else load_object(provided("facts")[name][1])


def find_plugin_item(kind: Kind, name: str) -> Any:
    """Return a command or a fact of an installed plugin, or of one loaded by this process, or None.

    Raises `ConfigError` for an item that cannot be imported, and as `load_installed_plugins` does.
    """
    load_installed_plugins()
    value = collect_items(kind, None, dict).get(name)
    if not isinstance(value, str):
        return value
    try:
        return load_object(value)
    except (ImportError, AttributeError, SyntaxError) as error:
        plugin = value.partition(":")[0].partition(".")[0]
        message = f'the {kind} "{name}" of the plugin {plugin} cannot be loaded: {redact(describe_exception(error))}'
        hint = f'install {plugin} again, or correct "{value}" in `provides` of its capability'
        raise ConfigError(message, where=value, hint=hint) from error


def require_fact(name: str) -> Any:
    """Return the function for a fact of a capability. Raises `ConfigError` if the capability is not installed."""
    fact = find_fact(name) if name not in provided("facts") else load_item(*provided("facts")[name])
    if fact is None:
        raise ConfigError(f'no installed capability provides "{name}"', hint="install the package that provides it")
    return fact


def missing_for_tool(tool: str) -> str:
    """Return the missing capability of a tool as text, or an empty text."""
    return missing_owner(provided("tools"), tool) or missing_owner(provided("tool_sources"), _find_prefix(tool))


def _find_prefix(tool: str) -> str:
    return next((prefix for prefix in PREFIXES if tool.startswith(prefix)), "")


def installed_tools() -> dict[str, str]:
    """Return the import paths of the tools of installed capabilities, by name."""
    return {tool: import_path for tool, (name, import_path) in provided("tools").items() if not missing_reason(name)}


def server_capability(tool: str) -> str:
    """Return the capability with server tools of this name or pattern, or an empty text."""
    prefix = _find_prefix(tool)
    return provided("tool_sources")[prefix][0] if prefix else ""


def missing_for_provider(provider: str) -> str:
    """Return the missing capability of a provider as text, or an empty text."""
    return missing_owner(SPEAKING_PROVIDERS, provider) or missing_owner(MODEL_PROVIDERS, provider)


def missing_keys(place: str) -> Mapping[str, str]:
    """Return the keys of missing capabilities at a place, such as "turn", each with the missing capability as text."""
    return {key: missing for key, (name, _) in declared_keys(place).items() if (missing := missing_reason(name))}


@cache
def _load_shipped(name: str) -> Any:
    missing = missing_reason(name)
    if missing:
        raise ConfigError(missing, hint="install lemming-engine again")
    return load_object(LISTED[name].import_path)()


def capabilities_of_resume(agent: Any) -> list[str]:
    """Return the installed capabilities with keys in a resume."""
    return [name for name in find_key_owners(RESUME_KEYS, agent.extensions) if not missing_reason(name)]


@cache
def load_pricing() -> Any:
    """Return the function that computes a call's cost in dollars from model entry and tokens, or None."""
    return next(load_installed("pricing"), None)


def plugin_capabilities(plugins: Iterable[str] | None) -> Mapping[str, Any]:
    """Return the external capabilities by name, of the plugins and of installed packages.

    The same object until another capability is registered. Raises as `load_installed_plugins` does.
    """
    load_installed_plugins()
    return collect_items("capability", None if plugins is None else tuple(plugins), dict)


@cache
def missing_reason(name: str) -> str:
    """Return the reason a shipped capability, or a capability it needs, is missing, or an empty text."""
    return import_failure_reason(find_missing_folder(name))


def import_failure_reason(module: str) -> str:
    """Return the missing capability as text if a missing module belongs to one, else an empty text.

    >>> import_failure_reason("lemming.capabilities.plans.plan_run")
    'the capability "plans" is not installed: lemming.capabilities.plans is missing'
    """
    if not module.startswith(FOLDER):
        return ""
    name = module.removeprefix(FOLDER).partition(".")[0]
    folder = f"{FOLDER}{name}"
    name = next((spec.name for spec in LISTED.values() if spec.package == folder), name)
    return f'the capability "{name}" is not installed: {folder} is missing'


def sort_capabilities(names: Iterable[str], plugins: Iterable[str] | None = None) -> list[str]:
    """Sort capabilities so each follows those in its `after`; requests first, then by name.

    Raises `ConfigError` for a missing capability and for a cycle.

    >>> sort_capabilities(["windows", "approvals"])
    ['approvals', 'windows']
    """
    remaining, ordered, path = set(names), dict[str, None](), list[str]()

    def visit(name: str) -> None:
        if name in path:
            cycle = ", ".join(f'"{spec}"' for spec in path)
            raise ConfigError(f"capabilities must not come after each other in a circle: {cycle}")
        if name in remaining and name not in ordered:
            path.append(name)
            for predecessor in LISTED[name].after if name in LISTED else get_capability(name, plugins).after:
                visit(predecessor)
            path.pop()
            ordered[name] = None

    for name in sorted(remaining, key=lambda spec: (spec != REQUEST_RULES, spec)):  # abandoned names are dropped
        visit(name)
    return [*ordered]


def load_installed(kind: str) -> Iterator[Any]:
    """Yield the provided items of a kind that belong to installed capabilities, loaded."""
    yield from (load_object(import_path) for name, import_path in provided(kind).values() if not missing_reason(name))


def load_provided(kind: str, name: str) -> Any:
    """Return a provided item of a kind, loaded. Raises `ConfigError` if its capability is not installed."""
    return load_item(*provided(kind)[name])


def make_loaders(place: str) -> Mapping[str, Load]:
    """Return a loader for each key at a place in user files. It raises `ConfigError` for a missing capability."""
    return {key: partial(load_item, *owner_and_path) for key, owner_and_path in declared_keys(place).items()}


def load_item(name: str, import_path: str) -> Any:
    """Return an item of a capability, loaded. Raises `ConfigError` if the capability is not installed."""
    if missing := missing_reason(name):
        raise ConfigError(missing, hint="install lemming-engine again, or remove the key")
    return load_object(import_path)
