"""Teams that cannot be asked; open requests that reach nobody, or ask for what nothing can be held to."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.settings import Team
from lemming.kernel.agents import Agent, nearest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.violations import flaw_of
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.soundness.inventory import Inventory


def problems_of_requests(base: OrgPath, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each permission that an open request lacks, and for each schema that is none.

    `only`: of what concerns one agent's resume.
    """
    now = requests_now(base)
    for request in now.requests.open:
        flaw, pointer = flaw_of(request.schema or {})
        if flaw and only in (None, request.asker):
            yield Problem(
                f"any answer will do: {flaw}",
                request.entry.file,
                pointer=f"/payload/schema{pointer}",
                hint=f"`lemming cancel {request.id}`, and ask again with a schema that can be used",
                severity="warning",
                code="LMG-301",
            )
    missing: dict[tuple[str, str], str] = {}
    for request in now.requests.open:
        for share in request.open_shares:
            told = f"what {request.asker} asks {share.holder} ({request.id})"
            if not now.may_read(share.holder, request.asker):
                missing.setdefault((share.holder, request.asker), f"{told} does not reach it")
            if not now.may_read(request.asker, share.holder):
                missing.setdefault((request.asker, share.holder), f"no answer to {told} reaches it")
    for (reader, author), message in missing.items():
        if reader in now.agents and only in (None, reader):
            yield Problem(
                message,
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes, or `lemming cancel` it',
                severity="warning",
                code="LMG-301",
            )


def members_in(team: Team) -> Iterator[tuple[str, str, bool]]:
    """Yield where a team names somebody, as a pointer, whom, and whether an answer is to come back."""
    for index, member in enumerate(team.members):
        yield f"/team/ask/{index}", member.agent, True
    for index, name in enumerate(team.hand_to):
        yield f"/team/hand_to/{index}", name, False


def wrong_with_team(agent: Agent, team: Team, known: Inventory) -> Iterator[tuple[str, str, str]]:
    """Yield those who can never be in an agent's team: the place, what is wrong, what to do."""
    for at, name, _ in members_in(team):
        if name == agent.name:
            yield at, "an agent is not in its own team", "take it out"
        elif name not in known.names and not team.may_be_absent:
            hint = f'{nearest_agent(name, known.names)}; "may_be_absent": true says that it is for later'
            yield at, f'there is no agent "{name}"', hint


def problems_of_team(base: OrgPath, agent: Agent, team: Team) -> Iterator[Problem]:
    """Yield what is wrong with whom an agent may ask: each must be able to read the other."""
    others = survey_agents(base).agents
    for pointer, name, is_asked in members_in(team):
        if name not in others or name == agent.name:
            continue
        readers = [(others[name], agent), (agent, others[name])] if is_asked else [(others[name], agent)]
        for reader, author in readers:
            if not reader.may_read(author.name):
                hint = f'add "{author.name}" to read_outboxes in {paths.resume_file(reader.name)}'
                what = "what it asks" if author is agent else "the answers"
                file = paths.resume_file(agent.name)
                yield Problem(f"{reader.name} cannot read {what}", file, pointer=pointer, hint=hint)
