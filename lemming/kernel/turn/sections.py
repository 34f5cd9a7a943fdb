"""The parts of a prompt with text of others: what stands in them, and what that adds to the mark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.labels import Labels

Section = tuple[str, Sequence[str], bytes, str]
"""A title, lines, what stands for those as the mark is made, and what the section says without any."""

_digest_of = attrgetter("line_digest")


def of_text(title: str, text: str, when_empty: str = "none") -> Section:
    """Return a section of text, which is quoted already."""
    return title, text.split("\n") if text else (), text.encode("utf-8", "replace"), when_empty


def of_entries(title: str, entries: Iterable[OutboxEntry], labels: Labels) -> Section:
    """Return a section of entries, one a line; for the mark the digests of their lines stand for them."""
    return title, [*map(labels.line, entries)], b"".join(map(_digest_of, entries)), "none"


def shown(section: Section, opens: str, closes: str) -> Sequence[str]:
    """Return the lines of a section as the prompt shows it; the marks open and close what others wrote."""
    title, lines, _, when_empty = section
    return (f"# {title}", opens, *lines, f"{closes}\n") if lines else (f"# {title}\n({when_empty})\n",)
