"""Words for people. Pure."""

from __future__ import annotations


def counted(number: int | float, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "entry", "entries"), counted(2.5, "credit")
    ('1 entry', '2.5 credits')
    """
    return f"{number:g} {noun if number == 1 else plural or noun + 's'}"
