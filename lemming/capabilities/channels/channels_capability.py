"""Capability of channels: receiving and delivering messages while the organisation runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemming.ext import Capability
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.permission_bindings import program_permission


class ChannelsCapability(Capability):
    """Channels of the agents with a channel provider as model."""

    name = "channels"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permissions required by channels of agents, and by all command channels."""
    used = {agent.model.key for agent in agents}
    for key, entry in config.models.items():
        if key in config.channel_keys and entry.provider == "command":
            yield program_permission(org, f"{paths.MODELS_FILE} {key}", entry.options)
        elif key in config.channel_keys & used:
            yield from _channel_permissions(key, entry.provider, entry.options)


def _channel_permissions(key: str, provider: str, options: Mapping[str, Any]) -> Iterator[RequiredPermission]:
    if provider == "folder" and Path(str(options.get("path"))).expanduser().is_absolute():
        yield RequiredPermission(f"takes files from {options['path']}, moves them, and writes answers there")
    elif provider == "http":
        yield RequiredPermission(
            f"listens for messages from others, under the model key {key}, while `lemming channels serve` runs"
        )
        if address := options.get("deliver_to"):
            safe_address = strip_userinfo(str(address)).partition("?")[0]
            yield RequiredPermission(f"sends what is addressed to it to {safe_address}")
    elif provider == "mail":
        yield RequiredPermission(f"reads the mail of {options.get('address')} and sends mail in its name")
