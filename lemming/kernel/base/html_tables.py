"""HTML fragments for reports, in which texts of agents stay plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from lemming.kernel.base.redaction.secrets import redact


def render_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table, or an empty string without rows. `columns` are trusted, cells are not."""
    body = "".join(f"<tr>{''.join(f'<td>{escape_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in columns)
    return f"<table><tr>{head}</tr>{body}</table>" if body else ""


def escape_cell(value: Any) -> str:
    """Return a value as safe HTML: escaped, with line breaks and its own text direction, without secrets.

    >>> escape_cell("<b>a\\u202eb")
    '<bdi dir="auto">&lt;b&gt;a\\\\u202eb</bdi>'
    """
    plain = redact("" if value is None else str(value))
    lines = escape("".join(map(_escape_invisible, plain))).replace("\n", "<br>")
    return f'<bdi dir="auto">{lines}</bdi>'


def _escape_invisible(character: str) -> str:
    """Return a character, or the escaped code of an invisible character."""
    is_visible = character.isprintable() or character.isspace()
    return character if is_visible else f"\\u{ord(character):04x}"
