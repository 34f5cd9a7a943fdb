"""Status of an organisation's channels: received, delivered and failed messages. Read-only."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.channels.channel import Channel
from lemming.capabilities.channels.channel_gateway import AddressedEntries, make_channel
from lemming.capabilities.channels.channel_log import ChannelLogs
from lemming.ext import CheckSubject, LemmingError, Problem, load_tick, make_warning, resume_file
from lemming.kernel.agents import Agent, Survey, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.queries.checks.health_checks import ChannelStatus
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult
from lemming.queries.tick_preview import load_inspection_settings

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
        failing=[
            {"entry": key, "attempts": delivery.attempts, "why": delivery.reason}
            for key, delivery in [*traffic.failed_deliveries.items()][:MAX_SHOWN]
        ],
        problem=problem,
    )


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
            continue  # its model key is reported already
        if not channel.to:
            if not any(other.may_read(name) for other in survey.agents.values()):
                yield make_warning(
                    f"no agent may read {name}: incoming messages are not seen", "/model/key", "", resume_file(name)
                )
            continue
        if channel.to in survey.broken:
            continue  # its resume is reported already
        if channel.to not in survey.agents:
            hint = suggest_agent(channel.to, [*survey.agents])
            pointer = f"/{agent.model.key}/options/to"
            yield Problem(f'there is no agent "{channel.to}"', paths.MODELS_FILE, pointer=pointer, hint=hint)
            continue
        if not survey.agents[channel.to].may_read(name):
            hint = f'add "{name}" to its read_outboxes'
            message = f"{channel.to} may not read {name}: it does not see incoming messages"
            yield make_warning(message, "/permissions/read_outboxes", hint, resume_file(channel.to))
        is_one_way = channel.kind != "request" and not agent.permissions.read_outboxes
        if not is_one_way and not agent.may_read(channel.to):
            hint = f'add "{channel.to}" to its read_outboxes'
            message = f"{name} may not read {channel.to}: its answers are not sent"
            yield make_warning(message, "/permissions/read_outboxes", hint, resume_file(name))


def list_channels(org: Organisation) -> ScreenResult:
    """List channels with their traffic and errors.

    A channel is an agent whose model key has the provider folder, http, mail or command. The engine serves
    folders and commands between ticks; `lemming channels serve` serves http and mail. agents/NAME/channel.jsonl
    records each message.

    \b
    Examples:
      lemming channels
      lemming channels --json | jq 'select(.waiting > 0) | .agent'
    """
    statuses = get_channel_statuses(org, survey_agents(org), load_inspection_settings(org))
    return ScreenResult(statuses, [note for status in statuses for note in _describe_problems(status)])


def _describe_problems(channel: ChannelStatus) -> Iterator[Note]:
    name = channel.agent
    if channel.problem:
        yield Note(f"{name} is broken: {channel.problem}", is_warning=True)
    if channel.down_since:
        retry_text = f"; next attempt at {channel.retry_at}" if channel.retry_at else ""
        reason = f"{channel.down_why}{retry_text}"
        yield Note(f"{name} has been unreachable since {channel.down_since}: {reason}", is_warning=True)
    for line in channel.last_refused:
        location = f" ({line['file']})" if "file" in line else ""
        yield Note(f"{name} refused {line.get('message', 'a message')}: {line.get('why', '')}{location}")
    for line in channel.last_given_up:
        yield Note(f"{name} gave up {line.get('entry')}: {line.get('why')}", is_warning=True)
    for delivery in channel.failing:
        text = f"{name} could not send {delivery['entry']} (tried {delivery['attempts']} times): {delivery['why']}"
        yield Note(text, is_warning=True)


def _describe_state(channel: ChannelStatus) -> str:
    return "BROKEN" if channel.problem else "UNREACHABLE" if channel.down_since else ""


CHANNELS = Screen(
    "channels",
    kind="channel",
    title="Channels",
    query=list_channels,
    row=ChannelStatus,
    empty="no channels: an agent whose model key has the provider folder, http, mail or command is one",
    columns=(
        Column("agent", "AGENT", "Name of the channel.", shown="agent"),
        Column("provider", "CHANNEL", "How messages come and go: folder, http, mail or command."),
        Column("to", "FOR", "Agent that gets the messages.", text=lambda channel: channel.to or "everybody"),
        Column("seen_to_by", about="Command that serves the channel, or empty if the engine does."),
        Column("arrived", "RECEIVED", "Number of messages that became entries."),
        Column("refused", "REFUSED", "Number of messages that were refused."),
        Column("delivered", "SENT", "Number of entries that were sent."),
        Column("waiting", "WAITING", "Number of entries that are still to be sent."),
        Column("gave_up", "FAILED", "Number of entries that could not be sent."),
        Column("", "", text=_describe_state),
        Column("down_since", about="Time since which the other end is unreachable, or empty."),
        Column("down_why", about="Reason for which the other end is unreachable."),
        Column("retry_at", about="Time of the next attempt to reach the other end."),
        Column("last_refused", about="The newest refused messages."),
        Column("last_given_up", about="The newest entries that could not be sent."),
        Column("failing", about="Entries that failed and are tried again."),
        Column("problem", about="Error in the settings of the channel, or empty."),
    ),
)
