"""Permissions an organisation requires outside its folder, as sentences a person can agree to."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import load_provided, missing_for_provider, missing_reason
from lemming.kernel.plugins.capability_table import (
    NO_MODELS,
    PREFIXES,
    declared_keys,
    find_key_owners,
    find_member_capabilities,
    provided,
)
from lemming.kernel.tools import iter_shipped_tools
from lemming.libraries.permission_bindings import code_permission, digest_command, digest_plugin

_USUAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY")
_OWN_MODULES = "lemming."
_PROVIDER_KINDS = ("channel_providers", "computed_providers", "model_providers", "harness_providers")


def list_required_permissions(
    base: OrgPath, config: Config, agents: Iterable[Agent], *, servers: Collection[str] = ()
) -> list[RequiredPermission]:
    """Return the permissions required to run the organisation, in a fixed order, without duplicate sentences.

    `servers`: MCP servers requested by a person, in addition to servers that agents may call.
    """
    agents = list(agents)
    permissions = dict[str, RequiredPermission]()
    for permission in (
        *_list_owner_permissions(base),
        *_list_settings_permissions(base, config, agents),
        *_list_capability_permissions(Organisation.from_path(base), config, agents, servers),
        *_list_folder_permissions(base, agents),
    ):
        earlier = permissions.get(permission.does, permission)
        bound_to = {**earlier.bound_to, **permission.bound_to}
        is_needed = earlier.needs_agreement or permission.needs_agreement
        permissions[permission.does] = RequiredPermission(permission.does, bound_to, is_needed)
    return list(permissions.values())


def _list_owner_permissions(base: OrgPath) -> Iterator[RequiredPermission]:
    owner, own_user = os.stat(base).st_uid, os.geteuid()
    is_owner_sudo = own_user == 0 and os.environ.get("SUDO_UID") == str(owner)
    if owner != own_user and not is_owner_sudo:
        name = f"user {owner}"
        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        does = f"does what {name}, who owns the folder, has written into it, with your rights"
        yield RequiredPermission(does, needs_agreement=True)


def _list_settings_permissions(base: OrgPath, config: Config, agents: Iterable[Agent]) -> Iterator[RequiredPermission]:
    settings = config.org
    for name in settings.plugins:
        if not name.startswith(_OWN_MODULES):
            yield code_permission(f"imports the Python module {name}", digest_plugin(base, name))
    for key, event in (("on_failure", "fails"), ("on_waiting", "waits for a person")):
        if command := getattr(settings, key):
            digest = digest_command(base, f"{paths.ORG_FILE} {key}", command, command, base)
            yield code_permission(f"runs the program: {' '.join(command)}, when something {event}", digest)
    if not settings.extensions.keys().isdisjoint(("http", "shell")):  # otherwise no shipped tool has side effects
        for agent in agents:
            for tool in iter_shipped_tools(agent.permissions.tools):
                if does := tool.describe_side_effects(settings):
                    yield RequiredPermission(f"lets {agent.name} {does}", needs_agreement=tool.tool_class == "execute")
    for key, entry in config.models.items():
        if key not in config.channel_keys:
            yield from _list_model_permissions(entry)


def _list_capability_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions required by the installed capabilities in use."""
    used = {*_find_used_capabilities(config, agents, servers)}
    for name in provided("permissions"):
        if name in used and not missing_reason(name):
            yield from load_provided("permissions", name)(org, config, agents, servers)


def _find_used_capabilities(config: Config, agents: Sequence[Agent], servers: Collection[str]) -> Iterator[str]:
    """Yield the capabilities that settings, model entries, resumes or granted tools name."""
    model_keys = {agent.model.key for agent in agents}
    for key, entry in config.models.items():
        if key in model_keys or entry.provider not in NO_MODELS:  # two such entries are there by default
            yield provided(*_PROVIDER_KINDS).get(entry.provider, ("", ""))[0]
    yield provided("executors").get(config.org.executor, ("", ""))[0]
    yield from find_key_owners(declared_keys("org"), config.org.extensions)
    for agent in agents:
        yield from find_key_owners(declared_keys("resume"), agent.extensions)
        yield from find_member_capabilities(agent)
    tools = [tool for agent in agents for tool in agent.permissions.tools]
    for source, (name, _) in provided("tool_sources").items():
        is_granted = source in PREFIXES and (servers or any(tool.startswith(source) for tool in tools))
        if is_granted or (source not in PREFIXES and getattr(config.org, source)):
            yield name


def _list_model_permissions(entry: ModelEntry) -> Iterator[RequiredPermission]:
    options = entry.options
    key_variable, address = options.get("api_key_env"), options.get("base_url") or options.get("host")
    usual_keys = {None, *_USUAL_KEYS}
    if entry.provider == "ollama":
        key_variable = "OLLAMA_API_KEY"
    elif not missing_for_provider(entry.provider):
        from lemming.libraries.compatible_servers import SERVERS  # only imported for an entry that may need it

        if server := SERVERS.get(entry.provider):
            key_variable = server.key_variable(address, key_variable)
            usual_keys.add(server.key_env)
    display_address = strip_userinfo(str(address or "")).partition("?")[0]
    if address and not is_this_machine(str(address)):
        key_text = f", and what the variable {key_variable} holds," if key_variable else ""
        yield RequiredPermission(f"sends prompts{key_text} to {display_address}")
    elif key_variable not in usual_keys:
        yield RequiredPermission(f"sends what the variable {key_variable} holds to {display_address or entry.provider}")


def is_this_machine(address: str) -> bool:
    """Return True if an address, with or without a scheme, belongs to this machine.

    >>> is_this_machine("http://127.0.0.1:8000/v1"), is_this_machine("gpu:11434")
    (True, False)
    >>> is_this_machine("http://127.far.example/?://127.0.0.1")
    False
    """
    try:
        name = urlsplit(address if "://" in address else f"//{address}").hostname or "localhost"
    except ValueError:
        return False
    try:
        number = ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return number.is_loopback or number.is_unspecified


def _list_folder_permissions(base: OrgPath, agents: Iterable[Agent]) -> Iterator[RequiredPermission]:
    for agent in agents:
        files = agent.permissions.file_access
        for does, folders in (("read", files.allow_read), ("write", files.allow_write)):
            for folder in folders:
                if os.path.isabs(folder) and not Path(folder).resolve().is_relative_to(Path(base).resolve()):
                    sentence = f"lets {agent.name} {does} below {folder}"
                    yield RequiredPermission(sentence, needs_agreement=does == "write")
