"""How the channels of an organisation stand: what came, what went out, what is wrong. Reads files only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.channels.addressed import Addressed
from lemming.capabilities.channels.between import make_channel
from lemming.capabilities.channels.channel import Channel
from lemming.capabilities.channels.log import ChannelLogs, Traffic
from lemming.kernel.agents import Agent, Survey, nearest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import channels_in

SHOWN_OF_EACH = 5


@dataclass(frozen=True)
class ChannelState:
    """One channel. `arrived`: messages that became entries; `refused`: that became none. `delivered` entries
    went out, `waiting` are to go out, `gave_up` never will. `down_since` is empty while it can be reached.
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


def channel_states(base: OrgPath, survey: Survey, config: Config) -> list[ChannelState]:
    """Return how each channel stands, by the names of their agents."""
    if not config.has_channels:
        return []
    org = Organisation.at(base)
    tick = load_tick(org)
    agents = [survey.agents[name] for name in sorted(channels_in(survey, config))]
    return [_state_of(org, survey, config, agent, tick) for agent in agents]


def _state_of(org: Organisation, survey: Survey, config: Config, agent: Agent, tick: int) -> ChannelState:
    traffic = org.own(ChannelLogs).of(agent.name).traffic
    channel, problem = _channel_of(config, agent, org)
    sends = channel is None or channel.sends
    waiting = org.own(Addressed).pending(agent, survey, tick) if sends else []
    return ChannelState(
        agent=agent.name,
        provider=config.models[agent.model.key].provider,
        to=channel.to if channel else "",
        seen_to_by=channel.seen_to_by if channel else "",
        arrived=traffic.counts["received"],
        refused=traffic.counts["refused"],
        delivered=traffic.counts["delivered"],
        waiting=len(waiting),
        gave_up=traffic.counts["gave_up"],
        down_since=traffic.down_since,
        down_why=traffic.down_why,
        retry_at=traffic.retry_at.isoformat() if traffic.retry_at else "",
        last_refused=traffic.refused[-SHOWN_OF_EACH:],
        last_given_up=traffic.gave_up[-SHOWN_OF_EACH:],
        failing=_failing(traffic),
        problem=problem,
    )


def _failing(traffic: Traffic) -> list[dict[str, Any]]:
    tried = list(traffic.tried.items())[:SHOWN_OF_EACH]
    return [{"entry": key, "attempts": it.attempts, "why": it.why} for key, it in tried]


def _channel_of(config: Config, agent: Agent, org: Organisation) -> tuple[Channel | None, str]:
    entry = config.models[agent.model.key]
    try:
        return make_channel(entry.provider, entry.options, org.base, config), ""
    except LemmingError as error:
        return None, error.message


def problems_of_channels(base: OrgPath, survey: Survey, config: Config) -> Iterator[Problem]:
    """Yield what makes a channel talk to nobody: an agent that is not there, a permission that lacks."""
    org = Organisation.at(base)
    for name in sorted(channels_in(survey, config)) if config.has_channels else ():
        agent = survey.agents[name]
        channel, _ = _channel_of(config, agent, org)
        if channel is None:
            continue  # told of the model key already
        if not channel.to:
            if not any(other.may_read(name) for other in survey.agents.values()):
                yield _lacks(
                    name, "/model/key", f"nobody may read {name}: what arrives is seen by nobody", ""
                )
            continue
        if channel.to not in survey.agents:
            hint = nearest_agent(channel.to, [*survey.agents])
            pointer = f"/{agent.model.key}/options/to"
            yield Problem(f'there is no agent "{channel.to}"', MODELS_FILE, pointer=pointer, hint=hint)
            continue
        if not survey.agents[channel.to].may_read(name):
            hint = f'add "{name}" to its read_outboxes'
            message = f"{channel.to} may not read {name}: it sees nothing of what arrives"
            yield _lacks(channel.to, "/permissions/read_outboxes", message, hint)
        if not agent.may_read(channel.to):
            hint = f'add "{channel.to}" to its read_outboxes'
            message = f"{name} may not read {channel.to}: its answers do not go out"
            yield _lacks(name, "/permissions/read_outboxes", message, hint)


def _lacks(agent: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, paths.resume_file(agent), pointer=pointer, hint=hint, severity="warning")
