"""One skill as a value: what its `SKILL.md` says (format: agentskills.io, "Agent Skills"). Pure.

What others write is taken as it is where it can be: what has no description, or a first block that cannot be
read, is no skill; everything else that is wrong with one is a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lemming.capabilities.skills.front_matter import NotFrontMatter, split, values_of
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.paths import SKILL_FILE
from lemming.kernel.base.quoting import quoted

DESCRIPTION_CHARS = 1024

_NAME_CHARS = 64
_COMPATIBILITY_CHARS = 500
_HIDDEN = "disable-model-invocation"
SKILLS_CHARS = 16_000
_HOW = (
    "# Skills\nHow this organisation does certain things. Before you do what one is for, read it with "
    "the tool skill_read (its name; then, if it names one, a file of it) and go by it."
)


@dataclass(frozen=True)
class Skill:
    """A skill: `name` is that of its folder, `folder` the path from the organisation, `body` the text."""

    name: str
    folder: str
    description: str
    body: str
    keys: dict[str, Any]
    remarks: tuple[Problem, ...] = ()

    @property
    def file(self) -> str:
        """The path of its `SKILL.md`."""
        return f"{self.folder}/{SKILL_FILE}"

    @property
    def is_for_people(self) -> bool:
        """Whether its author says that no model is to be told of it by itself."""
        return self.keys.get(_HIDDEN) is True


def skill_of(folder: str, text: str) -> Skill:
    """Return the skill of a folder from the text of its `SKILL.md`; raise `ConfigError` for what is none."""
    name, file = folder.rpartition("/")[2], f"{folder}/{SKILL_FILE}"
    try:
        header, body = split(text)
        keys = {} if header is None else values_of(header)
    except NotFrontMatter as error:
        raise _no_skill(file, str(error), "mend the block of YAML at its beginning", error.line) from error
    if header is None:
        hint = "it must begin with a line ---, then name: and description:, and a line ---"
        raise _no_skill(file, "it does not begin with a block that describes the skill", hint, 1)
    description = " ".join(_text(keys.get("description")).split())
    if not description:
        hint = "add description: what the skill is for, and when to use it"
        raise _no_skill(file, "it has no description, by which an agent would choose it", hint, 1)
    remarks = tuple(_remark(file, *remark) for remark in _remarks(name, keys, description))
    return Skill(name, folder, description[:DESCRIPTION_CHARS], body, keys, remarks)


def _remarks(name: str, keys: dict[str, Any], description: str) -> list[tuple[str, str]]:
    called, found = _text(keys.get("name")), list[tuple[str, str]]()
    if not called:
        found.append(("it has no name of its own; the folder's is used", f"add name: {name}"))
    elif called != name:
        found.append(
            (f'it is called "{called}" but its folder "{name}"; the folder\'s name is used', "make them one")
        )
    if not _is_portable(name):
        rule = f"at most {_NAME_CHARS} small letters, digits and single - between them"
        found.append((f'"{name}" is no name that all programs take', rule))
    if len(description) > DESCRIPTION_CHARS:
        what = f"its description has {len(description)} characters; the first {DESCRIPTION_CHARS} are shown"
        found.append((what, "shorten it"))
    if len(_text(keys.get("compatibility"))) > _COMPATIBILITY_CHARS:
        found.append((f"its compatibility has more than {_COMPATIBILITY_CHARS} characters", "shorten it"))
    return found


def _is_portable(name: str) -> bool:
    """Return whether a name is one by the rules of the format, by which others may go strictly."""
    words = name.split("-")
    return len(name) <= _NAME_CHARS and name == name.lower() and all(word.isalnum() for word in words)


def _text(value: Any) -> str:
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def _no_skill(file: str, message: str, hint: str, line: int) -> ConfigError:
    problem = Problem(f"no skill: {message}", file, line, min(line, 1), hint=hint, severity="warning")
    return ConfigError(str(problem), problems=(problem,))


def _remark(file: str, message: str, hint: str) -> Problem:
    return Problem(message, file, 1, 1, hint=hint, severity="warning")


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
