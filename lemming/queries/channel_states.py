"""The state of channels, as screens show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.agents import Survey
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.capability_loader import find_fact


@dataclass(frozen=True)
class ChannelStatus:
    """Status of one channel. `arrived`: messages turned into entries. `refused`: rejected messages.

    `delivered`: sent entries. `waiting`: entries still to send. `gave_up`: abandoned entries. `down_since` is
    empty while the other end is reachable.
    """

    agent: str
    provider: str
    to: str
    seen_to_by: str
    arrived: int
    refused: int
    delivered: int
    waiting: int
    gave_up: int
    down_since: str = ""
    down_why: str = ""
    retry_at: str = ""
    last_refused: list[dict[str, Any]] = field(default_factory=list)
    last_given_up: list[dict[str, Any]] = field(default_factory=list)
    failing: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""


def load_channel_statuses(base: OrgPath, survey: Survey, config: Config) -> list[ChannelStatus]:
    """Return the status of each channel, by agent name; none if the capability of channels is not installed."""
    load_statuses = find_fact("channels.statuses") if config.has_channels else None
    statuses: list[ChannelStatus] = load_statuses(base, survey, config) if load_statuses else []
    return statuses
