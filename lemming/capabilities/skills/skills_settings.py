"""The keys `skills` and `guides` of a resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lemming.ext import AgentSubject, Problem, make_field
from lemming.kernel.org.resume import Agent


@dataclass(frozen=True, kw_only=True)
class SkillsResumeSettings:
    """The settings of guides and skills in a resume."""

    skills: list[str] = make_field(
        list,
        'Skills it may read: names or patterns such as "pdf-*", from its own skills/ and the '
        'organisation\'s, or with a folder: ".claude/skills/*".',
    )
    guides: bool = make_field(
        False, "Add AGENTS.md of the organisation's folder, and of the agent's, after the instructions."
    )


def valid_patterns(agent: Agent) -> Sequence[str]:
    """Return the valid names and patterns of an agent's skills."""
    return [pattern for pattern in agent.extensions.get("skills", ()) if not pattern_error(pattern)]


def has_guides(agent: Agent) -> bool:
    """Return True if an agent's prompts include guides."""
    return bool(agent.extensions.get("guides"))


def find_invalid_patterns(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the patterns that can match no skill."""
    for index, pattern in enumerate(subject.agent.extensions.get("skills", ())):
        if reason := pattern_error(pattern):
            hint = 'write "pdf-*" or ".claude/skills/*"'
            yield Problem(f'"{pattern}" {reason}', pointer=f"/skills/{index}", hint=hint)


def pattern_error(pattern: str) -> str:
    """Return the reason a pattern can match no skill, or an empty text."""
    *folders, name = pattern.removeprefix("./").split("/")
    if not name or pattern.startswith(("/", "~")) or not {"", ".", ".."}.isdisjoint(folders):
        return "must be a name, a pattern, or a path in the organisation such as .claude/skills/*"
    if any(mark in folder for folder in folders for mark in "*?["):
        return "must have * and ? in its last part only"
    return "has characters that no path has" if not pattern.isprintable() or "\\" in pattern else ""
