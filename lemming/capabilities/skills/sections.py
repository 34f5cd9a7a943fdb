"""What an agent is told of guides and skills: sections after its instructions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lemming.capabilities.skills.skill import Skill
from lemming.kernel.base.quoting import quoted

SKILLS_CHARS = 16_000

_HOW = (
    "# Skills\nHow this organisation does certain things. Before you do what one is for, read it with "
    "the tool skill_read (its name; then, if it names one, a file of it) and go by it."
)


def skills_section(skills: Mapping[str, Skill]) -> str:
    """Return the section that lists skills with their descriptions, as many as there is room for."""
    lines = skill_lines(skills.values())
    room, shown = SKILLS_CHARS, list[str]()
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    rest = len(lines) - len(shown)
    more = [f"({rest} more: skill_read without a name lists all)"] if rest else []
    return "\n".join([_HOW, *shown, *more]) if lines else ""


def skill_lines(skills: Iterable[Skill]) -> list[str]:
    """Return a line for each skill that is for models."""
    return [
        f"- {quoted(skill.name)}: {quoted(skill.description)}" for skill in skills if not skill.is_for_people
    ]
