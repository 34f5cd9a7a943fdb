"""Flags: changed paths that a person or a gate should look at, since they change how programs treat the repository."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from lemming.capabilities.workers.repositories.collector import EngineRepository
from lemming.capabilities.workers.repositories.tree_walk import to_text

_HARNESS_FOLDERS = frozenset({b".claude", b".pi", b".codex", b".gemini", b".opencode"})
_HARNESS_FILES = frozenset({
    b".mcp.json", b"claude.md", b"claude.local.md", b"agents.md", b"agents.override.md", b"gemini.md", b"opencode.json",
    b"opencode.jsonc",
})  # fmt: skip
_GIT_FILES = frozenset({b".gitattributes", b".gitmodules", b".lfsconfig"})


def find_flags(
    collector: EngineRepository, tree: str, modes: Mapping[bytes, str], paths: Iterable[bytes]
) -> dict[str, str]:
    """Return the reason for each changed path of a tree that deserves attention.

    `modes`: the new mode of each changed path, 000000 for deleted files. `paths`: all paths of the tree.
    """
    flags = {to_text(path): reason for path in modes if (reason := _find_name_reason(path))}
    links = [path for path, mode in modes.items() if mode == "120000"]
    names = _read_names(collector, tree, links)
    for path, target in zip(names, collector.read_blobs(list(names.values())), strict=True):
        if reason := _find_link_reason(path, target):
            flags[to_text(path)] = reason
    for path, twin in _find_twins((path for path, mode in modes.items() if mode != "000000"), paths).items():
        flags.setdefault(to_text(path), f"differs only by case from {to_text(twin)}")
    return flags


def _find_name_reason(path: bytes) -> str:
    parts = path.lower().split(b"/")
    if parts[-1] in _GIT_FILES:
        return "changes how git reads the repository"
    if parts[-1] == b"head":
        return "may turn its folder into a git repository"
    if parts[-1] in _HARNESS_FILES or not _HARNESS_FOLDERS.isdisjoint(parts):
        return "settings of a harness"
    return ""


def _read_names(collector: EngineRepository, tree: str, paths: list[bytes]) -> dict[bytes, str]:
    """Return the object ids of paths in a tree."""
    if not paths:
        return {}
    path_set, names = set(paths), {}
    for line in collector.run("ls-tree", "-r", "-z", tree).split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        if path in path_set:
            names[path] = facts.split()[2].decode()
    return names


def _find_link_reason(path: bytes, target: bytes) -> str:
    """Return the reason to look at a link, by its text alone."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith(b"/") or end == b".." or end.startswith(b"../"):
        return f"link out of the tree: {to_text(target)[:200]}"
    if b".git" in end.lower().split(b"/"):
        return f"link into .git: {to_text(target)[:200]}"
    return ""


def _find_twins(changed: Iterable[bytes], paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the changed paths with another path that is the same on a file system without case."""
    changed_names: dict[str, tuple[bytes, bytes]] = {}
    for path in changed:
        for name in _list_prefixes(path):
            changed_names.setdefault(_fold(name), (name, path))
    twins = {}
    for path in paths if changed_names else ():
        for name in _list_prefixes(path):
            other, changed_path = changed_names.get(_fold(name), (name, path))
            if other != name:
                twins[changed_path] = path
    return twins


def _list_prefixes(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _fold(path: bytes) -> str:
    return to_text(path).casefold()
