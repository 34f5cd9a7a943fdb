"""The screen of skills: all skills of an organisation, with the agents that may read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.skill import Skill
from lemming.capabilities.skills.skill_lookup import (
    COMMON_FOLDERS,
    load_agent_skills,
    load_skills,
    parse_skill_patterns,
)
from lemming.ext import Problem
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.org.organisation import Organisation
from lemming.queries.screens.screen import Column, Note, Screen, ScreenResult


@dataclass(frozen=True)
class SkillStatus:
    """A skill, the agents with access, and the relative paths of its files other than `SKILL.md`."""

    skill: Skill
    agents: tuple[str, ...]
    files: list[str]


def list_skill_statuses(org: Organisation) -> tuple[list[SkillStatus], list[Problem]]:
    """Return all skills by folder, and the problems in their folders."""
    agents = survey_agents(org).agents
    listed = [folder for agent in agents.values() for _, folder, _ in parse_skill_patterns(agent)]
    agent_skill_folders = [
        f"{paths.agent_folder(name)}/skills" for name in list_agent_folders(org) if paths.AGENT_NAME.match(name)
    ]
    readers: dict[str, list[str]] = {}
    for agent in agents.values():
        for skill in load_agent_skills(agent, org).by_name.values():
            readers.setdefault(skill.folder, []).append(agent.name)
    statuses: dict[str, SkillStatus] = {}
    problems: list[Problem] = []
    for folder in dict.fromkeys([*COMMON_FOLDERS, *agent_skill_folders, *listed]):
        folder_skills = load_skills(org, folder)
        problems += folder_skills.problems
        for skill in folder_skills.by_name.values():
            statuses[skill.folder] = SkillStatus(
                skill, tuple(readers.get(skill.folder, ())), _list_skill_files(org, skill)
            )
    return [statuses[folder] for folder in sorted(statuses)], list(dict.fromkeys(problems))


def _list_skill_files(org: Organisation, skill: Skill) -> list[str]:
    return [file for file in SkillSearch(org.base, {}).list_files(skill.folder) if file != paths.SKILL_FILE]


def list_skills(org: Organisation) -> ScreenResult:
    """List skills and the agents that may read them.

    Skills are in skills/, .agents/skills, .claude/skills and agents/*/skills, and in folders named in resumes.

    \b
    Example:
      lemming skills list
    """
    statuses, problems = list_skill_statuses(org)
    advice = 'an agent sees the skills that its resume lists: "skills": ["NAME"], or ["*"]'
    notes = [Note(advice)] if any(not status.agents for status in statuses) else []
    return ScreenResult(statuses, notes, problems=problems)


SKILLS = Screen(
    "skills",
    kind="skill",
    title="Skills",
    command="skills list",
    query=list_skills,
    empty='no skills; write skills/NAME/SKILL.md, and add "skills": ["NAME"] to a resume',
    columns=(
        Column("name", "SKILL", "Name of the skill.", value=lambda status: status.skill.name),
        Column("folder", "WHERE", "Folder of the skill.", value=lambda status: status.skill.folder),
        Column(
            "agents", "FOR", "Agents that may read the skill.", list[str],
            value=lambda status: list(status.agents), text=lambda status: ", ".join(status.agents) or "nobody",
        ),
        Column(
            "description", "DESCRIPTION", "What the skill is for.", value=lambda status: status.skill.description, width=90
        ),
        Column(
            "is_for_people", about="True if models do not see the skill.", type=bool,
            value=lambda status: status.skill.is_hidden_from_models,
        ),
        Column("files", about="Files of the skill other than SKILL.md.", type=list[str]),
        Column("keys", about="Keys of the head of SKILL.md.", type=dict[str, Any], value=lambda status: status.skill.keys),
        Column(
            "problems", about="Mistakes in SKILL.md.", type=list[str],
            value=lambda status: [problem.message for problem in status.skill.remarks],
        ),
    ),
)  # fmt: skip
