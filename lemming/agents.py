"""Agents: folders with a `resume.json`. The resume is the whole definition of an agent.

Format: docs/resume.md. A folder whose resume is broken takes out that agent only.
"""

from __future__ import annotations

import contextlib
import operator
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemming import paths
from lemming.errors import ConfigError, Problem
from lemming.files.documents import Document, read_text, unreadable
from lemming.files.fitting import LARGEST_AMOUNT, about
from lemming.files.jsontext import compact, nearest, parse
from lemming.files.stamps import (
    Identity,
    Look,
    Reading,
    are_as_before,
    folders_in,
    has_rested,
    identity_of,
    is_current,
    look,
    opened,
    status_of,
)
from lemming.kinds import MESSAGE_KINDS, MessageKind
from lemming.schedule import AgentSchedule, in_order, is_due

RESUME_LIMIT_BYTES = 256 << 10
OWN_FOLDERS = ("outbox", "memory", "workspace", "logs")
FOLDERS_REMEMBERED = 10_000
_sound: dict[str, Identity] = {}  # folders of agents that held nothing odd, as they were when that was seen


@dataclass(frozen=True, kw_only=True)
class AgentModel:
    """Which model answers for the agent."""

    key: str = field(default="default", metadata=about("A key of config/models.json.", min_length=1))
    temperature: float | None = field(
        default=None, metadata=about("Sampling temperature; null leaves it to the model's entry.", ge=0, le=2)
    )


@dataclass(frozen=True, kw_only=True)
class FileAccess:
    """Folders whose files the file tools may touch. `./workspace` is the agent's, `./shared` the org's."""

    allow_read: list[str] = field(
        default_factory=lambda: ["./workspace"], metadata=about("Roots for file_read and file_list.")
    )
    allow_write: list[str] = field(
        default_factory=lambda: ["./workspace"], metadata=about("Roots for file_write.")
    )


@dataclass(frozen=True, kw_only=True)
class AgentPermissions:
    """What the agent may read and do."""

    read_outboxes: list[str] = field(
        default_factory=list, metadata=about('Agents whose outboxes are in the inbox; "*" means all others.')
    )
    tools: list[str] = field(
        default_factory=list, metadata=about("Tools the agent may call, beside those always allowed.")
    )
    file_access: FileAccess = field(default_factory=FileAccess)


@dataclass(frozen=True, kw_only=True)
class AgentCredits:
    """How much the agent may spend. `config/credits.json` overrides these."""

    max_credits: float | None = field(
        default=None,
        metadata=about("No model call is made beyond this; null: no limit.", ge=0, le=LARGEST_AMOUNT),
    )
    soft_cap: float | None = field(
        default=None,
        metadata=about("One warning in log and prompt when this is reached.", ge=0, le=LARGEST_AMOUNT),
    )


@dataclass(frozen=True, kw_only=True)
class TurnLimits:
    """What one turn may do."""

    max_steps: int | None = field(
        default=None,
        metadata=about("Model calls a turn may make to use tool results. Default 1.", ge=1, le=50),
    )
    repairs: int | None = field(
        default=None,
        metadata=about("Corrective calls after a reply that is not the contract. Default 1.", ge=0, le=5),
    )
    max_entries: int = field(default=64, metadata=about("Outbox entries one reply may write.", ge=0, le=64))
    kinds: list[MessageKind] = field(
        default_factory=lambda: list(MESSAGE_KINDS),
        metadata=about("Kinds of entries the agent may write.", min_length=1),
    )


@dataclass(frozen=True, kw_only=True)
class ContextFile:
    """A file whose text is put into every prompt of the agent."""

    file: str = field(metadata=about("A path the agent may read, such as ./shared/facts.txt.", min_length=1))
    label: str = field(default="", metadata=about("What the prompt calls it; default: the file's name."))
    take: Literal["all", "next_line"] = field(
        default="all", metadata=about('"next_line": one line a turn, in turn, starting over at the end.')
    )


@dataclass(frozen=True, kw_only=True)
class Example:
    """One example turn shown to the model before the real one."""

    input: str = field(metadata=about("What the agent was shown."))
    output: str = field(metadata=about("The text of the one entry it wrote."))


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent, as its resume defines it."""

    name: str = field(metadata=about("The name of the agent's folder."))
    title: str = field(default="", metadata=about("What the agent is called in prompts and tables."))
    model: AgentModel = field(default_factory=AgentModel)
    permissions: AgentPermissions = field(default_factory=AgentPermissions)
    schedule: AgentSchedule = field(default_factory=AgentSchedule)
    instructions: str = field(metadata=about("What the agent is told to be and do.", min_length=1))
    credits: AgentCredits = field(default_factory=AgentCredits)
    turn: TurnLimits = field(default_factory=TurnLimits, metadata=about("What one turn may do."))
    context: list[ContextFile] = field(
        default_factory=list, metadata=about("Files that are put into every prompt.")
    )
    examples: list[Example] = field(
        default_factory=list, metadata=about("Example turns; small models need two.", max_length=20)
    )

    def may_read(self, author: str) -> bool:
        """Return whether entries of `author` may reach this agent's inbox."""
        readable = self.permissions.read_outboxes
        return author != self.name and (author in readable or "*" in readable)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The agent as JSON values, in the resume's own shape."""
        values: dict[str, Any] = parse(compact(asdict(self)))
        return values


@dataclass(frozen=True)
class Survey:
    """What `agents/` holds: the valid agents by name, and what is wrong with the rest (no resume: ignored).

    `broken` maps a folder's name to the error that takes it out; `digests` holds each resume's SHA-256.
    """

    agents: dict[str, Agent]
    broken: dict[str, ConfigError]
    warnings: tuple[Problem, ...]
    digests: dict[str, str]

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All agents in the order of a tick, due or not: the order that entries of one tick have."""
        return tuple(agent.name for agent in in_order(self.agents.values()))

    @cached_property
    def by_schedule(self) -> dict[tuple[int, int], list[str]]:
        """The agents that are due together, by `run_every_n_ticks` and `phase_offset`."""
        together: dict[tuple[int, int], list[str]] = {}
        for name, agent in self.agents.items():
            schedule = agent.schedule
            together.setdefault((schedule.run_every_n_ticks, schedule.phase_offset), []).append(name)
        return together

    @cached_property
    def by_model(self) -> dict[str, list[str]]:
        """The agents that have the same model key."""
        together: dict[str, list[str]] = {}
        for name, agent in self.agents.items():
            together.setdefault(agent.model.key, []).append(name)
        return together

    @cached_property
    def by_tool(self) -> dict[str, list[tuple[str, int]]]:
        """Where each tool stands in the resumes: the agent, and the place in its list."""
        places: dict[str, list[tuple[str, int]]] = {}
        for name, agent in self.agents.items():
            for index, tool in enumerate(agent.permissions.tools):
                places.setdefault(tool, []).append((name, index))
        return places


def load_agent(base_path: str | os.PathLike[str], name: str) -> Agent:
    """Return one agent from its resume; raise `ConfigError` that lists everything wrong with it."""
    base = paths.as_base(base_path)
    is_link = os.path.islink(f"{base}/agents/{name}")
    outcome = _look(base, name, is_link=is_link, before=None).outcome
    if isinstance(outcome, ConfigError):
        raise outcome
    return outcome.value


def discover_agents(base_path: str | os.PathLike[str]) -> list[Agent]:
    """Return all valid agents, sorted by name. See `survey_agents` for what is wrong with the others."""
    return list(survey_agents(base_path).agents.values())


def survey_agents(base_path: str | os.PathLike[str]) -> Survey:
    """Sort the agents into the good and the broken; a resume is read again only when it has changed.

    When nothing has, the result is the same value as before: it is not to be changed.
    """
    base = paths.as_base(base_path)
    kept = _kept(base)
    try:
        with _opened_agents(base) as folder:
            found = folders_in(folder)
            before = kept[0] if kept else None
            looks = before.looks if before and before.found == found else None
            if before and looks is not None and are_as_before(looks, folder):
                return before.survey
            kept[:] = [_look_at_all(base, found, folder, before)]
    except FileNotFoundError:
        return _survey_of({}, {})
    return kept[0].survey


class _Kept(NamedTuple):
    """A survey and what it was made of: as long as all the looks hold, so does the survey.

    `found`: the folders' names, each with whether it is a link. `looks` is None if any of them is in doubt.
    """

    found: dict[str, bool]
    looks: list[Look] | None
    readings: dict[str, Reading[Document[Agent]]]
    survey: Survey


@lru_cache(maxsize=8)
def _kept(base: Path) -> list[_Kept]:
    """Return where the latest survey of an organisation is kept."""
    return []


def _look_at_all(base: Path, found: dict[str, bool], folder: int, before: _Kept | None) -> _Kept:
    """Read the resumes that have changed; where they say nothing new the survey is the one from before."""
    known = before.readings if before else {}
    readings: dict[str, Reading[Document[Agent]]] = {}
    unread: dict[str, ConfigError] = {}
    for name, is_link in _in_text(found):
        reading = known.get(name)
        if reading and not is_link and is_current(reading, f"{name}/resume.json", folder):
            readings[name] = reading
            continue
        try:
            readings[name] = _look(base, name, is_link=is_link, before=reading)
        except ConfigError as error:
            unread[name] = error
    is_known = not unread and all(reading.is_settled for reading in readings.values())
    looks = [(f"{name}/resume.json", reading.identity) for name, reading in readings.items()]
    is_same = (
        before is not None
        and not unread
        and (before.found == found and len(known) == len(readings))
        and all(map(operator.is_, known.values(), readings.values()))
    )
    survey = before.survey if before and is_same else _survey_of(readings, unread)
    return _Kept(found, looks if is_known else None, readings, survey)


def _survey_of(readings: dict[str, Reading[Document[Agent]]], unread: dict[str, ConfigError]) -> Survey:
    read = {name: reading.outcome for name, reading in readings.items()}
    good = {name: outcome for name, outcome in read.items() if not isinstance(outcome, ConfigError)}
    empty = {name: e for name, e in unread.items() if isinstance(e.__cause__, FileNotFoundError)}
    bad = {name: e for name, e in (read | unread).items() if isinstance(e, ConfigError) and name not in empty}
    ignored = (replace(problem, severity="warning") for e in empty.values() for problem in e.problems)
    return Survey(
        agents={name: document.value for name, document in good.items()},
        broken=dict(sorted(bad.items())),
        warnings=(*ignored, *(warning for document in good.values() for warning in document.warnings)),
        digests={name: readings[name].digest for name in good},
    )


def agent_folders(base: Path) -> list[str]:
    """Return the names below `agents/` that are folders, or links that pose as one, sorted.

    A name that is not UTF-8 is no agent's; it comes with "?" for what is not text.
    """
    try:
        with _opened_agents(base) as folder:
            return [name for name, _ in _in_text(folders_in(folder))]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _opened_agents(base: Path) -> Iterator[int]:
    """Open `agents/`. Raises `FileNotFoundError`, and `ConfigError` for what is no folder."""
    try:
        with opened(f"{base}/agents") as folder:
            yield folder
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _broken("agents", f"cannot be listed: {error.strerror}", "it must be a real folder") from error


def _in_text(found: dict[str, bool]) -> list[tuple[str, bool]]:
    return [(name.encode("utf-8", "replace").decode(), found[name]) for name in sorted(found)]


def require_own_folders(base: Path, name: str) -> None:
    """Raise `ConfigError` when something else stands where one of the agent's own folders belongs.

    Whatever takes the place of one changes the agent's folder: as long as that rests, nobody looks again.
    """
    above, now = f"{base}/{paths.agent_folder(name)}", time.time_ns()
    try:
        identity = identity_of(above)
    except FileNotFoundError:
        return
    if _sound.get(above) == identity:
        return
    for folder in OWN_FOLDERS:
        file = f"{paths.agent_folder(name)}/{folder}"
        try:
            mode = status_of(f"{base}/{file}").st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "something that is not a folder"
            raise _broken(file, f"{what} stands where the agent's {folder} belongs", "move it away")
    if has_rested(identity, now) and identity_of(above) == identity:
        if len(_sound) >= FOLDERS_REMEMBERED:
            _sound.clear()
        _sound[above] = identity


def should_run(agent: Agent, tick: int) -> bool:
    """Return whether the agent fires at this tick: `(tick + phase_offset) % run_every_n_ticks == 0`."""
    return is_due(agent.schedule, tick)


def _look(
    base: Path, name: str, *, is_link: bool, before: Reading[Document[Agent]] | None
) -> Reading[Document[Agent]]:
    """Return what an agent's resume says; raise `ConfigError` when there is none that can be read."""
    try:
        resume = paths.resume_file(name)
    except ValueError as error:
        raise _broken(f"agents/{name}", f"not an agent's folder: {error}", "rename the folder") from error
    if is_link:
        message = "symbolic link refused: an agent must be a real folder"
        raise _broken(paths.agent_folder(name), message, "copy it here")
    try:
        return look(f"{base}/{resume}", before, partial(_read, name), limit_bytes=RESUME_LIMIT_BYTES)
    except FileNotFoundError as error:
        hint = f"write {resume}, or create it with `lemming agents new {name}`"
        raise _broken(resume, "no agent without it; the folder is ignored", hint) from error
    except OSError as error:
        raise unreadable(resume, error) from error


def _read(name: str, raw: bytes) -> Document[Agent]:
    """Return a resume's bytes as the agent of that name; raise `ConfigError`."""
    resume = paths.resume_file(name)
    document = read_text(raw, resume, Agent, limit_bytes=RESUME_LIMIT_BYTES)
    found = document.value.name
    if found != name:
        own = compact(found[:80]).decode()
        message = f'the name is {own} but the folder is "{name}"; the folder is the identity'
        raise _broken(resume, message, f'set "name": "{name}" or rename the folder', "/name")
    return document


def _broken(file: str, message: str, hint: str, pointer: str = "") -> ConfigError:
    problem = Problem(message, file=file, pointer=pointer, hint=hint, code="LMG-304")
    return ConfigError(str(problem), problems=(problem,))


def nearest_agent(name: str, known: list[str]) -> str:
    """Return a hint for a name that is no agent: the nearest one, else all of them."""
    return nearest(name, known) or f"agents here: {', '.join(known) or 'none'}"
