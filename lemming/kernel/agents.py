"""Agents: folders with a `resume.json`. The resume is the whole definition of an agent.

Format: docs/resume.md. A folder whose resume is broken takes out that agent only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import compact, locate, meant, nearest
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.stamps import (
    Identity,
    Look,
    Reading,
    are_as_before,
    folders_in,
    has_rested,
    identity_of,
    is_link,
    opened,
    status_of,
)
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import Agent as Agent
from lemming.kernel.org.schedule import AgentSchedule, in_order, is_due, wrong_times
from lemming.kernel.plugins.shipped import PREFIXES

RESUME_LIMIT_BYTES = 256 << 10
OWN_FOLDERS = ("outbox", "memory", "workspace", "logs")
WRITTEN_FOLDERS = ("outbox", "memory")


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
    def further(self) -> frozenset[str]:
        """The keys that capabilities read which a resume has."""
        return frozenset(key for agent in self.agents.values() for key in agent.further)

    @cached_property
    def names_capabilities(self) -> bool:
        """Whether a resume has a block for a capability that does not ship."""
        return any(agent.capabilities for agent in self.agents.values())

    @cached_property
    def paused(self) -> dict[str, str]:
        """The agents that are paused, and what their resumes say of that."""
        return {name: agent.paused for name, agent in self.agents.items() if agent.paused}

    @cached_property
    def askers(self) -> dict[str, frozenset[str]]:
        """Those whose team each agent belongs to, by its name; only the agents that are in one."""
        askers: dict[str, set[str]] = {}
        for name, agent in self.agents.items():
            for member in agent.further["team"].names if "team" in agent.further else ():
                askers.setdefault(member, set()).add(name)
        return {name: frozenset(found) for name, found in askers.items()}

    @cached_property
    def by_tool(self) -> dict[str, list[tuple[str, int]]]:
        """Where each tool stands in the resumes: the agent, and the place in its list."""
        places: dict[str, list[tuple[str, int]]] = {}
        for name, agent in self.agents.items():
            for index, tool in enumerate(agent.permissions.tools):
                places.setdefault(tool, []).append((name, index))
        return places

    @cached_property
    def names_servers(self) -> bool:
        """Whether a resume names tools that servers have; else nothing about them is looked at."""
        return any(tool.startswith(PREFIXES) for tool in self.by_tool)


def load_agent(base_path: str | os.PathLike[str], name: str) -> Agent:
    """Return one agent from its resume; raise `ConfigError` that lists everything wrong with it."""
    org = Organisation.at(base_path)
    outcome = _look(org, name, is_link=is_link(f"{org.base}/agents/{name}")).outcome
    if isinstance(outcome, ConfigError):
        # kept and raised again and again: its traceback would grow, and hold on to what calls had
        raise outcome.with_traceback(None)
    return outcome.value


def discover_agents(base_path: str | os.PathLike[str]) -> list[Agent]:
    """Return all valid agents, sorted by name. See `survey_agents` for what is wrong with the others."""
    return list(survey_agents(base_path).agents.values())


def survey_agents(base_path: str | os.PathLike[str]) -> Survey:
    """Sort the agents into the good and the broken; of an `Organisation`, only what has changed is read.

    When nothing has, the result is the same value as before: it is not to be changed.
    """
    org = Organisation.at(base_path)
    latest = org.own(_Latest)
    if latest.is_held and latest.found:
        return latest.survey
    try:
        with _opened_agents(org.base) as folder:
            found = folders_in(folder)
            if latest.looks is None or latest.found != found or not are_as_before(latest.looks, folder):
                latest.look_at(found)
    except FileNotFoundError:
        return _survey_of({}, {})
    return latest.survey


@contextlib.contextmanager
def one_survey(org: Organisation) -> Iterator[None]:
    """Have `survey_agents` look at most once in a block, and not where it has: for one look of many parts."""
    latest = org.own(_Latest)
    latest.is_held = True
    try:
        yield
    finally:
        latest.is_held = False


def latest_survey(org: Organisation) -> Survey:
    """Return the survey that was made last, without another look at the disk; one, if there was none."""
    latest = org.own(_Latest)
    return latest.survey if latest.found else survey_agents(org)


class _Latest:
    """The survey of an organisation as it was last, and what it was made of.

    `found`: the folders' names, each with whether it is a link. As long as all `looks` hold, so does the
    survey; None if any of them is in doubt.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._readings: dict[str, Reading[Document[Agent]]] = {}
        self.found: dict[str, bool] = {}
        self.looks: list[Look] | None = None
        self.is_held = False
        self.survey = _survey_of({}, {})

    def look_at(self, found: dict[str, bool]) -> None:
        """Read the resumes that have changed; if they say nothing new, the survey is the one from before."""
        readings: dict[str, Reading[Document[Agent]]] = {}
        unread: dict[str, ConfigError] = {}
        for name, leads_on in _in_text(found):
            try:
                readings[name] = _look(self._org, name, is_link=leads_on)
            except ConfigError as error:
                unread[name] = error
        if unread or found != self.found or not _are_alike(self._readings, readings):
            self.survey = _survey_of(readings, unread)
        self.found, self._readings = found, readings
        is_certain = not unread and all(reading.is_settled for reading in readings.values())
        looks = [(f"{name}/resume.json", reading.identity) for name, reading in readings.items()]
        self.looks = looks if is_certain else None


def _are_alike(
    before: Mapping[str, Reading[Document[Agent]]], now: Mapping[str, Reading[Document[Agent]]]
) -> bool:
    return before.keys() == now.keys() and all(before[name].outcome is now[name].outcome for name in now)


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


def agent_folders(base: OrgPath) -> list[str]:
    """Return the names below `agents/` that are folders, or links that pose as one, sorted.

    A name that is not UTF-8 is no agent's; it comes with "?" for what is not text.
    """
    try:
        with _opened_agents(base) as folder:
            return [name for name, _ in _in_text(folders_in(folder))]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _opened_agents(base: OrgPath) -> Iterator[int]:
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


def require_own_folders(base: OrgPath | str, name: str) -> None:
    """Raise `ConfigError` when something else stands where one of the agent's own folders belongs.

    Or when what its turn writes could not be written there: better not asked than paid for in vain.
    """
    own = paths.agent_folder(name)
    agent = f"{base}/{own}"
    for folder in OWN_FOLDERS:
        try:
            mode = status_of(f"{agent}/{folder}").st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "something that is not a folder"
            raise _broken(
                f"{own}/{folder}", f"{what} stands where the agent's {folder} belongs", "move it away"
            )
        if folder in WRITTEN_FOLDERS and not os.access(f"{agent}/{folder}", os.W_OK | os.X_OK):
            raise _broken(
                f"{own}/{folder}",
                "the engine may not write here, so its model is not asked",
                "check the folder's owner and mode",
            )


class OwnFolders:
    """The agents whose own folders were found to be sound, and what their folder was then."""

    def __init__(self, org: Organisation) -> None:
        self._base = str(org.base)
        self._sound: dict[str, Identity] = {}

    def require(self, name: str) -> None:
        """Do what `require_own_folders` does; what it found holds until the agent's folder changes."""
        agent, now = f"{self._base}/{paths.agent_folder(name)}", time.time_ns()
        try:
            identity = identity_of(agent)
        except FileNotFoundError:
            return
        if self._sound.get(name) == identity:
            # a mode inside may change without a trace on the folder above
            for folder in WRITTEN_FOLDERS:
                if not os.access(f"{agent}/{folder}", os.W_OK | os.X_OK):
                    break
            else:
                return
        require_own_folders(self._base, name)
        # changed a moment ago: another change within the same grain of its clock would not show
        if has_rested(identity, now):
            self._sound[name] = identity


def should_run(agent: Agent, tick: int) -> bool:
    """Return whether the agent fires at this tick: `(tick + phase_offset) % run_every_n_ticks == 0`."""
    return is_due(agent.schedule, tick)


def _look(org: Organisation, name: str, *, is_link: bool) -> Reading[Document[Agent]]:
    """Return what an agent's resume says; raise `ConfigError` when there is none that can be read."""
    try:
        resume = paths.resume_file(name)
    except ValueError as error:
        raise _broken(f"agents/{name}", f"not an agent's folder: {error}", "rename the folder") from error
    if is_link:
        message = "symbolic link refused: an agent must be a real folder"
        raise _broken(paths.agent_folder(name), message, "copy it here")
    try:
        return org.files.reading(resume, partial(decode_resume, name), limit_bytes=RESUME_LIMIT_BYTES)
    except FileNotFoundError as error:
        hint = f"write {resume}, or create it with `lemming agents new {name}`"
        raise _broken(resume, "no agent without it; the folder is ignored", hint) from error
    except OSError as error:
        raise unreadable(resume, error) from error


def decode_resume(name: str, raw: bytes) -> Document[Agent]:
    """Return a resume's bytes as the agent of that name; raise `ConfigError` that lists what is wrong."""
    resume = paths.resume_file(name)
    document = read_text(raw, resume, Agent, limit_bytes=RESUME_LIMIT_BYTES, unknown_keys_are="at the top")
    found = document.value.name
    if found != name:
        own = compact(found[:80]).decode()
        message = f'the name is {own} but the folder is "{name}"; the folder is the identity'
        raise _broken(resume, message, f'set "name": "{name}" or rename the folder', "/name")
    if wrong := [*_of_other_files(document.warnings)]:
        raise ConfigError(str(wrong[0]), problems=tuple(wrong))
    if wrong := [*_wrong_times(document.value.schedule, resume, raw)]:
        raise ConfigError(str(wrong[0]), problems=(*wrong, *document.warnings))
    return document


_ELSEWHERE = {
    "trust": "config/org.json has it, for all agents",
    "limits": 'a limit is a gate: {"at": "spend", "then": "stop", "credits": 5, "per": "turn"}',
}
"""What somebody may take for keys of a resume that limit, and what to write instead."""


def _of_other_files(unknown: Iterable[Problem]) -> Iterator[Problem]:
    for problem in unknown:
        key = problem.pointer[1:]
        if word := key if key in _ELSEWHERE else meant(key, _ELSEWHERE):
            yield replace(problem, severity="error", hint=_ELSEWHERE[word])


def _wrong_times(schedule: AgentSchedule, resume: str, raw: bytes) -> Iterator[Problem]:
    for key, message, hint in wrong_times(schedule):
        line, column = locate(raw.decode().removeprefix("\ufeff"), pointer := f"/schedule/{key}")
        yield Problem(message, resume, line, column, pointer, hint)


def _broken(file: str, message: str, hint: str, pointer: str = "") -> ConfigError:
    problem = Problem(message, file=file, pointer=pointer, hint=hint, code="LMG-304")
    return ConfigError(str(problem), problems=(problem,))


def nearest_agent(name: str, known: list[str]) -> str:
    """Return a hint for a name that is no agent: the nearest one, else all of them."""
    return nearest(name, known) or f"agents here: {', '.join(known) or 'none'}"
