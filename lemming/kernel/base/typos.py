"""Typos: two words that differ by a single edit."""

from __future__ import annotations

import re
from difflib import SequenceMatcher


def is_typo(name: str, other: str) -> bool:
    """Return True if two words differ by a single edit, so one is likely a typo of the other."""
    if _COUNTERS.findall(name) != _COUNTERS.findall(other):
        return False
    name, other = ("".join(_SEPARATED.split(text.lower())) for text in (name, other))
    shorter = min(len(name), len(other))
    if name == other or shorter < 3 or (shorter == 3 and len(name) == len(other)):
        return name == other
    return _is_single_edit(name, other) or SequenceMatcher(None, name, other).ratio() > 0.87


def _is_single_edit(name: str, other: str) -> bool:
    """Return True if the names differ by one extra, missing or wrong letter, or by two swapped letters."""
    start = next((at for at, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), len(name))
    name_end, other_end = name[start:], other[start:]
    return (
        name_end[1:] == other_end or name_end == other_end[1:] or name_end[1:] == other_end[1:]
        or (name_end[:2] == other_end[1::-1] and name_end[2:] == other_end[2:])
    )  # fmt: skip


_SEPARATED = re.compile(r"[-_. ]")


_COUNTERS = re.compile(r"[0-9]+|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])")
