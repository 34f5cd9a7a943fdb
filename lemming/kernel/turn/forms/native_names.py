"""Tool names in the form that backends accept. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import chain, count

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
NAME_CHARS = 64
"""Characters and length that backends accept in tool names."""


def make_native_names(names: Iterable[str], used_names: Collection[str] = ()) -> dict[str, str]:
    """Return backend names by tool name: only letters, digits, _ and -, all different.

    `used_names`: names already in use.

    >>> make_native_names(["mcp.a.b__c", "mcp.a.b.c", "file_list"])
    {'file_list': 'file_list', 'mcp.a.b.c': 'mcp__a__b__c', 'mcp.a.b__c': 'mcp__a__b__c_2'}
    >>> make_native_names(["mcp.a.b"], used_names=["mcp__a__b"])
    {'mcp.a.b': 'mcp__a__b_2'}
    """
    sanitized = {name: NOT_IN_NAMES.sub("__", name)[:NAME_CHARS] for name in names}
    native_names: dict[str, str] = {}
    all_used = {*used_names}
    for name in sorted(
        sanitized, key=lambda name: (sanitized[name] != name, name)
    ):  # names that stay unchanged come first
        ends = (f"_{number}" for number in count(2))
        numbered = (f"{sanitized[name][: NAME_CHARS - len(end)]}{end}" for end in ends)
        native_names[name] = next(
            candidate for candidate in chain([sanitized[name]], numbered) if candidate not in all_used
        )
        all_used.add(native_names[name])
    return native_names
