"""Polls of channels without a server: one round, waited for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from lemming.capabilities.channels.channel_service import ServedChannelGateway
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation


def poll_once(org: Organisation, current_time: Callable[[], datetime], report: Callable[[Problem], object]) -> None:
    """Poll every channel not handled by the engine once, and wait for receipt and delivery."""
    channels = org.get_cache(ServedChannelGateway)
    channels.start_polls(load_config(org), survey_agents(org), current_time, report)
    channels.wait()
