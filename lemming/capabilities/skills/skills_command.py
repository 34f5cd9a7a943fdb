"""`lemming skills`: skills of the organisation and their agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lemming.capabilities.skills.skill import Skill
from lemming.capabilities.skills.skill_lookup import (
    COMMON_FOLDERS,
    SkillSearch,
    load_agent_skills,
    load_skills,
    parse_skill_patterns,
)
from lemming.commands.command_context import CommandContext, argument, make_command_group
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import print_data, print_json, print_notice, print_text
from lemming.ext import Problem
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
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
            files = [file for file in SkillSearch(org.base, {}).list_files(skill.folder) if file != paths.SKILL_FILE]
            statuses[skill.folder] = SkillStatus(skill, tuple(readers.get(skill.folder, ())), files)
    return [statuses[folder] for folder in sorted(statuses)], list(dict.fromkeys(problems))


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


_SHIPPED_SKILL = Path(__file__).parents[2] / "agent_skill/lemming-organisations/SKILL.md"

app = make_command_group("List, show and export skills.")

app.add_screen("list", SKILLS)


@app.subcommand("show")
def show_skill(
    context: CommandContext, name: Annotated[str, argument("NAME", "Name of the skill, or its folder.")]
) -> None:
    """Show a skill as agents read it, with its problems.

    \b
    Examples:
      lemming skills show pdf-forms
      lemming skills show .claude/skills/pdf-forms
    """
    base = context.org
    skill_status = _find_skill(base, name.rstrip("/"))
    skill = skill_status.skill
    if context.print_as_json("skill", {**SKILLS.to_json(skill_status), "body": skill.body}):
        return
    print_notice(f"{skill.file_path}, for {', '.join(skill_status.agents) or 'nobody'}", style="dim")
    for problem in skill.remarks:
        print_problem(problem, base)
    print_text(f"{skill.description}\n\n{skill.body.rstrip()}")
    if skill_status.files:
        print_notice(f"files: {', '.join(skill_status.files)}")


@app.subcommand("export")
def export_skill(
    context: CommandContext,
    folder: Annotated[Path, argument("DIR", "Skills folder of your coding agent, such as .claude/skills.")] = Path(
        ".agents/skills"
    ),
) -> None:
    """Write the skill for coding agents. It teaches them to build organisations; an existing copy is replaced.

    \b
    Examples:
      lemming skills export
      lemming skills export ~/.claude/skills
    """
    target = folder.expanduser().absolute()
    fs.make_root(target)
    fs.write_atomic(
        target, _SHIPPED_SKILL.relative_to(_SHIPPED_SKILL.parents[1]).as_posix(), _SHIPPED_SKILL.read_bytes()
    )
    written = target / _SHIPPED_SKILL.parent.name / _SHIPPED_SKILL.name
    print_json("skill_written", {"file": str(written)})
    print_data(str(written))


def _find_skill(base: Organisation, name: str) -> SkillStatus:
    statuses, problems = list_skill_statuses(base)
    matching = [candidate for candidate in statuses if name in (candidate.skill.folder, candidate.skill.name)]
    if len(matching) > 1:
        folders = ", ".join(candidate.skill.folder for candidate in matching)
        raise UsageError(f'"{name}" is the name of several skills', hint=f"name the folder of one: {folders}")
    if not matching:
        broken = next((candidate for candidate in problems if f"/{name}/" in f"/{candidate.file}"), None)
        if broken:
            raise UsageError(broken.message, where=broken.where, hint=broken.hint)
        names = [candidate.skill.name for candidate in statuses]
        raise UsageError(f'there is no skill "{name}"', hint=did_you_mean(name, names) or "lemming skills list")
    return matching[0]
