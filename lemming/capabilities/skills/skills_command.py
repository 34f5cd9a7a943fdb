"""`lemming skills`: skills of the organisation and their agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lemming.capabilities.skills.skill_lookup import SkillStatus, list_skill_files, list_skill_statuses
from lemming.commands.command_context import CommandContext, Limit, argument, make_command_group
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import one_line, print_data, print_notice, print_text
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

_SHIPPED_SKILL = Path(__file__).parents[2] / "agent_skill/lemming-organisations/SKILL.md"

app = make_command_group("List, show and export skills.")

NONE = 'no skills; write skills/NAME/SKILL.md, and add "skills": ["NAME"] to a resume'
COLUMNS = {
    "SKILL": "name",
    "WHERE": "folder",
    "FOR": lambda skill_row: ", ".join(skill_row["agents"]) or "nobody",
    "DESCRIPTION": lambda skill_row: one_line(skill_row["description"], 90),
}


@app.subcommand("list")
def list_skills(context: CommandContext, limit: Limit = None) -> None:
    """List skills and the agents that may read them.

    Skills are in skills/, .agents/skills, .claude/skills and agents/*/skills, and in folders named in resumes.

    \b
    Example:
      lemming skills list
    """
    base = context.org
    statuses, problems = list_skill_statuses(base)
    for problem in problems:
        if not context.print_as_json("problem", problem.as_json()):
            print_problem(problem, base)
    facts = [_skill_to_json(base, skill_status) for skill_status in statuses]
    context.print_list("skill", facts, COLUMNS, limit, empty_text=NONE)
    if statuses and not context.as_json and any(not skill_status.agents for skill_status in statuses):
        print_notice('an agent sees the skills that its resume lists: "skills": ["NAME"], or ["*"]')


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
    if context.print_as_json("skill", {**_skill_to_json(base, skill_status), "body": skill.body}):
        return
    print_notice(f"{skill.file_path}, for {', '.join(skill_status.agents) or 'nobody'}", style="dim")
    for problem in skill.remarks:
        print_problem(problem, base)
    print_text(f"{skill.description}\n\n{skill.body.rstrip()}")
    if files := list_skill_files(base, skill):
        print_notice(f"files: {', '.join(files)}")


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
    if not context.print_as_json("skill_written", {"file": str(written)}):
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


def _skill_to_json(base: Organisation, skill_status: SkillStatus) -> dict[str, object]:
    skill = skill_status.skill
    return {
        "name": skill.name,
        "folder": skill.folder,
        "description": skill.description,
        "is_for_people": skill.is_hidden_from_models,
        "agents": list(skill_status.agents),
        "files": list_skill_files(base, skill),
        "keys": skill.keys,
        "problems": [problem.message for problem in skill.remarks],
    }
