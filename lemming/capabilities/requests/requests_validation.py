"""Find problems of teams and of open requests: missing permissions and unusable schemas."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.requests.requests_settings import TeamSettings
from lemming.ext import Inventory, Problem
from lemming.kernel.agents import Agent, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.current_requests import load_requests


def validate_requests(base: OrgPath, agent_name: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each missing permission of an open request, and for each unusable schema.

    `only`: limit the warnings to one agent's resume.
    """
    snapshot = load_requests(base)
    for request in snapshot.requests.unresolved_requests:
        flaw, pointer = find_schema_flaw(request.schema or {})
        if flaw and agent_name in (None, request.asker):
            yield Problem(
                f"the schema of the request accepts any answer: {flaw}",
                request.entry.file,
                pointer=f"/payload/schema{pointer}",
                hint=f"cancel it with `lemming cancel {request.id}`, and ask again with a valid schema",
                severity="warning",
                code="LMG-301",
            )
    missing: dict[tuple[str, str], str] = {}
    for request in snapshot.requests.unresolved_requests:
        for assignment in request.open_assignments:
            subject = f"what {request.asker} asks {assignment.assignee} ({request.id})"
            if not snapshot.may_read(assignment.assignee, request.asker):
                missing.setdefault((assignment.assignee, request.asker), f"{subject} does not reach it")
            if not snapshot.may_read(request.asker, assignment.assignee):
                missing.setdefault((request.asker, assignment.assignee), f"no answer to {subject} reaches it")
    for (reader, author), message in missing.items():
        if reader in snapshot.agents and agent_name in (None, reader):
            yield Problem(
                message,
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes, or run `lemming cancel {request.id}`',
                severity="warning",
                code="LMG-301",
            )


def iter_team_members(team: TeamSettings) -> Iterator[tuple[str, str, bool]]:
    """Yield each team member: the pointer to the name, the name, and True if an answer must come back."""
    for index, member in enumerate(team.ask_members):
        yield f"/team/ask/{index}", member.agent, True
    for index, name in enumerate(team.hand_to):
        yield f"/team/hand_to/{index}", name, False


def validate_team_references(agent: Agent, team: TeamSettings, inventory: Inventory) -> Iterator[tuple[str, str, str]]:
    """Yield the names that can never be in an agent's team: the pointer, the problem and the fix."""
    for pointer, name, _ in iter_team_members(team):
        if name == agent.name:
            yield pointer, "an agent must not be in its own team", "remove it"
        elif name not in inventory.agent_names and not team.may_be_absent:
            hint = f'{suggest_agent(name, inventory.agent_names)}; set "may_be_absent": true if you create it later'
            yield pointer, f'there is no agent "{name}"', hint


def validate_team(base: OrgPath, agent: Agent, team: TeamSettings) -> Iterator[Problem]:
    """Yield the problems of an agent's team: the agent and each member must be able to read each other."""
    agents = survey_agents(base).agents
    for pointer, name, needs_answer in iter_team_members(team):
        if name not in agents or name == agent.name:
            continue
        readers = [(agents[name], agent), (agent, agents[name])] if needs_answer else [(agents[name], agent)]
        for reader, author in readers:
            if not reader.may_read(author.name):
                hint = f'add "{author.name}" to read_outboxes in {paths.resume_file(reader.name)}'
                subject = "the requests" if author is agent else "the answers"
                file = paths.resume_file(agent.name)
                yield Problem(f"{reader.name} may not read {subject}", file, pointer=pointer, hint=hint)
