"""`lemming skills`: the skills that lie in the organisation, and who is told of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lemming.capabilities.skills.loading import SkillNow, further_files, skills_now
from lemming.commands.failures import tell_problem
from lemming.commands.options import Here, Limit, argument, noun
from lemming.commands.screen import one_line, show, show_text, tell
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation

OWN_SKILL = Path(__file__).parents[1] / "agent_skill/lemming-organisations/SKILL.md"

app = noun("See the skills that agents may look up: docs/AGENT_GUIDE.md.")

NONE = 'no skills here: write skills/NAME/SKILL.md, and "skills": ["NAME"] in a resume'
COLUMNS = {
    "SKILL": "name",
    "WHERE": "folder",
    "FOR": lambda it: ", ".join(it["agents"]) or "nobody",
    "WHAT IT IS FOR": lambda it: one_line(it["description"], 90),
}


@app.verb("list")
def list_skills(here: Here, limit: Limit = None) -> None:
    """List the skills below skills/, .agents/skills, .claude/skills, agents/*/skills and what resumes list.

    \b
    Example:
      lemming skills list
    """
    base = here.org
    found, problems = skills_now(base)
    for problem in problems:
        if not here.shows("problem", problem.as_json()):
            tell_problem(problem, base)
    facts = [_as_json(base, each) for each in found]
    here.lists("skill", facts, COLUMNS, limit, nothing=NONE)
    if found and not here.as_json and any(not each.agents for each in found):
        tell('an agent is told of those that its resume lists: "skills": ["NAME"], or ["*"]')


@app.verb("show")
def show_skill(here: Here, name: Annotated[str, argument("NAME", "A skill's name, or its folder.")]) -> None:
    """Show a skill as agents read it, and what is wrong with it.

    \b
    Examples:
      lemming skills show pdf-forms
      lemming skills show .claude/skills/pdf-forms
    """
    base = here.org
    found = _named(base, name.rstrip("/"))
    skill = found.skill
    if here.shows("skill", {**_as_json(base, found), "body": skill.body}):
        return
    tell(f"{skill.file}, for {', '.join(found.agents) or 'nobody'}", style="dim")
    for problem in skill.remarks:
        tell_problem(problem, base)
    show_text(f"{skill.description}\n\n{skill.body.rstrip()}")
    if files := further_files(base, skill):
        tell(f"files: {', '.join(files)}")


@app.verb("export")
def export_skill(
    here: Here,
    folder: Annotated[
        Path, argument("DIR", "Where your coding agent looks for skills, such as .claude/skills.")
    ] = Path(".agents/skills"),
) -> None:
    """Write the skill that teaches coding agents to build organisations. A copy that is there is replaced.

    \b
    Examples:
      lemming skills export
      lemming skills export ~/.claude/skills
    """
    target = folder.expanduser().absolute()
    fs.make_root(target)
    fs.publish(target, OWN_SKILL.relative_to(OWN_SKILL.parents[1]).as_posix(), OWN_SKILL.read_bytes())
    written = target / OWN_SKILL.parent.name / OWN_SKILL.name
    if not here.shows("skill_written", {"file": str(written)}):
        show(str(written))


def _named(base: Organisation, name: str) -> SkillNow:
    found, problems = skills_now(base)
    matching = [each for each in found if name in (each.skill.folder, each.skill.name)]
    if len(matching) > 1:
        folders = ", ".join(each.skill.folder for each in matching)
        raise UsageError(f'there are several skills "{name}"', hint=f"name the folder of one: {folders}")
    if not matching:
        broken = next((each for each in problems if f"/{name}/" in f"/{each.file}"), None)
        if broken:
            raise UsageError(broken.message, where=broken.where, hint=broken.hint)
        known = [each.skill.name for each in found]
        raise UsageError(f'there is no skill "{name}"', hint=nearest(name, known) or "lemming skills list")
    return matching[0]


def _as_json(base: Organisation, found: SkillNow) -> dict[str, object]:
    skill = found.skill
    return {
        "name": skill.name,
        "folder": skill.folder,
        "description": skill.description,
        "is_for_people": skill.is_for_people,
        "agents": list(found.agents),
        "files": further_files(base, skill),
        "keys": skill.keys,
        "problems": [problem.message for problem in skill.remarks],
    }
