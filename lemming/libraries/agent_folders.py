"""Folders and files as an agent sees them in a turn: listings, digests, removals."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path

from lemming.kernel.access.agent_files import (
    NOTHING_REMOVED,
    Removed,
    open_target_file,
    open_target_folder,
    read_text,
    scan_folder,
)
from lemming.kernel.access.allowed_paths import AllowedPath, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.stat_cache import lstat, path_exists

LISTING_LIMIT = 1000


def read_allowed_text(agent: Agent, base: Path, path: str, *, caller: str = "context") -> str:
    """Return the text of a file the agent may read. Raise `PermissionDenied` or `ToolError`."""
    return read_text(resolve_path(agent, base, path, "read", caller=caller), {})


def is_readable(target: AllowedPath, staged: Mapping[str, bytes]) -> bool:
    """Return True if a path of the organisation exists, as this turn sees it."""
    is_staged = any(f"{path}/".startswith(f"{target.path_key}/") for path in staged)
    return is_staged or path_exists(f"{target.base}/{target.relative}")


def readable_digest(target: AllowedPath, staged: Mapping[str, bytes]) -> str | None:
    """Return the SHA-256 of a file, in hex, or None if the agent cannot read it."""
    with contextlib.suppress(ToolError):
        return compute_visible_digest(target, staged)
    return None


def compute_visible_digest(target: AllowedPath, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> str:
    """Return the SHA-256 of a file of any size, in hex, as this turn sees it. Raises the errors of `read_text`."""
    if target.path_key in removed:
        raise target.attempt.missing()
    if target.path_key in staged:
        return sha256(staged[target.path_key]).hexdigest()
    with open_target_file(target) as descriptor, open(descriptor, "rb", closefd=False) as file:
        return file_digest(file, "sha256").hexdigest()


def list_folder(
    target: AllowedPath, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED
) -> tuple[list[str], int]:
    """Return the first names of a folder, sorted, and the number of omitted names, as this turn sees it.

    Folders end with `/`, symbolic links with `@`. Raises `PermissionDenied` or `ToolError`.
    """
    names = {
        "".join(letter if letter.isprintable() else "?" for letter in name) + mark
        for name, mark in scan_folder(target, staged, removed).items()
    }
    first_names = heapq.nsmallest(LISTING_LIMIT, names)
    return first_names, len(names) - len(first_names)


def remove_effect(target: AllowedPath, staged: Mapping[str, bytes]) -> FileEffect:
    """Return an effect removing a previously read file. Raises the same errors as `read_text`."""
    seen_digests = (readable_digest(target, staged), readable_digest(target, {}))
    digests = tuple(sorted({digest for digest in seen_digests if digest is not None}))
    if not digests:
        raise target.attempt.missing()
    return FileEffect(target.relative, b"", target.effect_root, digests)


def target_exists(target: AllowedPath, staged: Mapping[str, bytes], removed: Removed = NOTHING_REMOVED) -> bool:
    """Return True if a path exists, as this turn sees it. Raises the same errors as `read_text`."""
    if target.path_key in removed:
        return False
    if target.path_key in staged:
        return True
    *folders, name = target.parts or ["."]
    try:
        with open_target_folder(target, folders) as folder:
            lstat(name, folder)
    except FileNotFoundError:
        return False
    return True
