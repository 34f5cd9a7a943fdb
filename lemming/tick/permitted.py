"""What the journal of an unfinished tick says, held against what its agent may do now.

A journal is a file, and nobody gets more by writing into it than the agent's resume and the settings allow:
no file in a place that is not the agent's, no model that `config/models.json` does not name for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lemming import paths
from lemming.access.grants import resolve
from lemming.access.open import write_effect
from lemming.agents import RESUME_LIMIT_BYTES, Agent, AgentPermissions, FileAccess
from lemming.config import Org, credits_of
from lemming.errors import ConfigError, CorruptState, LemmingError, PermissionDenied, UnknownModel
from lemming.files import fs
from lemming.files.documents import read_text
from lemming.files.effects import FileEffect
from lemming.journal.records import Record, ToolFinished, TurnStarted
from lemming.memory import decode_memory
from lemming.sandbox.quota import Usage
from lemming.tick.answers import recorded_result
from lemming.tick.snapshot import Snapshot
from lemming.tools import ToolContext, allowed_tools
from lemming.turn.inputs import from_record
from lemming.turn.loop import Seat

NO_LONGER_ALLOWED = "NoLongerAllowed"
"""The `error` of a turn whose journal records what its agent may not do now."""

NOTHING = AgentPermissions(read_outboxes=[], tools=[], file_access=FileAccess(allow_read=[], allow_write=[]))


def seat_of(started: TurnStarted, snapshot: Snapshot) -> Seat:
    """Return the seat of a turn that was begun, with the permissions, model and allowance of now.

    What it saw, how its replies are read and when it is warned stay as they were. An agent whose resume is
    gone or broken may do nothing.
    """
    seat = from_record(started, snapshot.tick)
    config, now = snapshot.config, snapshot.survey.agents.get(seat.agent.name)
    if now is None:
        problem = UnknownModel(f"the resume of {seat.agent.name} is gone or broken: no model is asked")
        return replace(seat, agent=replace(seat.agent, permissions=NOTHING), problem=problem)
    model = replace(now.model, temperature=seat.agent.model.temperature)
    seat = replace(
        seat,
        agent=replace(now, model=model, turn=seat.agent.turn),
        allocation=replace(
            seat.allocation, max_credits=credits_of(config, now.name, now.credits).max_credits
        ),
    )
    try:
        return replace(seat, model=config.model(now.model.key))
    except UnknownModel as error:
        return replace(seat, problem=error)


def refused_places(base: Path, agent: Agent, org: Org, records: Iterable[Record]) -> dict[str, str]:
    """Return why files that a turn's tools recorded may not be written now, by `FileEffect.place`."""
    refused = {}
    for record in records:
        if not isinstance(record, ToolFinished):
            continue
        for effect in recorded_result(record).effects:
            try:
                _require_allowed(base, agent, org, record.tool, effect)
            except LemmingError as error:
                refused[effect.place] = str(error)
    return refused


def _require_allowed(base: Path, agent: Agent, org: Org, tool: str, effect: FileEffect) -> None:
    """Raise unless this tool of this agent may write this file now, as when it is called."""
    if tool not in allowed_tools(agent, org):
        raise PermissionDenied(f"{tool}: refused by permissions.tools")
    if not effect.root and effect.path.startswith(f"{paths.memory_folder(agent.name)}/"):
        _require_memory(agent, effect)
    elif tool == "create_agent":
        _require_new_agent(base, agent, org, effect)
    else:
        place = resolve(agent, base, f"{effect.root or base}/{effect.path}", "write", caller=tool)
        if (place.effect_root, place.relative) != (effect.root, effect.path):
            raise place.asked.refused("it is written otherwise than the engine writes a place")
        limits = Usage(org.quota.max_bytes, org.quota.max_files)
        write_effect(place, effect.content, {}, limits=limits)


def _require_memory(agent: Agent, effect: FileEffect) -> None:
    key = effect.path.rpartition("/")[2].removesuffix(".json")
    try:
        is_one = paths.memory_file(agent.name, key) == effect.path
    except ValueError:
        is_one = False
    if not is_one:
        raise PermissionDenied(f"{effect.path} is no memory of {agent.name}")
    decode_memory(effect.content, effect.path)


def _require_new_agent(base: Path, agent: Agent, org: Org, effect: FileEffect) -> None:
    """Raise unless the file is the resume of an agent that this one may create, and nobody else's."""
    from lemming.toolbox.staff import require_creatable

    name = effect.path.split("/")[1] if effect.path.count("/") == 2 else ""
    if effect.root or not paths.AGENT_NAME.match(name) or effect.path != paths.resume_file(name):
        raise PermissionDenied(f"create_agent: {effect.place} is no resume")
    created = read_text(effect.content, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES).value
    try:
        there = fs.read_bytes(base / effect.path, RESUME_LIMIT_BYTES)
        if there != effect.content:  # what a power cut left of it is no resume
            read_text(there, effect.path, Agent, limit_bytes=RESUME_LIMIT_BYTES)
            raise PermissionDenied(f'create_agent: there is an agent "{name}" already')
    except (FileNotFoundError, ConfigError):
        pass
    except OSError as error:
        raise CorruptState(str(error), where=effect.path) from error
    require_creatable(ToolContext(agent=agent, base=base, org=org, now=""), created)
