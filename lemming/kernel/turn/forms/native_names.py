"""The names of tools as backends take them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import chain, count

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NAME_CHARS = 64
"""What backends take in names of tools, and how much of it."""


def name_natively(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return what backends are told tools are called: letters, digits, _ and - only, and no two alike.

    `taken`: names that others have already.

    >>> name_natively(["mcp.a.b__c", "mcp.a.b.c", "file_list"])
    {'file_list': 'file_list', 'mcp.a.b.c': 'mcp__a__b__c', 'mcp.a.b__c': 'mcp__a__b__c_2'}
    >>> name_natively(["mcp.a.b"], taken=["mcp__a__b"])
    {'mcp.a.b': 'mcp__a__b_2'}
    """
    fit = {name: NOT_IN_NAMES.sub("__", name)[:NAME_CHARS] for name in names}
    told: dict[str, str] = {}
    all_taken = {*taken}
    for name in sorted(fit, key=lambda name: (fit[name] != name, name)):  # first those that keep their names
        ends = (f"_{number}" for number in count(2))
        numbered = (f"{fit[name][: NAME_CHARS - len(end)]}{end}" for end in ends)
        told[name] = next(each for each in chain([fit[name]], numbered) if each not in all_taken)
        all_taken.add(told[name])
    return told
