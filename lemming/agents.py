"""Agents: folders with a `resume.json`. The resume is the whole definition of an agent.

Format: docs/resume.md. A folder whose resume is broken takes out that agent only.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from lemming import fs, paths
from lemming.contract import MESSAGE_KINDS, MessageKind
from lemming.documents import adapter, read_document
from lemming.errors import ConfigError, Problem
from lemming.jsontext import compact, nearest
from lemming.schedule import AgentSchedule, is_due

RESUME_LIMIT_BYTES = 256 << 10
OWN_FOLDERS = ("outbox", "memory", "workspace", "logs")


@dataclass(frozen=True, kw_only=True)
class AgentModel:
    """Which model answers for the agent."""

    key: Annotated[str, Field(min_length=1, description="A key of config/models.json.")] = "default"
    temperature: Annotated[
        float | None,
        Field(ge=0, le=2, description="Sampling temperature; null leaves it to the model's entry."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FileAccess:
    """Folders whose files the file tools may touch. `./workspace` is the agent's, `./shared` the org's."""

    allow_read: Annotated[list[str], Field(description="Roots for file_read and file_list.")] = field(
        default_factory=lambda: ["./workspace"]
    )
    allow_write: Annotated[list[str], Field(description="Roots for file_write.")] = field(
        default_factory=lambda: ["./workspace"]
    )


@dataclass(frozen=True, kw_only=True)
class AgentPermissions:
    """What the agent may read and do."""

    read_outboxes: Annotated[
        list[str], Field(description='Agents whose outboxes are in the inbox; "*" means all others.')
    ] = field(default_factory=list)
    tools: Annotated[
        list[str], Field(description="Tools the agent may call, beside those always allowed.")
    ] = field(default_factory=list)
    file_access: FileAccess = field(default_factory=FileAccess)


@dataclass(frozen=True, kw_only=True)
class AgentCredits:
    """How much the agent may spend. `config/credits.json` overrides these."""

    max_credits: Annotated[
        float | None, Field(ge=0, description="No model call is made beyond this; null: no limit.")
    ] = None
    soft_cap: Annotated[
        float | None, Field(ge=0, description="One warning in log and prompt when this is reached.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """What one turn may do."""

    max_steps: Annotated[
        int | None,
        Field(ge=1, le=50, description="Model calls a turn may make to use tool results. Default 1."),
    ] = None
    repairs: Annotated[
        int | None,
        Field(ge=0, le=5, description="Corrective calls after a reply that is not the contract. Default 1."),
    ] = None
    max_entries: Annotated[int, Field(ge=0, le=64, description="Outbox entries one reply may write.")] = 64
    kinds: Annotated[
        list[MessageKind], Field(min_length=1, description="Kinds of entries the agent may write.")
    ] = field(default_factory=lambda: list(MESSAGE_KINDS))


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """A file whose text is put into every prompt of the agent."""

    file: Annotated[
        str, Field(min_length=1, description="A path the agent may read, such as ./shared/facts.txt.")
    ]
    label: Annotated[str, Field(description="What the prompt calls it; default: the file's name.")] = ""
    take: Annotated[
        Literal["all", "next_line"],
        Field(description='"next_line": one line a turn, in turn, starting over at the end.'),
    ] = "all"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One example turn shown to the model before the real one."""

    input: Annotated[str, Field(description="What the agent was shown.")]
    output: Annotated[str, Field(description="The text of the one entry it wrote.")]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent, as its resume defines it."""

    name: Annotated[str, Field(description="The name of the agent's folder.")]
    title: Annotated[str, Field(description="What the agent is called in prompts and tables.")] = ""
    model: AgentModel = field(default_factory=AgentModel)
    permissions: AgentPermissions = field(default_factory=AgentPermissions)
    schedule: AgentSchedule = field(default_factory=AgentSchedule)
    instructions: Annotated[str, Field(min_length=1, description="What the agent is told to be and do.")]
    credits: AgentCredits = field(default_factory=AgentCredits)
    turn: Annotated[TurnLimits, Field(description="What one turn may do.")] = field(
        default_factory=TurnLimits
    )
    context: Annotated[list[ContextFile], Field(description="Files that are put into every prompt.")] = field(
        default_factory=list
    )
    examples: Annotated[
        list[Example], Field(max_length=20, description="Example turns; small models need two.")
    ] = field(default_factory=list)

    def may_read(self, author: str) -> bool:
        """Return whether entries of `author` may reach this agent's inbox."""
        readable = self.permissions.read_outboxes
        return author != self.name and (author in readable or "*" in readable)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The agent as JSON values, in the resume's own shape."""
        values: dict[str, Any] = adapter(Agent).dump_python(self, mode="json")
        return values


@dataclass(frozen=True)
class Survey:
    """What `agents/` holds: the valid agents by name, and what is wrong with the rest.

    `broken` maps a folder's name to the error that takes it out; `digests` holds each resume's SHA-256.
    """

    agents: dict[str, Agent]
    broken: dict[str, ConfigError]
    warnings: tuple[Problem, ...]
    digests: dict[str, str]


def load_agent(base_path: str | os.PathLike[str], name: str) -> Agent:
    """Return one agent from its resume; raise `ConfigError` that lists everything wrong with it."""
    return _load(paths.as_base(base_path), name)[0]


def discover_agents(base_path: str | os.PathLike[str]) -> list[Agent]:
    """Return all valid agents, sorted by name. See `survey_agents` for what is wrong with the others."""
    return list(survey_agents(base_path).agents.values())


def survey_agents(base_path: str | os.PathLike[str]) -> Survey:
    """Read every resume once and sort the good from the broken."""
    base = paths.as_base(base_path)
    agents: dict[str, Agent] = {}
    broken: dict[str, ConfigError] = {}
    warnings: list[Problem] = []
    digests: dict[str, str] = {}
    for name in agent_folders(base):
        try:
            agent, raw, found = _load(base, name)
        except ConfigError as error:
            broken[name] = error
            continue
        agents[name] = agent
        digests[name] = sha256(raw).hexdigest()
        warnings.extend(found)
    return Survey(agents, broken, tuple(warnings), digests)


def agent_folders(base: Path) -> list[str]:
    """Return the names below `agents/` that are folders, or links that pose as one, sorted.

    A name that is not UTF-8 is no agent's; it comes with "?" for what is not text.
    """
    folder = base / "agents"
    try:
        names = fs.list_names(folder)
    except OSError as error:
        raise _broken("agents", f"cannot be listed: {error.strerror}", "it must be a real folder") from error
    return [name.encode("utf-8", "replace").decode() for name in names if (folder / name).is_dir()]


def require_own_folders(base: Path, name: str) -> None:
    """Raise `ConfigError` when something else stands where one of the agent's own folders belongs."""
    for folder in OWN_FOLDERS:
        file = f"{paths.agent_folder(name)}/{folder}"
        try:
            mode = os.lstat(f"{base}/{file}").st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "something that is not a folder"
            raise _broken(file, f"{what} stands where the agent's {folder} belongs", "move it away")


def should_run(agent: Agent, tick: int) -> bool:
    """Return whether the agent fires at this tick: `(tick + phase_offset) % run_every_n_ticks == 0`."""
    return is_due(agent.schedule, tick)


def _load(base: Path, name: str) -> tuple[Agent, bytes, tuple[Problem, ...]]:
    try:
        resume = paths.resume_file(name)
    except ValueError as error:
        raise _broken(f"agents/{name}", f"not an agent's folder: {error}", "rename the folder") from error
    if os.path.islink(f"{base}/{paths.agent_folder(name)}"):
        raise _broken(
            f"agents/{name}", "symbolic link refused: an agent must be a real folder", "copy it here"
        )
    try:
        document = read_document(base, resume, Agent, limit_bytes=RESUME_LIMIT_BYTES)
    except FileNotFoundError as error:
        hint = f"write {resume}, or create it with `lemming agents new {name}`"
        raise _broken(resume, "there is no such file", hint) from error
    agent = document.value
    if agent.name != name:
        own = compact(agent.name[:80]).decode()
        message = f'the name is {own} but the folder is "{name}"; the folder is the identity'
        raise _broken(resume, message, f'set "name": "{name}" or rename the folder', "/name")
    return agent, document.raw, document.warnings


def _broken(file: str, message: str, hint: str, pointer: str = "") -> ConfigError:
    problem = Problem(message, file=file, pointer=pointer, hint=hint, code="LMG-304")
    return ConfigError(str(problem), problems=(problem,))


def nearest_agent(name: str, known: list[str]) -> str:
    """Return a hint for a name that is no agent: the nearest one, else all of them."""
    return nearest(name, known) or f"agents here: {', '.join(known) or 'none'}"
