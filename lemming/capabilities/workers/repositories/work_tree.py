"""Takes the work tree that a worker leaves as git objects.

The tree is hostile. Nothing in it is executed, no link is followed, git gets only names of regular files and links, and
what stays out of the patch is named.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lemming.capabilities.workers.repositories.engine_repository import EngineRepository
from lemming.capabilities.workers.repositories.git_command import GitError, RepositoryError
from lemming.capabilities.workers.repositories.tree_walk import Walk, to_text
from lemming.kernel.base.integers import to_int
from lemming.kernel.files import fs

_PATCH = (
    "diff-tree", "-p", "-r", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv",
    "--diff-algorithm=myers", "-U3",
)  # fmt: skip
_SUBMODULE = b"160000"
MAX_BYTES = 500_000_000
"""Bytes of all new files, and of a patch."""

MAX_LEFT_OUT = 1_000
"""Number of paths that are named as left out."""


@dataclass(frozen=True)
class ChangedFile:
    """A file that a patch changes.

    `path`: text of the path, with `\\xNN` for a byte that is no UTF-8. `status`: A added, M modified, D deleted,
    T changed between file and link. `insertions`, `deletions`: numbers of lines, 0 for binary files.
    """

    path: str
    status: str
    insertions: int
    deletions: int
    is_binary: bool


@dataclass(frozen=True)
class TakenTree:
    """A work tree as objects of the engine's repository.

    `tree`: id of the tree. `patch`: the changes from the base as `git diff --binary` writes them. `left_out`: paths that
    stay as they are in the base, with the reason. `flags`: paths in the patch that deserve attention, with the reason.
    """

    tree: str
    patch: bytes
    files: tuple[ChangedFile, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


def take_tree(
    engine_repo: EngineRepository,
    clone: Path,
    base: str,
    *,
    max_file_bytes: int = 5_000_000,
    max_files: int = 20_000,
) -> TakenTree:
    """Return the work tree in `clone`, compared with the commit `base`. All processes of the worker must have ended.

    `max_file_bytes`: a larger file is left out. `max_files`: number of changed files; raises RepositoryError beyond.
    """
    with engine_repo.open_index(base, clone) as env:
        entries = _parse_entries(engine_repo.run("ls-files", "-s", "-z", env=env))
        submodules = {path for path, (mode, _) in entries.items() if mode == _SUBMODULE}
        walk = Walk(clone, max_file_bytes, submodules)
        new_paths, left_out = _choose_new_paths(engine_repo, entries, walk)
        _require_few(len(new_paths), max_files)
        _require_small(sum(max(0, walk.files[path]) for path in new_paths))
        # Bring the index from the base to the work tree.
        tracked = [path for path in entries if path not in submodules and not walk.is_left_out(path)]
        removed = [path for path in tracked if path not in walk.files]
        # By name alone: where a folder became a link, looking at the old path would lead behind the link.
        engine_repo.run("update-index", "--force-remove", "-z", "--stdin", env=env, stdin=_join(removed))
        present = sorted([*new_paths, *(path for path in tracked if path in walk.files)])
        left_out |= _add_paths(engine_repo, env, present)
        # git passes over a path such as `.GIT/config` with status 0.
        indexed = _parse_entries(engine_repo.run("ls-files", "-s", "-z", env=env)).keys()
        left_out |= dict.fromkeys(set(present) - indexed - left_out.keys(), "git refuses the path")
        tree = engine_repo.read("write-tree", env=env)
    changes = compare_trees(engine_repo, base, tree)
    _require_few(len(changes.files), max_files)
    _require_small(len(changes.patch))
    reasons = {to_text(path): left_out[path] for path in sorted(left_out)[:MAX_LEFT_OUT]}
    if len(left_out) > MAX_LEFT_OUT:
        reasons["..."] = f"{len(left_out) - MAX_LEFT_OUT} more paths"
    return replace(changes, left_out=reasons)


def compare_trees(engine_repo: EngineRepository, base: str, tree: str) -> TakenTree:
    """Return a tree with its changes from the commit `base`."""
    changed = _list_changes(engine_repo, base, tree)
    flags = find_flags(engine_repo, changed, list_tree(engine_repo, tree))
    return TakenTree(tree, engine_repo.run(*_PATCH, base, tree), tuple(changed.values()), flags=flags)


Entries = Mapping[bytes, tuple[bytes, str]]
"""Mode and object id by path."""


def list_tree(engine_repo: EngineRepository, tree: str) -> Entries:
    """Return the files of a tree."""
    return _parse_entries(
        engine_repo.run("ls-tree", "-r", "-z", "--format=%(objectmode) %(objectname)%x09%(path)", tree)
    )


def _parse_entries(listing: bytes) -> Entries:
    rows = (line.partition(b"\t") for line in listing.split(b"\0")[:-1])
    return {path: (facts.split()[0], facts.split()[1].decode()) for facts, _, path in rows}


def _choose_new_paths(
    engine_repo: EngineRepository, entries: Entries, walk: Walk
) -> tuple[list[bytes], dict[bytes, str]]:
    """Return the files that the base does not have and no rule ignores, and the paths that are left out.

    A path that both the base's and the worker's rules ignore is not named: it is what both call a by-product.
    """
    base_rules, own_rules = read_rules(engine_repo, entries), walk.read_rules()
    new_paths = [path for path in walk.files if path not in entries]
    candidates = [*new_paths, *(path for path in walk.left_out if path.rstrip(b"/") not in entries)]
    by_base = find_ignored_paths(engine_repo, base_rules, candidates)
    by_worker = by_base if own_rules == base_rules else find_ignored_paths(engine_repo, own_rules, candidates)
    left_out = {path: reason for path, reason in walk.left_out.items() if path not in by_base & by_worker}
    left_out |= dict.fromkeys(find_top_paths(by_worker, by_base), "ignored by rules that the worker wrote")
    left_out |= dict.fromkeys(find_top_paths(by_base, by_worker), "ignored by rules of the base")
    return [path for path in new_paths if path not in by_base | by_worker], left_out


def _add_paths(engine_repo: EngineRepository, env: Mapping[str, str], paths: list[bytes]) -> dict[bytes, str]:
    """Add files of the work tree to the index; return those that cannot be read, with the reason."""
    if not paths:
        return {}
    try:
        engine_repo.run("update-index", "--add", "--remove", "-z", "--stdin", env=env, stdin=_join(paths))
    except GitError as error:
        if len(paths) == 1:
            return {paths[0]: error.message.partition(": ")[2].splitlines()[0][:200]}
        # A file that cannot be read fails alone, not the whole turn.
        middle = len(paths) // 2
        return _add_paths(engine_repo, env, paths[:middle]) | _add_paths(engine_repo, env, paths[middle:])
    return {}


def _list_changes(engine_repo: EngineRepository, base: str, tree: str) -> dict[bytes, ChangedFile]:
    arguments = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", base, tree)
    fields = engine_repo.run("diff-tree", *arguments).split(b"\0")[:-1]
    count = sum(field.startswith(b":") for field in fields[::2])
    rows = zip(fields[: 2 * count : 2], fields[1 : 2 * count : 2], strict=True)
    statuses = {path: facts.split()[-1].decode() for facts, path in rows}
    files = {}
    for line in fields[2 * count :]:
        insertions, deletions, path = line.split(b"\t", 2)
        is_binary = insertions == b"-"
        counts = (0, 0) if is_binary else (to_int(insertions), to_int(deletions))
        files[path] = ChangedFile(to_text(path), statuses[path], *counts, is_binary)
    return files


def _require_few(count: int, max_files: int) -> None:
    if count > max_files:
        hint = "let the worker's .gitignore name by-products, or divide the work"
        raise RepositoryError(f"patch must change at most {max_files} files, got {count}", hint=hint)


def _require_small(size: int) -> None:
    if size > MAX_BYTES:
        raise RepositoryError(f"patch must have at most {MAX_BYTES} bytes of new files, got {size}")


def _join(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


_NAME = b".gitignore"  # git decides about names


def read_rules(engine_repo: EngineRepository, entries: Entries) -> dict[bytes, bytes]:
    """Return the contents of the .gitignore files among an index's entries."""
    files = [(path, name) for path, (mode, name) in entries.items() if mode.startswith(b"100")]
    names = {path: name for path, name in files if path.rpartition(b"/")[2] == _NAME}
    return dict(zip(names, engine_repo.read_blobs(list(names.values())), strict=True))


def find_ignored_paths(
    engine_repo: EngineRepository, rules: Mapping[bytes, bytes], paths: Collection[bytes]
) -> set[bytes]:
    """Return the paths that the rules ignore, and the folders above the paths that they ignore as a whole.

    `rules`: contents of .gitignore files by path. Folders end in a slash.
    """
    if not paths:
        return set()
    with engine_repo.open_index() as env:
        for path, content in rules.items():
            fs.write_atomic(Path(env["GIT_WORK_TREE"]), os.fsdecode(path), content)
        # "./" keeps a name such as ":(top)x" from being read as a pattern.
        lines = b"".join(b"./" + path + b"\0" for path in {*paths, *_list_folders(paths)})
        env |= {"GIT_LITERAL_PATHSPECS": "0"}
        output = engine_repo.run("check-ignore", "-z", "--stdin", "--no-index", env=env, stdin=lines, accept=(0, 1))
    return {path.removeprefix(b"./") for path in output.split(b"\0")[:-1]}


def find_top_paths(ignored: set[bytes], without: set[bytes]) -> set[bytes]:
    """Return the ignored paths outside of `without` whose folder is not ignored too."""
    paths = ignored - without
    return {path for path in paths if not any(folder in paths for folder in _list_folders([path]))}


def _list_folders(paths: Collection[bytes]) -> set[bytes]:
    folders: set[bytes] = set()
    for path in paths:
        folder = path.rstrip(b"/").rpartition(b"/")[0]
        while folder and folder + b"/" not in folders:
            folders.add(folder + b"/")
            folder = folder.rpartition(b"/")[0]
    return folders


_HARNESS_FOLDERS = frozenset({b".claude", b".pi", b".codex", b".gemini", b".opencode"})
_HARNESS_FILES = frozenset({
    b".mcp.json", b"claude.md", b"claude.local.md", b"agents.md", b"agents.override.md", b"gemini.md", b"opencode.json",
    b"opencode.jsonc",
})  # fmt: skip
_GIT_FILES = frozenset({b".gitattributes", b".gitmodules", b".lfsconfig"})


def find_flags(engine_repo: EngineRepository, changed: Collection[bytes], entries: Entries) -> dict[str, str]:
    """Return the reason for each changed path that deserves attention. `entries`: of the new tree."""
    flags = {to_text(path): reason for path in changed if (reason := _find_name_reason(path))}
    present = [path for path in changed if path in entries]
    links = [path for path in present if entries[path][0] == b"120000"]
    for path, target in zip(links, engine_repo.read_blobs([entries[path][1] for path in links]), strict=True):
        if reason := _find_link_reason(path, target):
            flags[to_text(path)] = reason
    for path, twin in _find_twins(present, entries).items():
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
