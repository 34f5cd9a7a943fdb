"""Which skills an agent has: the folders that its resume's `skills` lead to. Only names that match are read.

A pattern such as `pdf-*` is looked for in the agent's own `skills/`, then in that of the organisation;
one with a folder in front (`.claude/skills/*`) there only. The first of a name is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lemming.capabilities.skills.folder_search import SkillSearch, warning
from lemming.capabilities.skills.settings import patterns_of
from lemming.capabilities.skills.skill import Skill, skill_of
from lemming.kernel.access.allowed_paths import kept_at
from lemming.kernel.access.open import read_text
from lemming.kernel.agents import agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem, ToolError
from lemming.kernel.base.paths import SKILL_FILE
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent

NOTHING: Mapping[str, bytes] = {}
COMMON_FOLDERS = ("skills", ".agents/skills", ".claude/skills")
"""Where an organisation's skills are usually kept."""


@dataclass(frozen=True)
class FoundSkills:
    """The skills found, by name in the order in which they are shown, and what was wrong on the way.

    `patterns`: those of the resume that led to none.
    """

    by_name: Mapping[str, Skill]
    problems: tuple[Problem, ...] = ()
    patterns: tuple[str, ...] = ()


def folders_of(agent: Agent) -> list[tuple[str, str, str]]:
    """Return each pattern of an agent's resume, with a folder to look in, and the pattern of the names."""
    found = []
    for pattern in patterns_of(agent):
        folder, _, names = pattern.removeprefix("./").rpartition("/")
        own = (f"{paths.agent_folder(agent.name)}/skills", "skills")
        found += [(pattern, place, names) for place in ((folder,) if folder else own)]
    return found


def skills_of(agent: Agent, org: Organisation, staged: Mapping[str, bytes] = NOTHING) -> FoundSkills:
    """Return the skills that an agent's resume lists."""
    found, problems, led_to_some = dict[str, Skill](), list[Problem](), set[str]()
    for pattern, folder, names in folders_of(agent):
        here = skills_in(org, folder, names, staged)
        problems += here.problems
        led_to_some.update([pattern] if here.by_name else [])
        for name, skill in here.by_name.items():
            found.setdefault(name, skill)
    rest = tuple(dict.fromkeys(pattern for pattern in patterns_of(agent) if pattern not in led_to_some))
    return FoundSkills(dict(sorted(found.items())), tuple(dict.fromkeys(problems)), rest)


def skills_in(
    org: Organisation, folder: str, names: str = "*", staged: Mapping[str, bytes] = NOTHING
) -> FoundSkills:
    """Return the skills below one folder whose names match a pattern."""
    search = SkillSearch(org.base, staged, names)
    found = dict[str, Skill]()
    for path in search.skills_below(folder):
        try:
            skill = _read(org, path, staged)
        except ConfigError as error:
            search.problems += error.problems
            continue
        search.problems += skill.remarks
        first = found.setdefault(skill.name, skill)
        if first is not skill:
            what = f'there is another skill "{skill.name}", which is taken: {first.file}'
            search.problems.append(warning(skill.file, what, "rename one of the folders"))
    return FoundSkills(dict(sorted(found.items())), tuple(search.problems))


class _Parsed:
    """The skills of an organisation as they were last, by folder, each with the text it was made of."""

    def __init__(self, _: Organisation) -> None:
        self.known: dict[str, tuple[str, Skill | ConfigError]] = {}


def _read(org: Organisation, folder: str, staged: Mapping[str, bytes]) -> Skill:
    """Return a skill; raise `ConfigError` for what is none."""
    file = f"{folder}/{SKILL_FILE}"
    try:
        text = read_text(kept_at(org.base, file, caller="skills"), staged)
    except ToolError as error:
        problem = warning(file, error.message, "it must be a text file of at most 256 KiB")
        raise ConfigError(str(problem), problems=(problem,)) from error
    known = org.own(_Parsed).known
    if folder not in known or known[folder][0] != text:
        try:
            known[folder] = text, skill_of(folder, text)
        except ConfigError as error:
            known[folder] = text, error
    outcome = known[folder][1]
    if isinstance(outcome, ConfigError):
        raise outcome.with_traceback(None)
    return outcome


@dataclass(frozen=True)
class SkillNow:
    """A skill, and the agents that may read it."""

    skill: Skill
    agents: tuple[str, ...]


def skills_now(org: Organisation) -> tuple[list[SkillNow], list[Problem]]:
    """Return all skills by folder, and what is wrong with what lies in their folders."""
    agents = survey_agents(org).agents
    listed = [folder for agent in agents.values() for _, folder, _ in folders_of(agent)]
    own = [
        f"{paths.agent_folder(name)}/skills" for name in agent_folders(org) if paths.AGENT_NAME.match(name)
    ]
    readers: dict[str, list[str]] = {}
    for agent in agents.values():
        for skill in skills_of(agent, org).by_name.values():
            readers.setdefault(skill.folder, []).append(agent.name)
    found: dict[str, SkillNow] = {}
    problems: list[Problem] = []
    for folder in dict.fromkeys([*COMMON_FOLDERS, *own, *listed]):
        there = skills_in(org, folder)
        problems += there.problems
        for skill in there.by_name.values():
            found[skill.folder] = SkillNow(skill, tuple(readers.get(skill.folder, ())))
    return [found[folder] for folder in sorted(found)], list(dict.fromkeys(problems))


def further_files(org: Organisation, skill: Skill) -> list[str]:
    """Return the paths of a skill's files beside its `SKILL.md`, from its folder."""
    return [file for file in SkillSearch(org.base, {}).files_in(skill.folder) if file != SKILL_FILE]
