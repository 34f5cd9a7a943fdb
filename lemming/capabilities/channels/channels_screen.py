"""The screen of channels: messages received, sent and failed."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.channels.channel_status import get_channel_statuses
from lemming.kernel.agents import survey_agents
from lemming.kernel.org.organisation import Organisation
from lemming.queries.channel_states import ChannelStatus
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult
from lemming.queries.tick_preview import load_inspection_settings


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
