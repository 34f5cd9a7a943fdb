"""What channels are to the engine: what running the organisation takes in, and sends out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemming.capabilities.channels.states import problems_of_channels
from lemming.kernel.access.bound import program
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.turn.seams import Capability


class ChannelsInUse(Capability):
    """Channels, which speak for agents whose model key has a provider that is one."""

    name = "channels"

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield what makes a channel talk to nobody."""
        if only is None and config.has_channels:
            yield from problems_of_channels(base, survey_agents(base), config)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield what channels reach outside the folder: those that speak for agents, and all commands."""
        used = {agent.model.key for agent in agents}
        for key, entry in config.models.items():
            if key in config.channel_keys and entry.provider == "command":
                yield program(org, f"{MODELS_FILE} {key}", entry.options)
            elif key in config.channel_keys & used:
                yield from _reaches(key, entry.provider, entry.options)


def _reaches(key: str, provider: str, options: Mapping[str, Any]) -> Iterator[Reach]:
    if provider == "folder" and Path(str(options.get("path"))).expanduser().is_absolute():
        yield Reach(f"takes files from {options['path']}, moves them, and writes answers there")
    elif provider == "http":
        yield Reach(
            f"listens for messages from others, under the model key {key}, while `lemming serve` runs"
        )
        if address := options.get("deliver_to"):
            shown = without_userinfo(str(address)).partition("?")[0]
            yield Reach(f"sends what is addressed to it to {shown}")
    elif provider == "mail":
        yield Reach(f"reads the mail of {options.get('address')} and sends mail in its name")
