"""`lemming channels`: what came and went, and what is wrong."""

from __future__ import annotations

from lemming.capabilities.channels.states import ChannelState, channel_states
from lemming.commands.options import Here, Limit
from lemming.commands.screen import one_line, tell
from lemming.commands.trust import load_settings
from lemming.kernel.agents import survey_agents

NONE = "no channels: an agent whose model key has the provider folder, http, mail or command is one"
COLUMNS = {
    "AGENT": "agent", "CHANNEL": "provider", "FOR": lambda it: it.to or "everybody", "ARRIVED": "arrived",
    "REFUSED": "refused", "WENT OUT": "delivered", "WAITING": "waiting", "GIVEN UP": "gave_up",
    "": lambda it: "CANNOT BE USED" if it.problem else "OUT OF REACH" if it.down_since else "",
}  # fmt: skip


def channels(here: Here, limit: Limit = None) -> None:
    """List the agents that channels speak for: what arrived, what went out, what failed.

    A channel is an agent whose model key has the provider folder, http, mail or command. The engine sees to
    folders and commands between ticks; `lemming serve` to http and mail. What came and went, line by line, is
    in agents/NAME/channel.jsonl.

    \b
    Examples:
      lemming channels
      lemming channels --json | jq 'select(.waiting > 0) | .agent'
    """
    base = here.org
    found = channel_states(base, survey_agents(base), load_settings(base))
    here.lists("channel", found, COLUMNS, limit, nothing=NONE)
    for channel in found if not here.as_json else ():
        _tell_wrong(channel)


def _tell_wrong(channel: ChannelState) -> None:
    name = channel.agent
    if channel.problem:
        tell(f"{name} cannot be used: {one_line(channel.problem, 400)}", style="yellow")
    if channel.down_since:
        again = f"; tried again at {channel.retry_at}" if channel.retry_at else ""
        why = one_line(channel.down_why, 400)
        tell(f"{name} is out of reach since {channel.down_since}: {why}{again}", style="yellow")
    for line in channel.last_refused:
        place = f" ({line['file']})" if "file" in line else ""
        message, why = line.get("message", "a message"), line.get("why", "")
        tell(one_line(f"{name} refused {message}: {why}{place}", 400), style="dim")
    for line in channel.last_given_up:
        tell(one_line(f"{name} gave up {line.get('entry')}: {line.get('why')}", 400), style="yellow")
    for one in channel.failing:
        text = f"{name} could not send {one['entry']} (tried {one['attempts']} times): {one['why']}"
        tell(one_line(text, 400), style="yellow")
