"""Status of an organisation's channels: received, delivered and failed messages. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.capabilities.channels.channel import Channel
from lemming.capabilities.channels.channel_gateway import make_channel
from lemming.capabilities.channels.channel_log import ChannelHistory, ChannelLogs
from lemming.capabilities.channels.outgoing_entries import AddressedEntries
from lemming.ext import CheckSubject, LemmingError, Problem, load_tick, make_warning, resume_file
from lemming.kernel.agents import Agent, Survey, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.queries.channel_states import ChannelStatus

MAX_SHOWN = 5


def get_channel_statuses(base: OrgPath, survey: Survey, config: Config) -> list[ChannelStatus]:
    """Return the status of each channel, by agent name."""
    if not config.has_channels:
        return []
    org = Organisation.from_path(base)
    tick = load_tick(org)
    agents = [survey.agents[name] for name in sorted(survey.find_channels(config))]
    return [_channel_status(org, survey, config, agent, tick) for agent in agents]


def _channel_status(org: Organisation, survey: Survey, config: Config, agent: Agent, tick: int) -> ChannelStatus:
    traffic = org.get_cache(ChannelLogs).get_log(agent.name).history
    channel, problem = _make_channel(config, agent, org)
    sends = channel is None or channel.sends
    waiting = org.get_cache(AddressedEntries).find_pending(agent, survey, tick) if sends else []
    return ChannelStatus(
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
        last_refused=traffic.refused[-MAX_SHOWN:],
        last_given_up=traffic.gave_up[-MAX_SHOWN:],
        failing=_failed_deliveries(traffic),
        problem=problem,
    )


def _failed_deliveries(traffic: ChannelHistory) -> list[dict[str, Any]]:
    failed = list(traffic.failed_deliveries.items())[:MAX_SHOWN]
    return [{"entry": key, "attempts": delivery.attempts, "why": delivery.reason} for key, delivery in failed]


def _make_channel(config: Config, agent: Agent, org: Organisation) -> tuple[Channel | None, str]:
    entry = config.models[agent.model.key]
    try:
        return make_channel(entry.provider, entry.options, org.base, config), ""
    except LemmingError as error:
        return None, error.message


def find_channel_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield the mistakes that disconnect a channel: a missing agent or permission."""
    org, config, survey = subject.org, subject.config, survey_agents(subject.org)
    is_used = config.has_channels and subject.only is None
    for name in sorted(survey.find_channels(config)) if is_used else ():
        agent = survey.agents[name]
        channel, _ = _make_channel(config, agent, org)
        if channel is None:
            continue  # told of the model key already
        if not channel.to:
            if not any(other.may_read(name) for other in survey.agents.values()):
                yield make_warning(
                    f"no agent may read {name}: incoming messages are not seen", "/model/key", "", resume_file(name)
                )
            continue
        if channel.to not in survey.agents:
            hint = suggest_agent(channel.to, [*survey.agents])
            pointer = f"/{agent.model.key}/options/to"
            yield Problem(f'there is no agent "{channel.to}"', paths.MODELS_FILE, pointer=pointer, hint=hint)
            continue
        if not survey.agents[channel.to].may_read(name):
            hint = f'add "{name}" to its read_outboxes'
            message = f"{channel.to} may not read {name}: it does not see incoming messages"
            yield make_warning(message, "/permissions/read_outboxes", hint, resume_file(channel.to))
        if not agent.may_read(channel.to):
            hint = f'add "{channel.to}" to its read_outboxes'
            message = f"{name} may not read {channel.to}: its answers are not sent"
            yield make_warning(message, "/permissions/read_outboxes", hint, resume_file(name))
