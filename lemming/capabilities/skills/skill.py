"""A skill as a value, parsed from its `SKILL.md` (format: agentskills.io, "Agent Skills"). Pure.

Foreign skills are accepted if possible. A file without a description, or with unreadable front matter, is no
skill. Every other defect is a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lemming.ext import ConfigError, Problem
from lemming.kernel.base import paths
from lemming.kernel.base.untrusted_quoting import escape_markers
from lemming.libraries.front_matter import InvalidFrontMatter, parse_front_matter, split_front_matter

DESCRIPTION_CHARS = 1024

_NAME_CHARS = 64
_COMPATIBILITY_CHARS = 500
_HIDDEN = "disable-model-invocation"
SKILLS_CHARS = 16_000
_INTRODUCTION = (
    "# Skills\nHow this organisation does certain things. Before you do what one is for, read it with "
    "the tool skill_read (its name; then, if it names one, a file of it) and go by it."
)


@dataclass(frozen=True)
class Skill:
    """A skill: `name` is the name of its folder, `folder` the path in the organisation, `body` the text."""

    name: str
    folder: str
    description: str
    body: str
    keys: dict[str, Any]
    remarks: tuple[Problem, ...] = ()

    @property
    def file_path(self) -> str:
        """The path of the skill's `SKILL.md`."""
        return f"{self.folder}/{paths.SKILL_FILE}"

    @property
    def is_hidden_from_models(self) -> bool:
        """True if the author excludes the skill from automatic use by models."""
        return self.keys.get(_HIDDEN) is True


def parse_skill(folder: str, text: str) -> Skill:
    """Return the skill in a folder from the text of `SKILL.md`. Raise `ConfigError` for an invalid skill."""
    name, file = folder.rpartition("/")[2], f"{folder}/{paths.SKILL_FILE}"
    try:
        header, body = split_front_matter(text)
        keys = {} if header is None else parse_front_matter(header)
    except InvalidFrontMatter as error:
        raise _invalid_skill(file, str(error), "correct the YAML block at the top", error.line) from error
    if header is None:
        hint = "start it with a line ---, then name: and description:, and a line ---"
        raise _invalid_skill(file, "the file must start with a YAML block", hint, 1)
    description = " ".join(_to_text(keys.get("description")).split())
    if not description:
        hint = "add description: with the purpose of the skill and when to use it"
        raise _invalid_skill(file, "the skill has no description", hint, 1)
    remarks = tuple(
        Problem(text, file, 1, 1, hint=hint, severity="warning")
        for text, hint in _find_remarks(name, keys, description)
    )
    return Skill(name, folder, description[:DESCRIPTION_CHARS], body, keys, remarks)


def _find_remarks(name: str, keys: dict[str, Any], description: str) -> list[tuple[str, str]]:
    declared_name, remarks = _to_text(keys.get("name")), list[tuple[str, str]]()
    if not declared_name:
        remarks.append(("the skill has no name; the folder's is used", f"add name: {name}"))
    elif declared_name != name:
        remarks.append(
            (f'the skill is named "{declared_name}" and its folder "{name}"; the folder name is used', "make them one")
        )
    # The rules of the format, which other programs may enforce.
    if len(name) > _NAME_CHARS or name != name.lower() or not all(part.isalnum() for part in name.split("-")):
        rule = f"at most {_NAME_CHARS} lower-case letters, digits and single - between them"
        remarks.append((f'"{name}" is not a name that all programs accept', rule))
    if len(description) > DESCRIPTION_CHARS:
        message = f"the description must have at most {DESCRIPTION_CHARS} characters, got {len(description)}"
        remarks.append((message, "shorten it"))
    if len(_to_text(keys.get("compatibility"))) > _COMPATIBILITY_CHARS:
        remarks.append((f"its compatibility has more than {_COMPATIBILITY_CHARS} characters", "shorten it"))
    return remarks


def _to_text(value: Any) -> str:
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def _invalid_skill(file: str, message: str, hint: str, line: int) -> ConfigError:
    problem = Problem(f"not a valid skill: {message}", file, line, min(line, 1), hint=hint, severity="warning")
    return ConfigError(str(problem), problems=(problem,))


def build_skills_section(skills: Mapping[str, Skill]) -> str:
    """Return the section with skills and descriptions, truncated to the available space."""
    lines = format_skills(skills.values())
    remaining_chars, visible_lines = SKILLS_CHARS, list[str]()
    for line in lines:
        remaining_chars -= len(line) + 1
        if remaining_chars < 0:
            break
        visible_lines.append(line)
    omitted = len(lines) - len(visible_lines)
    suffix = [f"({omitted} more: skill_read without a name lists all)"] if omitted else []
    return "\n".join([_INTRODUCTION, *visible_lines, *suffix]) if lines else ""


def format_skills(skills: Iterable[Skill]) -> list[str]:
    """Return a line for each skill visible to models."""
    return [
        f"- {escape_markers(skill.name)}: {escape_markers(skill.description)}"
        for skill in skills
        if not skill.is_hidden_from_models
    ]
