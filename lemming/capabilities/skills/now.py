"""The skills that lie in an organisation, and which agents are told of each."""

from __future__ import annotations

from dataclasses import dataclass

from lemming.agents import agent_folders, survey_agents
from lemming.base import paths
from lemming.base.errors import Problem
from lemming.base.paths import SKILL_FILE
from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.loading import COMMON_FOLDERS, folders_of, skills_in, skills_of
from lemming.capabilities.skills.skill import Skill
from lemming.org.organisation import Organisation


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
