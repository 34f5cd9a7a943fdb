"""The keys `skills` and `guides` of a resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lemming.kernel.files.fitting import about
from lemming.kernel.org.resume import Agent


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of guides and skills."""

    skills: list[str] = field(
        default_factory=list,
        metadata=about(
            'Skills it is told of and may read: names or patterns such as "pdf-*", looked for in its own '
            'skills/ and in the organisation\'s, or with a folder in front: ".claude/skills/*".'
        ),
    )
    guides: bool = field(
        default=False,
        metadata=about("Put AGENTS.md of the organisation's folder, and of its own, after the instructions."),
    )


def patterns_of(agent: Agent) -> Sequence[str]:
    """Return the names and patterns of an agent's skills, those that may lead to some."""
    return [it for it in agent.further.get("skills", ()) if not why_no_skills(it)]


def has_guides(agent: Agent) -> bool:
    """Return whether an agent is given guides."""
    return bool(agent.further.get("guides"))


def wrong_patterns(agent: Agent) -> Iterator[tuple[str, str, str]]:
    """Yield the patterns that can lead to no skills: the place, what is wrong, what to write."""
    for index, pattern in enumerate(agent.further.get("skills", ())):
        if why := why_no_skills(pattern):
            yield f"/skills/{index}", f'"{pattern}" {why}', '"pdf-*", or ".claude/skills/*"'


def why_no_skills(pattern: str) -> str:
    """Return why a pattern leads to no skills; empty when it may."""
    *folders, name = pattern.removeprefix("./").split("/")
    if not name or pattern.startswith(("/", "~")) or not {"", ".", ".."}.isdisjoint(folders):
        return "must be a name or a pattern, or one below a folder of the organisation: .claude/skills/*"
    if any(mark in folder for folder in folders for mark in "*?["):
        return "may have * and ? in its last part only"
    return "has characters that no path has" if not pattern.isprintable() or "\\" in pattern else ""
