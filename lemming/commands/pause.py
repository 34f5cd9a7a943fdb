"""`lemming pause` and `lemming resume`: an agent, or all of them, takes no turns for a while."""

from __future__ import annotations

import getpass
import os
from typing import Annotated

from lemming.commands.options import (
    AnyAgentName,
    Here,
    describe_engine,
    find_agent,
    option,
    running_engine,
)
from lemming.commands.screen import one_line, show_json, tell
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.paths import resume_file
from lemming.kernel.org.config import ORG_FILE, load_config
from lemming.kernel.tick.firing_plan import is_for_a_person, pause_reason
from lemming.service.pause import pause as begin_pause
from lemming.service.pause import pause_text, paused_text
from lemming.service.pause import resume as end_pause


def pause(
    here: Here,
    agent: AnyAgentName = None,
    why: Annotated[str, option("--why TEXT", "A word for whoever looks later.")] = "",
) -> None:
    """Let an agent take no turns until `lemming resume`; without a name, let nobody take any.

    It writes one key, "paused", into the agent's resume, or into config/org.json: it can be seen there, and
    taken out there. An engine under way notices at its next tick. Ticks go on being counted, entries still
    arrive, people can still write; whoever is paused catches up when it is resumed.

    \b
    Examples:
      lemming pause editor --why "too dear"
      lemming pause
    """
    base = here.org
    if agent and is_for_a_person(find_agent(base, agent), load_config(base)):
        raise UsageError(f"{agent} takes no turns anyway: a person speaks for it", hint="lemming agents list")
    text = pause_text(timestamp(SystemClock().now()), _user(), one_line(why, 200))
    written = begin_pause(base, agent, text)
    if here.as_json:
        facts = {"agent": agent, "paused": written, "was_paused": written != text}
        show_json("pause", facts)
        return
    who, file = (agent, resume_file(agent)) if agent else ("the organisation", ORG_FILE)
    already = "already " if written != text else ""
    tell(f"{who} is {already}{one_line(pause_reason(written), 400)} ({file})")
    if engine := running_engine(base):
        tell(f"from its next tick on, of {describe_engine(engine)}")
    tell(f"`lemming resume{f' {agent}' if agent else ''}` ends it")


def _user() -> str:
    """Return who is at the keyboard, as far as the machine can tell."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.geteuid()}"


def resume(here: Here, agent: AnyAgentName = None) -> None:
    """End what `lemming pause` began: of an agent, or without a name of the organisation.

    Agents that were paused one by one stay paused until each is resumed.

    \b
    Examples:
      lemming resume editor
      lemming resume
    """
    base = here.org
    if agent:
        find_agent(base, agent)
    text = end_pause(base, agent)
    if here.shows("pause", {"agent": agent, "paused": "", "was_paused": bool(text)}):
        return
    who = agent or "the organisation"
    was = f"takes turns again; it was {one_line(pause_reason(text), 400)}" if text else "is not paused"
    tell(f"{who} {was}")
    if agent and load_config(base).org.paused:
        paused = one_line(pause_reason(paused_text(base, None)), 400)
        tell(f"the organisation is {paused}: `lemming resume` ends that", style="yellow")
