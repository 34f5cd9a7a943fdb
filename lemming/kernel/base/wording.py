"""Wording for people. Pure."""

from __future__ import annotations


def format_count(number: int | float, noun: str, plural: str = "") -> str:
    """Return a number with the noun.

    >>> format_count(1, "entry", "entries"), format_count(2.5, "credit")
    ('1 entry', '2.5 credits')
    """
    return f"{number:g} {noun if number == 1 else plural or noun + 's'}"
