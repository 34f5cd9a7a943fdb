"""What running an organisation does outside its folder, in sentences that a person can agree to."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lemming.access.trust import Reach
from lemming.agents import Agent
from lemming.base import paths
from lemming.base.model_servers import SERVERS
from lemming.capabilities.mcp.settings import (
    PREFIX,
    McpConfig,
    mcp_config,
    servers_named,
    variables_named,
)
from lemming.errors import ConfigError
from lemming.facts import bound
from lemming.facts.judge_checks import programs_that_judge
from lemming.org.config import MODELS_FILE, Config
from lemming.org.models import ModelEntry
from lemming.org.organisation import OrgPath
from lemming.providers import is_channel
from lemming.redaction import without_userinfo
from lemming.tools import shipped_tools

_OF_SERVERS = (server.key_env for server in SERVERS.values())
_USUAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY", *filter(None, _OF_SERVERS))
_OWN_MODULES = "lemming."


def reaches(
    base: OrgPath, config: Config, agents: Iterable[Agent], *, servers: Iterable[str] = ()
) -> list[Reach]:
    """Return what running the organisation does outside its folder, in a fixed order, each sentence once.

    `servers`: MCP servers that a person asks for by name, beside those that agents may call.
    """
    agents = list(agents)
    found = dict[str, Reach]()
    for reach in (
        *_owner(base),
        *_settings(base, config, agents),
        *_servers(base, agents, servers),
        *programs_that_judge(base, config, agents),
        *_folders(base, agents),
    ):
        known = found.get(reach.does, reach)
        found[reach.does] = Reach(
            reach.does, {**known.bound_to, **reach.bound_to}, known.needs_leave or reach.needs_leave
        )
    return list(found.values())


def _owner(base: OrgPath) -> Iterator[Reach]:
    owner, us = os.stat(base).st_uid, os.geteuid()
    behind_sudo = us == 0 and os.environ.get("SUDO_UID") == str(owner)
    if owner != us and not behind_sudo:
        name = f"user {owner}"
        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        yield Reach(
            f"does what {name}, who owns the folder, has written into it, with your rights", needs_leave=True
        )


def _settings(base: OrgPath, config: Config, agents: Iterable[Agent]) -> Iterator[Reach]:
    settings = config.org
    for name in settings.plugins:
        if not name.startswith(_OWN_MODULES):
            yield _code(f"imports the Python module {name}", bound.of_module(base, name))
    yield from _tool_files(base, settings.tool_files)
    if settings.executor == "dask":
        yield _code(
            f"has its calls made by the cluster at {settings.executor_address}, which may run code here"
        )
    for key, when in (("on_failure", "fails"), ("on_waiting", "waits for a person")):
        if command := getattr(settings, key):
            place = f"{paths.ORG_FILE} {key}"
            yield _code(
                f"runs the program: {' '.join(command)}, when something {when}",
                bound.of_command(base, place, command, command, base),
            )
    if (
        settings.shell.sandbox == "none" or settings.http.hosts
    ):  # else no tool that ships reaches anything, and none is imported
        for agent in agents:
            for tool in shipped_tools(agent.permissions.tools):
                if does := tool.reaches_outside(settings):
                    yield Reach(f"lets {agent.name} {does}", needs_leave=tool.tool_class == "execute")
    used = {agent.model.key for agent in agents} if config.has_channels else set()
    for key, entry in config.models.items():
        if is_channel(entry.provider, settings.plugins):
            if key in used or entry.provider == "command":
                yield from _channel(base, key, entry)
        else:
            yield from _model(base, key, entry)


def _code(does: str, bound_to: Mapping[str, str] | None = None) -> Reach:
    """Return something that runs code of the organisation's own: it waits for leave."""
    return Reach(does, bound_to or {}, needs_leave=True)


def _servers(base: OrgPath, agents: Iterable[Agent], asked_for: Iterable[str]) -> Iterator[Reach]:
    """Yield which MCP servers are started or reached for agents."""
    patterns = {it for agent in agents for it in agent.permissions.tools if it.startswith(PREFIX)}
    config = mcp_config(base) if patterns or asked_for else McpConfig({}, {})
    named_by_agents = servers_named(patterns, config.servers)
    for name in dict.fromkeys([*named_by_agents, *(it for it in asked_for if it in config.servers)]):
        server, named = config.servers[name], variables_named(config.servers[name])
        what = f", and what the variables {', '.join(named)} hold," if named else ""
        if server.command:
            run = {key: getattr(server, key) for key in ("command", "cwd", "env", "variables")}
            yield _code(
                f"runs the program: {' '.join(server.command)}, the MCP server {name}{what.rstrip(',')}",
                bound.of_command(base, f"{config.files[name]} {name}", run, server.command, server.cwd),
            )
        else:
            yield Reach(f"sends calls{what} to {server.url.partition('?')[0]}, the MCP server {name}")


def _tool_files(base: OrgPath, patterns: list[str]) -> Iterator[Reach]:
    """Yield which files' code is loaded; the patterns themselves where they are no good."""
    if not patterns:
        return
    from lemming.capabilities.toolbox.functions.finding import find_files, with_neighbours

    try:
        for file in find_files(Path(base), patterns)[0]:
            yield _code(
                f"runs the Python code in {file}", bound.of_files(base, with_neighbours(Path(base), [file]))
            )
    except ConfigError:
        for pattern in patterns:
            yield _code(f"runs the Python code in {pattern}")


def _channel(base: OrgPath, key: str, entry: ModelEntry) -> Iterator[Reach]:
    """Yield what a channel reaches outside the folder."""
    options = entry.options
    if entry.provider == "folder" and Path(str(options.get("path"))).expanduser().is_absolute():
        yield Reach(f"takes files from {options['path']}, moves them, and writes answers there")
    elif entry.provider == "command":
        yield _program(base, key, entry)
    elif entry.provider == "http":
        yield Reach(
            f"listens for messages from others, under the model key {key}, while `lemming serve` runs"
        )
        if address := options.get("deliver_to"):
            yield Reach(
                f"sends what is addressed to it to {without_userinfo(str(address)).partition('?')[0]}"
            )
    elif entry.provider == "mail":
        yield Reach(f"reads the mail of {options.get('address')} and sends mail in its name")


def _program(base: OrgPath, key: str, entry: ModelEntry) -> Reach:
    options = entry.options
    words = options.get("command")
    command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
    rest = "".join(f", {name} {json.dumps(options[name])}" for name in ("env", "cwd") if options.get(name))
    run = {name: options.get(name) for name in ("command", "cwd", "env")}
    return _code(
        f"runs the program: {command}{rest}",
        bound.of_command(base, f"{MODELS_FILE} {key}", run, words, options.get("cwd")),
    )


def _model(base: OrgPath, key: str, entry: ModelEntry) -> Iterator[Reach]:
    options = entry.options
    if entry.provider == "cli":
        yield _program(base, key, entry)
        return
    named, address = options.get("api_key_env"), options.get("base_url") or options.get("host")
    if entry.provider == "ollama":
        named = "OLLAMA_API_KEY"
    elif host := SERVERS.get(entry.provider):
        named = host.key_variable(address, named)
    shown = without_userinfo(str(address or "")).partition("?")[0]
    if address and not is_this_machine(str(address)):
        yield Reach(f"sends prompts{f', and what the variable {named} holds,' if named else ''} to {shown}")
    elif named not in (None, *_USUAL_KEYS):
        yield Reach(f"sends what the variable {named} holds to {shown or entry.provider}")


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


def _folders(base: OrgPath, agents: Iterable[Agent]) -> Iterator[Reach]:
    for agent in agents:
        files = agent.permissions.file_access
        for does, granted in (("read", files.allow_read), ("write", files.allow_write)):
            for folder in granted:
                if os.path.isabs(folder) and not Path(folder).resolve().is_relative_to(Path(base).resolve()):
                    yield Reach(f"lets {agent.name} {does} below {folder}", needs_leave=does == "write")
