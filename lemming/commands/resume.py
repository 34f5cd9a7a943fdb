"""`lemming resume`: who was paused takes turns again."""

from __future__ import annotations

import typer

from lemming.commands.options import AnyAgentName, AsJson
from lemming.commands.org import find_agent, find_org
from lemming.commands.screen import one_line, show_json, tell
from lemming.org.config import load_config
from lemming.service.pause import paused_text
from lemming.service.pause import resume as end_pause
from lemming.tick.plan import pause_reason


def resume(ctx: typer.Context, agent: AnyAgentName = None, as_json: AsJson = False) -> None:
    """End what `lemming pause` began: of an agent, or without a name of the organisation.

    Agents that were paused one by one stay paused until each is resumed.

    \b
    Examples:
      lemming resume editor
      lemming resume
    """
    base = find_org(ctx)
    if agent:
        find_agent(base, agent)
    text = end_pause(base, agent)
    if as_json:
        show_json("pause", {"agent": agent, "paused": "", "was_paused": bool(text)})
        return
    who = agent or "the organisation"
    was = f"takes turns again; it was {one_line(pause_reason(text), 400)}" if text else "is not paused"
    tell(f"{who} {was}")
    if agent and load_config(base).org.paused:
        paused = one_line(pause_reason(paused_text(base, None)), 400)
        tell(f"the organisation is {paused}: `lemming resume` ends that", style="yellow")
