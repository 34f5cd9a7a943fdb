"""Validation of grants in a resume: folders, and memories of other agents. Pure."""

from __future__ import annotations

import re

from lemming.kernel.base import paths

COMPONENT_LIMIT_BYTES = 255
DEPTH_LIMIT = 32

MEMORY_GRANT = re.compile(r"(?P<owner>[^/*]+)/(?P<key>[^/]+)")
"""Form of a memory in `permissions.read_memories`."""


def grant_error(grant: str) -> str:
    """Return the reason a granted folder is invalid, or an empty string.

    >>> grant_error("./shared/news"), grant_error("shared/../config")
    ('', '".." leads outside the granted folders')
    """
    parts = paths.components(grant)
    if reason := unsafe_path_reason(grant, parts):
        return reason
    if "*" in grant:
        return '"*" is not allowed in a folder\'s name; a grant covers all files below a folder'
    if grant.startswith("/") or parts[:1] in (("workspace",), ("shared",)):
        return ""
    return "it must be ./workspace, ./shared, a folder in one of them, or an absolute path"


def unsafe_path_reason(path: str, parts: paths.Components) -> str:
    """Return the reason a path is refused outright, or an empty string."""
    if any(character < " " or character == "\x7f" for character in path):
        return "control characters are not allowed"
    if "\\" in path:
        return 'the separator is "/"'
    if ".." in parts:
        return '".." leads outside the granted folders'
    if parts and parts[0].startswith("~"):
        return '"~" has no meaning here'
    if len(parts) > DEPTH_LIMIT:
        return f"more than {DEPTH_LIMIT} folders deep"
    try:
        longest = max((len(part.encode("utf-8")) for part in parts), default=0)
    except UnicodeEncodeError:
        return "not text"
    return f"a name is longer than {COMPONENT_LIMIT_BYTES} bytes" if longest > COMPONENT_LIMIT_BYTES else ""
