"""Prompt sections with text of other authors: their lines, and their contribution to the mark. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.prompt_labels import PromptLabels

Section = tuple[str, Sequence[str], bytes, str]
"""A title, the lines, their stand-in while the mark is computed, and the text without lines."""

_digest_of = attrgetter("line_digest")


def text_section(title: str, text: str, when_empty: str = "none") -> Section:
    """Return a section of already quoted text."""
    return title, text.split("\n") if text else (), text.encode("utf-8", "replace"), when_empty


def entries_section(title: str, entries: Iterable[OutboxEntry], labels: PromptLabels) -> Section:
    """Return a section of entries, one a line. The mark depends on the digests of the lines."""
    return title, [*map(labels.line, entries)], b"".join(map(_digest_of, entries)), "none"


def render_section(section: Section, begin_mark: str, end_mark: str) -> Sequence[str]:
    """Return the lines of a section, with text of other authors between the marks."""
    title, lines, _, when_empty = section
    return (f"# {title}", begin_mark, *lines, f"{end_mark}\n") if lines else (f"# {title}\n({when_empty})\n",)
