"""`lemming skills`: skills of the organisation and their agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lemming.capabilities.skills.skills_screen import SKILLS, SkillStatus, list_skill_statuses
from lemming.commands.command_context import CommandContext, argument, make_command_group
from lemming.commands.error_reporting import print_problem
from lemming.commands.terminal import print_data, print_json, print_notice, print_text
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

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
