"""Whom a turn's tools of the team would not reach. Reading goes both ways, or nobody is asked."""

from __future__ import annotations

from lemming.agents import Agent
from lemming.capabilities.requests.team import team_tools
from lemming.mail.references import name_in
from lemming.mail.task import Task
from lemming.turn.opening import Surroundings


def out_of_reach(now: Surroundings, agent: Agent, task: Task | None) -> dict[str, str]:
    """Return why tools that ask the team, or hand on to it, would reach nobody, by their names."""
    asker = ""
    if task and task.request:
        asker = name_in(task.request.payload.get("owed_to")) or task.request.agent
    why: dict[str, str] = {}
    for name, tool in team_tools(agent).items():
        readers = [(tool.target, agent.name), (agent.name, tool.target)]
        if tool.hands_on:
            readers = [(tool.target, agent.name), (asker, tool.target)] if asker else []
        missing = next((pair for pair in readers if not _reads(now, *pair)), None)
        if missing:
            reader, author = missing
            why[name] = f'{reader} cannot read {author}: "{author}" is missing in its read_outboxes'
        if tool.target not in now.mail.named:
            why[name] = f'there is no agent "{tool.target}"'
    return why


def _reads(now: Surroundings, reader: str, author: str) -> bool:
    resume = now.mail.resumes.get(reader)
    return resume is None or resume.may_read(author)
