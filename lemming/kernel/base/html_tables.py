"""Small pieces of HTML, for notebooks and reports, in which whatever an agent wrote stays a text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from lemming.kernel.base.redaction.secrets import redact


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; empty without rows. `heads` are our own words, cells anybody's."""
    told = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    return f"<table><tr>{head}</tr>{told}</table>" if told else ""


def text(value: Any) -> str:
    """Return a value as a text that stays one, its lines too, keeps its direction and tells no secret.

    >>> text("<b>a\\u202eb")
    '<bdi dir="auto">&lt;b&gt;a\\\\u202eb</bdi>'
    """
    plain = redact("" if value is None else str(value))
    lines = escape("".join(map(_visible, plain))).replace("\n", "<br>")
    return f'<bdi dir="auto">{lines}</bdi>'


def _visible(letter: str) -> str:
    """Return a letter, or the number of one that nobody sees."""
    is_seen = letter.isprintable() or letter.isspace()
    return letter if is_seen else f"\\u{ord(letter):04x}"
