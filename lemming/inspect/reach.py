"""What running an organisation does outside its folder, in sentences that a person can agree to."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lemming.agents import Agent
from lemming.config import Config
from lemming.errors import ConfigError
from lemming.mcp.settings import PREFIX, McpConfig, mcp_config, servers_named, variables_named
from lemming.models import ModelEntry
from lemming.organisation import OrgPath
from lemming.providers import is_channel
from lemming.redaction import without_userinfo
from lemming.tools import shipped_tools

_USUAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY")
_DOES_WHAT = "does what "
_OWN_MODULES = "lemming."


def reaches(base: OrgPath, config: Config, agents: Iterable[Agent]) -> list[str]:
    """Return in sentences what running the organisation does outside its folder, in a fixed order."""
    return list(
        dict.fromkeys(
            [
                *_owner(base),
                *_settings(base, config, agents),
                *_servers(base, agents),
                *_folders(base, agents),
            ]
        )
    )


def _owner(base: OrgPath) -> Iterator[str]:
    owner, us = os.stat(base).st_uid, os.geteuid()
    behind_sudo = us == 0 and os.environ.get("SUDO_UID") == str(owner)
    if owner != us and not behind_sudo:
        name = f"user {owner}"
        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        yield f"{_DOES_WHAT}{name}, who owns the folder, has written into it, with your rights"


def is_about_the_owner(sentence: str) -> bool:
    """Return whether a sentence of `reaches` says that the folder is another user's."""
    return sentence.startswith(_DOES_WHAT)


def _settings(base: OrgPath, config: Config, agents: Iterable[Agent]) -> Iterator[str]:
    for name in config.org.plugins:
        if not name.startswith(_OWN_MODULES):
            yield f"imports the Python module {name}"
    for file in _tool_files(base, config.org.tool_files):
        yield f"runs the Python code in {file}"
    if config.org.executor == "dask":
        yield f"has its calls made by the cluster at {config.org.executor_address}, which may run code here"
    for when, command in (("fails", config.org.on_failure), ("waits for a person", config.org.on_waiting)):
        if command:
            yield f"runs the program: {' '.join(command)}, when something {when}"
    if (
        config.org.shell.sandbox == "none" or config.org.http.hosts
    ):  # else no tool that ships reaches anything, and none is imported
        for agent in agents:
            for tool in shipped_tools(agent.permissions.tools):
                if does := tool.reaches_outside(config.org):
                    yield f"lets {agent.name} {does}"
    used = {agent.model.key for agent in agents} if config.has_channels else set()
    for key, entry in config.models.items():
        if is_channel(entry.provider, config.org.plugins):
            yield from _channel(key, entry) if key in used else ()
        else:
            yield from _model(entry)


def _servers(base: OrgPath, agents: Iterable[Agent]) -> Iterator[str]:
    """Yield which MCP servers are started or reached for agents."""
    patterns = {it for agent in agents for it in agent.permissions.tools if it.startswith(PREFIX)}
    config = mcp_config(base) if patterns else McpConfig({}, {})
    for name in servers_named(patterns, config.servers):
        server, named = config.servers[name], variables_named(config.servers[name])
        what = f", and what the variables {', '.join(named)} hold," if named else ""
        if server.command:
            yield f"runs the program: {' '.join(server.command)}, the MCP server {name}{what.rstrip(',')}"
        else:
            yield f"sends calls{what} to {server.url.partition('?')[0]}, the MCP server {name}"


def _tool_files(base: OrgPath, patterns: list[str]) -> list[str]:
    """Return the files whose code is loaded; the patterns themselves where they are no good."""
    if not patterns:
        return []
    from lemming.toolbox.functions.finding import find_files

    try:
        return find_files(Path(base), patterns)
    except ConfigError:
        return patterns


def _channel(key: str, entry: ModelEntry) -> Iterator[str]:
    """Yield what a channel reaches outside the folder."""
    options = entry.options
    if entry.provider == "folder" and Path(str(options.get("path"))).expanduser().is_absolute():
        yield f"takes files from {options['path']}, moves them, and writes answers there"
    elif entry.provider == "command":
        yield from _model(ModelEntry(provider="cli", options=options))
    elif entry.provider == "http":
        yield f"listens for messages from others, under the model key {key}, while `lemming serve` runs"
        if address := options.get("deliver_to"):
            yield f"sends what is addressed to it to {without_userinfo(str(address)).partition('?')[0]}"
    elif entry.provider == "mail":
        yield f"reads the mail of {options.get('address')} and sends mail in its name"


def _model(entry: ModelEntry) -> Iterator[str]:
    options = entry.options
    if entry.provider == "cli":
        words = options.get("command")
        command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
        rest = "".join(f", {key} {json.dumps(options[key])}" for key in ("env", "cwd") if options.get(key))
        yield f"runs the program: {command}{rest}"
        return
    named, address = options.get("api_key_env"), options.get("base_url") or options.get("host")
    if entry.provider == "ollama":
        named = "OLLAMA_API_KEY"
    shown = without_userinfo(str(address or "")).partition("?")[0]
    if address and not is_this_machine(str(address)):
        yield f"sends prompts{f', and what the variable {named} holds,' if named else ''} to {shown}"
    elif named not in (None, *_USUAL_KEYS):
        yield f"sends what the variable {named} holds to {shown or entry.provider}"


def is_this_machine(address: str) -> bool:
    """Return whether an address, with a scheme or none, is one of this machine's.

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


def _folders(base: OrgPath, agents: Iterable[Agent]) -> Iterator[str]:
    for agent in agents:
        files = agent.permissions.file_access
        for does, granted in (("read", files.allow_read), ("write", files.allow_write)):
            for folder in granted:
                if os.path.isabs(folder) and not Path(folder).resolve().is_relative_to(Path(base).resolve()):
                    yield f"lets {agent.name} {does} below {folder}"
