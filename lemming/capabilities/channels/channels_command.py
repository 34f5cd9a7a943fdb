"""`lemming channels`: messages received, sent and failed."""

from __future__ import annotations

from lemming.capabilities.channels.channel_status import get_channel_statuses
from lemming.commands.command_context import CommandContext, Limit
from lemming.commands.terminal import one_line, print_notice
from lemming.commands.trust import load_settings
from lemming.kernel.agents import survey_agents
from lemming.queries.channel_states import ChannelStatus

NONE = "no channels: an agent whose model key has the provider folder, http, mail or command is one"
COLUMNS = {
    "AGENT": "agent", "CHANNEL": "provider", "FOR": lambda state: state.to or "everybody", "RECEIVED":
    "arrived",
    "REFUSED": "refused", "SENT": "delivered", "WAITING": "waiting", "FAILED": "gave_up",
    "": lambda state: "BROKEN" if state.problem else "UNREACHABLE" if state.down_since else "",
}  # fmt: skip


def channels(context: CommandContext, limit: Limit = None) -> None:
    """List channels with their traffic and errors.

    A channel is an agent whose model key has the provider folder, http, mail or command. The engine serves
    folders and commands between ticks; `lemming serve` serves http and mail. agents/NAME/channel.jsonl
    records each message.

    \b
    Examples:
      lemming channels
      lemming channels --json | jq 'select(.waiting > 0) | .agent'
    """
    base = context.org
    states = get_channel_statuses(base, survey_agents(base), load_settings(base))
    context.print_list("channel", states, COLUMNS, limit, empty_text=NONE)
    for channel in states if not context.as_json else ():
        _print_channel_problem(channel)


def _print_channel_problem(channel: ChannelStatus) -> None:
    """Print the problems of a channel."""
    name = channel.agent
    if channel.problem:
        print_notice(f"{name} is broken: {one_line(channel.problem, 400)}", style="yellow")
    if channel.down_since:
        retry_text = f"; next attempt at {channel.retry_at}" if channel.retry_at else ""
        reason = one_line(channel.down_why, 400)
        print_notice(f"{name} has been unreachable since {channel.down_since}: {reason}{retry_text}", style="yellow")
    for line in channel.last_refused:
        location = f" ({line['file']})" if "file" in line else ""
        message, reason = line.get("message", "a message"), line.get("why", "")
        print_notice(one_line(f"{name} refused {message}: {reason}{location}", 400), style="dim")
    for line in channel.last_given_up:
        print_notice(one_line(f"{name} gave up {line.get('entry')}: {line.get('why')}", 400), style="yellow")
    for delivery in channel.failing:
        text = f"{name} could not send {delivery['entry']} (tried {delivery['attempts']} times): {delivery['why']}"
        print_notice(one_line(text, 400), style="yellow")
