"""The parts of a prompt with text of others: what stands in them, and what that adds to the mark. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from lemming.messages import OutboxEntry
from lemming.quoting import fenced
from lemming.turn.labels import Labels

Section = tuple[str, str, str, str]
"""A title, a text, what stands for that as the mark is made, and what the section says without one."""

_digest_of = attrgetter("line_digest")


def of_text(title: str, text: str, when_empty: str = "none") -> Section:
    """Return a section of text, which is quoted already."""
    return title, text, text, when_empty


def of_entries(title: str, entries: Iterable[OutboxEntry], labels: Labels) -> Section:
    """Return a section of entries, one a line; for the mark the digests of their lines stand for them."""
    return title, "\n".join(map(labels.line, entries)), "".join(map(_digest_of, entries)), "none"


def fenced_section(section: Section, mark: str) -> str:
    """Return a section as the prompt shows it."""
    title, text, _, when_empty = section
    return f"# {title}\n{fenced(text, mark)}" if text else f"# {title}\n({when_empty})"
