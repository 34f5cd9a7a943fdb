"""Wording for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def format_count(number: int | float, noun: str, plural: str = "") -> str:
    """Return a number with the noun.

    >>> format_count(1, "entry", "entries"), format_count(2.5, "credit"), format_count(1_000_000, "credit")
    ('1 entry', '2.5 credits', '1000000 credits')
    """
    return f"{number:.10g} {noun if number == 1 else plural or noun + 's'}"


def format_usd(amount: float | None, *, calls: int = 1, unpriced: int = 0) -> str:
    """Format the cost of calls; None means that no call has a price. `unpriced`: number of further calls without a price.

    >>> format_usd(0.003), format_usd(0.003, unpriced=2), format_usd(None), format_usd(None, calls=0)
    ('$0.0030', '$0.0030 or more', 'no price', '-')
    """
    if amount is None:
        return "no price" if calls else "-"
    return f"${amount:.4f}{' or more' if unpriced else ''}"


def join_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names as text, and the number of the others.

    >>> join_names(["ada", "bob"], 2), join_names(["ada", "bob", "cid"], 1)
    ('ada, bob', 'ada and 2 more')
    """
    suffix = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{suffix}"


def shorten_line(text: str, max_chars: int) -> str:
    """Return a text on one line of at most `max_chars` characters.

    >>> shorten_line("two  \\n lines", 20), shorten_line("two lines", 6)
    ('two lines', 'two l…')
    """
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max(max_chars - 1, 0)].rstrip()}…"


def to_text(value: Any) -> str:
    """Return a string unchanged, and any other value as JSON on one line."""
    from lemming.kernel.base.jsontext import dump_compact

    return value if isinstance(value, str) else dump_compact(value).decode()
