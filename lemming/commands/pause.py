"""`lemming pause` and `lemming unpause`: pause agents, or the whole organisation."""

from __future__ import annotations

import getpass
import os
from typing import Annotated

from lemming.commands.command_context import (
    AnyAgentName,
    CommandContext,
    describe_engine,
    find_agent,
    find_running_engine,
    option,
)
from lemming.commands.terminal import one_line, print_json, print_notice
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.tick.firing_plan import format_pause
from lemming.operations.agent_pause import load_pause, make_pause_text
from lemming.operations.agent_pause import pause_agent as begin_pause
from lemming.operations.agent_pause import unpause_agent as end_pause


def pause(
    context: CommandContext,
    agent: AnyAgentName = None,
    reason: Annotated[str, option("--reason TEXT", "Reason to record.")] = "",
) -> None:
    """Pause an agent, or all agents, until `lemming unpause`.

    The command writes the key "paused" into the agent's resume or into config/org.json; removing the key by
    hand also ends the pause. A running engine notices at its next tick. Ticks continue to be counted, entries
    still arrive, and people can still write; a paused agent catches up after the pause.

    \b
    Examples:
      lemming pause editor --reason "too expensive"
      lemming pause
    """
    base = context.org
    if agent and load_config(base).is_person(find_agent(base, agent)):
        raise UsageError(f"{agent} takes no turns: a person writes for it", hint="lemming agents list")
    text = make_pause_text(timestamp(SystemClock().now()), get_user_name(), one_line(reason, 200))
    recorded_text = begin_pause(base, agent, text)
    print_json("pause", {"agent": agent, "paused": recorded_text, "was_paused": recorded_text != text})
    subject, file = (agent, paths.resume_file(agent)) if agent else ("the organisation", paths.ORG_FILE)
    already_text = "already " if recorded_text != text else ""
    print_notice(f"{subject} is {already_text}{one_line(format_pause(recorded_text), 400)} ({file})")
    if engine := find_running_engine(base):
        print_notice(f"takes effect with the next tick of {describe_engine(engine)}")
    print_notice(f"`lemming unpause{f' {agent}' if agent else ''}` ends it")


def get_user_name() -> str:
    """Return the name of the logged-in user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.geteuid()}"


def unpause(context: CommandContext, agent: AnyAgentName = None) -> None:
    """Unpause an agent, or all agents.

    Without a name, the pause of the organisation ends; agents paused by name stay paused.

    \b
    Examples:
      lemming unpause editor
      lemming unpause
    """
    base = context.org
    if agent:
        find_agent(base, agent)
    text = end_pause(base, agent)
    print_json("pause", {"agent": agent, "paused": "", "was_paused": bool(text)})
    subject = agent or "the organisation"
    description = f"is unpaused; it was {one_line(format_pause(text), 400)}" if text else "is not paused"
    print_notice(f"{subject} {description}")
    if agent and load_config(base).org.paused:
        paused = one_line(format_pause(load_pause(base, None)), 400)
        print_notice(f"the organisation is {paused}: `lemming unpause` ends that", style="yellow")
