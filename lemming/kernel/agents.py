"""Agents: folders with a `resume.json`. The resume is the whole definition of an agent.

Format: docs/settings.md. A broken resume takes out only the agent of its folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.base.jsontext import correct_typo, did_you_mean, dump_compact, locate
from lemming.kernel.files.folder_listings import list_subfolders
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.files.stat_cache import (
    FileReading,
    Identity,
    PathState,
    file_identity,
    has_stable_mtime,
    is_link,
    is_unchanged,
    lstat,
    open_folder,
)
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent as Agent
from lemming.kernel.org.schedule import find_time_problems, fire_point
from lemming.kernel.plugins.capability_table import PREFIXES

RESUME_LIMIT_BYTES = 256 << 10
OWN_FOLDERS = ("outbox", "memory", "workspace", "logs")
WRITTEN_FOLDERS = ("outbox", "memory")


@accept_old_names
@dataclass(frozen=True)
class Survey:
    """Content of `agents/`: valid agents by name, and the problems of the other folders.

    `broken` maps a folder's name to the error that takes the agent out; `digests` holds each resume's
    SHA-256. A folder without a resume is ignored with a warning.
    """

    agents: dict[str, Agent]
    broken: dict[str, ConfigError]
    warnings: tuple[Problem, ...]
    digests: dict[str, str]

    @cached_property
    def turn_order(self) -> tuple[str, ...]:
        """All agents in the order of a tick, due or not: also the order of entries of a tick."""
        return tuple(agent.name for agent in sort_by_fire_point(self.agents.values()))

    @cached_property
    def by_schedule(self) -> dict[tuple[int, int], list[str]]:
        """The agents due together, by `run_every_n_ticks` and `phase_offset`."""
        together: dict[tuple[int, int], list[str]] = {}
        for name, agent in self.agents.items():
            schedule = agent.schedule
            together.setdefault((schedule.run_every_n_ticks, schedule.phase_offset), []).append(name)
        return together

    @cached_property
    def by_model(self) -> dict[str, list[str]]:
        """Agents by model key."""
        together: dict[str, list[str]] = {}
        for name, agent in self.agents.items():
            together.setdefault(agent.model.key, []).append(name)
        return together

    def find_people(self, config: Config) -> list[str]:
        """Return the agents represented by persons."""
        return self._find_by_model(config.is_person)

    def find_channels(self, config: Config) -> list[str]:
        """Return the agents represented by channels."""
        return self._find_by_model(config.is_channel)

    def find_callers(self, config: Config) -> list[str]:
        """Return the agents that wait for the answer to each of their requests: people, channels, programs."""
        return self._find_by_model(lambda agent: not config.has_model_turns(agent) or config.is_program(agent))

    def _find_by_model(self, has_kind: Callable[[Agent], bool]) -> list[str]:
        return [name for names in self.by_model.values() if has_kind(self.agents[names[0]]) for name in names]

    @cached_property
    def extension_keys(self) -> frozenset[str]:
        """Keys of capabilities used in any resume."""
        return frozenset(key for agent in self.agents.values() for key in agent.extensions)

    @cached_property
    def has_plugin_capabilities(self) -> bool:
        """True if a resume has a block for an external capability."""
        return any(agent.capabilities for agent in self.agents.values())

    @cached_property
    def paused_agents(self) -> dict[str, str]:
        """Paused agents, each with the pause text of its resume."""
        return {name: agent.paused for name, agent in self.agents.items() if agent.paused}

    @cached_property
    def teams_by_member(self) -> dict[str, frozenset[str]]:
        """For each team member, the agents with the member in their team."""
        owners: dict[str, set[str]] = {}
        for name, agent in self.agents.items():
            for member in agent.extensions["team"].all_names if "team" in agent.extensions else ():
                owners.setdefault(member, set()).add(name)
        return {name: frozenset(owner_names) for name, owner_names in owners.items()}

    @cached_property
    def by_tool(self) -> dict[str, list[tuple[str, int]]]:
        """Mentions of each tool in the resumes: agent, and index in its list of tools."""
        mentions: dict[str, list[tuple[str, int]]] = {}
        for name, agent in self.agents.items():
            for index, tool in enumerate(agent.permissions.tools):
                mentions.setdefault(tool, []).append((name, index))
        return mentions

    @cached_property
    def has_server_tools(self) -> bool:
        """True if a resume names tools of servers; otherwise no server is examined."""
        return any(tool.startswith(PREFIXES) for tool in self.by_tool)


def sort_by_fire_point(agents: Iterable[Agent]) -> list[Agent]:
    """Return the agents in turn order: ascending (fire point, name)."""
    return sorted(agents, key=lambda agent: (fire_point(agent.schedule), agent.name))


def load_agent(base_path: str | os.PathLike[str], name: str) -> Agent:
    """Return an agent from its resume. Raises `ConfigError` listing all problems."""
    org = Organisation.from_path(base_path)
    outcome = _load_resume(org, name, is_link=is_link(f"{org.base}/agents/{name}")).outcome
    if isinstance(outcome, ConfigError):
        # cached and raised many times: its traceback would grow, and hold the frames of callers
        raise outcome.with_traceback(None)
    return outcome.value


def survey_agents(base_path: str | os.PathLike[str]) -> Survey:
    """Load all agents, valid and broken; for an `Organisation`, only changed resumes are read.

    Without a change the result is the same object as before. Callers must not modify the survey.
    """
    org = Organisation.from_path(base_path)
    cache = org.get_cache(_SurveyCache)
    if cache.is_held and cache.folders:
        return cache.survey
    try:
        with _open_agents_folder(org.base) as folder:
            folders = list_subfolders(folder)
            if cache.path_states is None or cache.folders != folders or not is_unchanged(cache.path_states, folder):
                cache.refresh(folders)
    except FileNotFoundError:
        return _build_survey({}, {})
    return cache.survey


@contextlib.contextmanager
def hold_survey(org: Organisation) -> Iterator[None]:
    """Check the resumes at most once in the block, so all its parts see the same survey."""
    cache = org.get_cache(_SurveyCache)
    was_held, cache.is_held = cache.is_held, True
    try:
        yield
    finally:
        cache.is_held = was_held  # a block within a block goes on to see one survey


def get_latest_survey(org: Organisation) -> Survey:
    """Return the last survey without reading the disk, or a first survey."""
    cache = org.get_cache(_SurveyCache)
    return cache.survey if cache.folders else survey_agents(org)


class _SurveyCache:
    """The last survey of an organisation and the files it was built from.

    `folders`: folder names, each with True for a link. The survey is valid while all `path_states` are
    unchanged. With a doubtful state, `path_states` is None.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._readings: dict[str, FileReading[Document[Agent]]] = {}
        self.folders: dict[str, bool] = {}
        self.path_states: list[PathState] | None = None
        self.is_held = False
        self.survey = _build_survey({}, {})

    def refresh(self, folders: dict[str, bool]) -> None:
        """Read the changed resumes; without a new result the previous survey stays."""
        readings: dict[str, FileReading[Document[Agent]]] = {}
        unread: dict[str, ConfigError] = {}
        for name, is_symlink in _sorted_names(folders):
            try:
                readings[name] = _load_resume(self._org, name, is_link=is_symlink)
            except ConfigError as error:
                unread[name] = error
        old = self._readings
        is_same = old.keys() == readings.keys() and all(old[name].outcome is readings[name].outcome for name in old)
        if unread or folders != self.folders or not is_same:
            self.survey = _build_survey(readings, unread)
        self.folders, self._readings = folders, readings
        is_certain = not unread and all(reading.is_settled for reading in readings.values())
        path_states = [(f"{name}/resume.json", reading.identity) for name, reading in readings.items()]
        self.path_states = path_states if is_certain else None


def _build_survey(readings: dict[str, FileReading[Document[Agent]]], unread: dict[str, ConfigError]) -> Survey:
    outcomes = {name: reading.outcome for name, reading in readings.items()}
    valid = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, ConfigError)}
    empty = {name: error for name, error in unread.items() if isinstance(error.__cause__, FileNotFoundError)}
    errors = {name: error for name, error in (outcomes | unread).items() if isinstance(error, ConfigError)}
    broken = {name: errors[name] for name in sorted(errors) if name not in empty}
    ignored = (replace(problem, severity="warning") for error in empty.values() for problem in error.problems)
    return Survey(
        agents={name: document.value for name, document in valid.items()},
        broken=broken,
        warnings=(*ignored, *(warning for document in valid.values() for warning in document.warnings)),
        digests={name: readings[name].digest for name in valid},
    )


def list_agent_folders(base: OrgPath) -> list[str]:
    """Return the names of folders, and of links to folders, below `agents/`, sorted.

    A name that is not UTF-8 cannot be an agent; its undecodable bytes appear as "?".
    """
    try:
        with _open_agents_folder(base) as folder:
            return [name for name, _ in _sorted_names(list_subfolders(folder))]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _open_agents_folder(base: OrgPath) -> Iterator[int]:
    """Open `agents/`. Raises `FileNotFoundError`, and `ConfigError` if `agents` is not a folder."""
    try:
        with open_folder(f"{base}/agents") as folder:
            yield folder
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _resume_error("agents", f"cannot be listed: {error.strerror}", "make it a real folder") from error


def _sorted_names(folders: dict[str, bool]) -> list[tuple[str, bool]]:
    return [(name.encode("utf-8", "replace").decode(), folders[name]) for name in sorted(folders)]


class OwnFolderCheck:
    """Agents with checked folders, and the identity of each agent's folder at the time of the check.

    The check precedes the model call: a reply without a place for its files would be paid for in vain.
    """

    def __init__(self, org: Organisation) -> None:
        self._base = str(org.base)
        self._checked: dict[str, Identity] = {}

    def require_valid(self, name: str) -> None:
        """Raise `ConfigError` if a folder of the agent is not a writable real folder."""
        agent, now_ns = f"{self._base}/{paths.agent_folder(name)}", time.time_ns()
        try:
            identity = file_identity(agent)
        except FileNotFoundError:
            return
        if self._checked.get(name) == identity:
            # a mode inside may change without a trace on the folder above
            for folder in WRITTEN_FOLDERS:
                if not os.access(f"{agent}/{folder}", os.W_OK | os.X_OK):
                    break
            else:
                return
        for folder in OWN_FOLDERS:
            with contextlib.suppress(FileNotFoundError):
                self._require_own_folder(agent, name, folder)
        # changed a moment ago: another change within the same grain of its clock would not show
        if has_stable_mtime(identity, now_ns):
            self._checked[name] = identity

    def _require_own_folder(self, agent_path: str, name: str, folder: str) -> None:
        mode, path = lstat(f"{agent_path}/{folder}").st_mode, f"{paths.agent_folder(name)}/{folder}"
        if not stat.S_ISDIR(mode):
            kind_text = "a symbolic link" if stat.S_ISLNK(mode) else "a file"
            message = f"the agent's {folder} must be a real folder, got {kind_text}"
            raise _resume_error(path, message, "move it away")
        if folder in WRITTEN_FOLDERS and not os.access(f"{agent_path}/{folder}", os.W_OK | os.X_OK):
            message = "the engine may not write here, so the agent takes no turn"
            raise _resume_error(path, message, "check the folder's owner and mode")


def _load_resume(org: Organisation, name: str, *, is_link: bool) -> FileReading[Document[Agent]]:
    """Return an agent's resume. Raises `ConfigError` without a readable resume."""
    try:
        resume = paths.resume_file(name)
    except ValueError as error:
        raise _resume_error(f"agents/{name}", str(error), "rename the folder") from error
    if is_link:
        message = "an agent must be a real folder, got a symbolic link"
        raise _resume_error(paths.agent_folder(name), message, "copy the folder here")
    try:
        return org.files.get_reading(resume, partial(decode_resume, name), limit_bytes=RESUME_LIMIT_BYTES)
    except FileNotFoundError as error:
        hint = f"write {resume}, or create it with `lemming agents new {name}`"
        raise _resume_error(resume, "an agent must have a resume.json; the folder is ignored", hint) from error
    except OSError as error:
        raise unreadable_error(resume, error) from error


def decode_resume(name: str, raw: bytes) -> Document[Agent]:
    """Parse a resume's bytes as the agent of this name. Raises `ConfigError` listing all problems."""
    resume = paths.resume_file(name)
    document = parse_document(raw, resume, Agent, limit_bytes=RESUME_LIMIT_BYTES, unknown_key_policy="at the top")
    claimed_name = document.value.name
    if claimed_name != name:
        own_name = dump_compact(claimed_name[:80]).decode()
        message = f'the name must be the folder\'s name "{name}", got {own_name}'
        hint = f'set "name": "{name}" or rename the folder; `lemming agents rename` and `copy` change all that names it'
        place = locate(raw.decode().removeprefix("\ufeff"), "/name")
        raise _resume_error(resume, message, hint, (*place, "/name"))
    problems: list[Problem] = []
    for problem in document.warnings:
        key = problem.pointer[1:]
        if known_key := key if key in _ELSEWHERE else correct_typo(key, _ELSEWHERE):
            problems.append(replace(problem, severity="error", hint=_ELSEWHERE[known_key]))
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    for key, message, hint in find_time_problems(document.value.schedule):
        line, column = locate(raw.decode().removeprefix("\ufeff"), pointer := f"/schedule/{key}")
        problems.append(Problem(message, resume, line, column, pointer, hint))
    if problems:
        raise ConfigError(str(problems[0]), problems=(*problems, *document.warnings))
    return document


_ELSEWHERE = {
    "trust": "remove it; config/org.json sets it for all agents",
    "limits": 'write a limit as a gate: {"at": "spend", "then": "stop", "credits": 5, "per": "turn"}',
}
"""Keys easily mistaken for limits in a resume, and the right keys."""


def _resume_error(file: str, message: str, hint: str, place: tuple[int, int, str] = (0, 0, "")) -> ConfigError:
    """Return the error of a resume as a whole. `place`: line, column and JSON pointer."""
    problem = Problem(message, file, *place, hint, code="LMG-304")
    return ConfigError(str(problem), problems=(problem,))


def suggest_agent(name: str, agent_names: list[str]) -> str:
    """Return a hint for an unknown agent name: the most similar agent, or all agents."""
    return did_you_mean(name, agent_names) or f"agents here: {', '.join(agent_names) or 'none'}"


def require_agent_folder(base: OrgPath, name: str, *, other_words: tuple[str, ...] = ()) -> None:
    """Raise `UsageError` with the nearest name if no agent has this name. `other_words`: words also suggested."""
    folders = list_agent_folders(base)
    if name not in folders:
        hint = did_you_mean(name, other_words) or suggest_agent(name, folders)
        raise UsageError(f'agent "{name[:80]}" does not exist', hint=hint)
