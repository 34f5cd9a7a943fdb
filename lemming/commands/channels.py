"""`lemming channels`: what came and went, and what is wrong."""

from __future__ import annotations

from dataclasses import asdict

import typer

from lemming.agents import survey_agents
from lemming.capabilities.channels.states import ChannelState, channel_states
from lemming.commands.options import AsJson
from lemming.commands.org import find_org
from lemming.commands.screen import one_line, show_json, show_table, tell
from lemming.commands.trust import load_settings


def channels(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the agents that channels speak for: what arrived, what went out, what failed.

    A channel is an agent whose model key has the provider folder, http, mail or command. The engine sees to
    folders and commands between ticks; `lemming serve` to http and mail. What came and went, line by line, is
    in agents/NAME/channel.jsonl.

    \b
    Examples:
      lemming channels
      lemming channels --json | jq 'select(.waiting > 0) | .agent'
    """
    base = find_org(ctx)
    found = channel_states(base, survey_agents(base), load_settings(base))
    if as_json:
        for channel in found:
            show_json("channel", asdict(channel))
        return
    if not found:
        tell("no channels: an agent whose model key has the provider folder, http, mail or command is one")
        return
    headings = ["AGENT", "CHANNEL", "FOR", "ARRIVED", "REFUSED", "WENT OUT", "WAITING", "GIVEN UP", ""]
    show_table(headings, [_row(channel) for channel in found])
    for channel in found:
        _tell_wrong(channel)


def _row(channel: ChannelState) -> list[str]:
    counts = channel.arrived, channel.refused, channel.delivered, channel.waiting, channel.gave_up
    state = "CANNOT BE USED" if channel.problem else "OUT OF REACH" if channel.down_since else ""
    return [channel.agent, channel.provider, channel.to or "everybody", *map(str, counts), state]


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
