"""What applying a document would come to, judged in a copy of where it goes: nothing is written there yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from lemming.exchange.applying import Change
from lemming.exchange.applying import write as write_changes
from lemming.exchange.loosened import list_loosened_guards
from lemming.facts.problems import problems_of_agents, problems_of_config
from lemming.facts.reach import reaches
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation

_LIMIT_BYTES = 1 << 20
_ALONE = "AGENTS.md"
_COPIED = ("config", "agents", "shared", "skills", "tools", "evals")
_LEFT = frozenset({"outbox", "memory", "logs", "workspace"})
_WORDS = re.compile(rb"[\w.-]+")
_QUOTED = re.compile(r'"([^"]+)"')


class Foreseen(NamedTuple):
    """What a document brings: new code and reaches, guards that it takes away, what is wrong then."""

    brings: Sequence[str]
    loosens: Sequence[str]
    problems: Sequence[Problem]

    @property
    def errors(self) -> list[Problem]:
        """What keeps it from running so."""
        return [problem for problem in self.problems if problem.severity == "error"]


def foresee(base: Path, changes: list[Change], names: Iterable[str]) -> Foreseen:
    """Return a summary of changes for the organisation they are meant for; `names`: agents they are about.

    Only what is new is told: what stands there already is no business of the document's.
    """
    with TemporaryDirectory(prefix="lemming-apply-") as name:
        before, after = Path(name, "before"), Path(name, "after")
        for place in (before, after):
            fs.make_root(place)
            _copy(base, place)
        write_changes(after, changes)
        known = {(reach.does, *sorted(reach.bound_to.items())) for reach in _reaches(before)}
        found = [
            reach for reach in _reaches(after) if (reach.does, *sorted(reach.bound_to.items())) not in known
        ]
        brings = [reach.does for reach in found if reach.needs_agreement]
        named = {file for reach in found for file in reach.bound_to}
        code = [change.path for change in changes if is_code(change.path) and change.path not in named]
        brings += [f"writes the Python code in {path}" for path in code]
        as_it_was = {_key(problem) for problem in _problems(before, names)}
        problems = [problem for problem in _problems(after, names) if _key(problem) not in as_it_was]
    return Foreseen(brings, [*_find_loosened_guards(changes)], problems)


def is_code(path: str) -> bool:
    """Return True if a file is Python that an organisation may load.

    >>> is_code("agents/ada/tools/x.py"), is_code("shared/x.py")
    (True, False)
    """
    return path.endswith(".py") and "tools" in path.split("/")[:-1]


def _find_loosened_guards(changes: list[Change]) -> Iterator[str]:
    for change in changes:
        if change.was is not None:
            guards = list_loosened_guards(change.path, change.was, change.content)
            yield from (f"{change.path}: {what}" for what in guards)


def _copy(base: Path, place: Path) -> None:
    """Copy what an organisation's settings are about; what was said, remembered and logged stays behind."""
    with suppress(FileNotFoundError):
        fs.publish(place, _ALONE, fs.read_bytes(base / _ALONE, _LIMIT_BYTES))
    for top in _COPIED:
        for folder, _, files in walk(str(base / top)):
            inside = Path(folder).relative_to(base).parts
            if inside[:1] == ("agents",) and _LEFT & {*inside[2:3]}:
                continue
            for file in files:
                relative = str(Path(file.path).relative_to(base))
                fs.publish(place, relative, fs.read_bytes(file.path, _LIMIT_BYTES))


def _reaches(place: Path) -> list[Reach]:
    org = Organisation(place)
    try:
        return reaches(org, load_config(org), survey_agents(org).agents.values())
    except ConfigError:  # it is told among the problems
        return []


def _problems(place: Path, names: Iterable[str]) -> list[Problem]:
    """Return the problems of the settings and of these agents; no file of tools is loaded for it."""
    org = Organisation(place)
    try:
        config = load_config(org)
    except ConfigError as error:
        return [*error.problems]
    plain = replace(config, org=replace(config.org, tool_files=[]))
    problems = [*problems_of_config(org, plain)]
    for name in names:
        problems += problems_of_agents(org, plain, name)
    return [problem for problem in problems if not _may_be_of_code(place, config, problem)]


def _may_be_of_code(place: Path, config: Config, problem: Problem) -> bool:
    """Return True if a file of tools or a plugin may bring a tool that is missed."""
    named = _QUOTED.search(problem.message)
    if "/permissions/tools/" not in problem.pointer or named is None:
        return False
    code = (file.path for _, _, files in walk(str(place)) for file in files if is_code(file.path))
    return bool(config.org.plugins) or any(
        named[1].encode() in _WORDS.findall(fs.read_bytes(path, _LIMIT_BYTES)) for path in code
    )


def _key(problem: Problem) -> tuple[str, str, str]:
    return problem.message, problem.file, problem.pointer
