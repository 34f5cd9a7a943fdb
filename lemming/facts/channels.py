"""What a person should see to of channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lemming.agents import Survey
from lemming.facts.health import Trouble
from lemming.org.config import MODELS_FILE, Config
from lemming.org.organisation import OrgPath
from lemming.plugins.capabilities import why_missing

if TYPE_CHECKING:
    from lemming.capabilities.channels.states import ChannelState


def troubles_of_channels(base: OrgPath, survey: Survey, config: Config) -> list[Trouble]:
    """Return what a person should see to: channels that are out of reach, or cannot send something."""
    if not config.has_channels or why_missing("channels"):
        return []
    from lemming.capabilities.channels.states import channel_states

    return [trouble for state in channel_states(base, survey, config) for trouble in _troubles(state)]


def _troubles(channel: ChannelState) -> Iterator[Trouble]:
    see = f"`lemming channels` shows more; options are in {MODELS_FILE}"
    if channel.problem:
        yield Trouble(channel.agent, f"the channel cannot be used: {channel.problem}", "lemming validate")
    if channel.down_since:
        text = f"the channel is out of reach since {channel.down_since}: {channel.down_why}"
        yield Trouble(channel.agent, text, see)
    for one in channel.failing[:1]:
        text = f"{channel.waiting} to go out; {one['entry']} failed {one['attempts']} times: {one['why']}"
        yield Trouble(channel.agent, text, see)
