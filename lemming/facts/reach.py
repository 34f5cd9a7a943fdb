"""What running an organisation does outside its folder, in sentences that a person can agree to."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from lemming.kernel.access.bound import code, of_command, of_module
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import capability, why_missing
from lemming.kernel.plugins.shipped import HOSTED, LISTED, MODEL_SERVERS
from lemming.kernel.tools import shipped_tools

_USUAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY")
_OWN_MODULES = "lemming."


def reaches(
    base: OrgPath, config: Config, agents: Iterable[Agent], *, servers: Collection[str] = ()
) -> list[Reach]:
    """Return what running the organisation does outside its folder, in a fixed order, each sentence once.

    `servers`: MCP servers that a person asks for by name, beside those that agents may call.
    """
    agents = list(agents)
    found = dict[str, Reach]()
    for reach in (
        *_owner(base),
        *_settings(base, config, agents),
        *_capabilities(Organisation.at(base), config, agents, servers),
        *_folders(base, agents),
    ):
        known = found.get(reach.does, reach)
        found[reach.does] = Reach(
            reach.does, {**known.bound_to, **reach.bound_to}, known.needs_agreement or reach.needs_agreement
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
            f"does what {name}, who owns the folder, has written into it, with your rights",
            needs_agreement=True,
        )


def _settings(base: OrgPath, config: Config, agents: Iterable[Agent]) -> Iterator[Reach]:
    settings = config.org
    for name in settings.plugins:
        if not name.startswith(_OWN_MODULES):
            yield code(f"imports the Python module {name}", of_module(base, name))
    for key, when in (("on_failure", "fails"), ("on_waiting", "waits for a person")):
        if command := getattr(settings, key):
            place = f"{paths.ORG_FILE} {key}"
            yield code(
                f"runs the program: {' '.join(command)}, when something {when}",
                of_command(base, place, command, command, base),
            )
    if not settings.further.keys().isdisjoint(("http", "shell")):  # else no tool that ships reaches anything
        for agent in agents:
            for tool in shipped_tools(agent.permissions.tools):
                if does := tool.reaches_outside(settings):
                    yield Reach(f"lets {agent.name} {does}", needs_agreement=tool.tool_class == "execute")
    for key, entry in config.models.items():
        if key not in config.channel_keys:
            yield from _model(entry)


def _capabilities(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[Reach]:
    """Yield what capabilities do outside the folder, of those that are here."""
    for name, it in LISTED.items():
        may_reach = it.reaches and (it.reaches(config, agents) or (it.prefix and servers))
        if may_reach and not why_missing(name):
            yield from capability(name).reaches(org, config, agents, servers)


def _model(entry: ModelEntry) -> Iterator[Reach]:
    options = entry.options
    named, address = options.get("api_key_env"), options.get("base_url") or options.get("host")
    usual = {None, *_USUAL_KEYS}
    if entry.provider == "ollama":
        named = "OLLAMA_API_KEY"
    elif entry.provider in MODEL_SERVERS and not why_missing(HOSTED):
        from lemming.capabilities.hosted.servers import SERVERS  # where a line is of one

        host = SERVERS[entry.provider]
        named = host.key_variable(address, named)
        usual.add(host.key_env)
    shown = without_userinfo(str(address or "")).partition("?")[0]
    if address and not is_this_machine(str(address)):
        yield Reach(f"sends prompts{f', and what the variable {named} holds,' if named else ''} to {shown}")
    elif named not in usual:
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
                    yield Reach(f"lets {agent.name} {does} below {folder}", needs_agreement=does == "write")
