"""Repositories as users have them: hooks, settings, a stash, a second work tree, and work that is not committed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lemming.capabilities.workers.repositories.engine_repository import (
    EngineRepository,
    make_clone,
    open_engine_repository,
)
from lemming.capabilities.workers.repositories.merging import MergeOrder
from lemming.capabilities.workers.repositories.user_repository import UserRepository, open_repository
from lemming.capabilities.workers.repositories.work_tree import TakenTree, take_tree

AT = "2026-11-29T12:00:00.000Z"
HOOKS = ("post-checkout", "reference-transaction", "pre-commit", "post-index-change", "post-merge", "update")
FIXED = {
    "GIT_AUTHOR_DATE": "1780000000 +0000", "GIT_COMMITTER_DATE": "1780000000 +0000",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.invalid",
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder as the user, and return the output without blanks around it."""
    environment = {**os.environ, **FIXED}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def commit(folder: Path, message: str, **files: str | bytes) -> str:
    """Write files (with `__` for a dot, `___` for a slash), commit everything, and return the id."""
    for name, content in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", "add", "-A")
    git(folder, "-c", "core.hooksPath=/dev/null", "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def make_user_repository(folder: Path) -> None:
    """Create a repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "core.autocrlf", "input")
    git(folder, "config", "merge.conflictStyle", "diff3")
    shared = "".join(f"line {number}\n" for number in range(40))
    files: dict[str, str | bytes] = {"shared__txt": shared, "crlf__txt": b"one\r\ntwo\r\n", "latin__txt": b"caf\xe9\n"}
    attributes = "*.u16 working-tree-encoding=UTF-16 text\n*.lock merge=union\n"
    commit(folder, "first", **files, __gitattributes=attributes, __gitignore="*.o\nbuild/\n", src___a__py="a = 1\n")
    (folder / "shared.txt").write_text("unsaved work\n")
    git(folder, "stash")
    git(folder, "worktree", "add", "-q", "-b", "other", str(folder.with_name("other")))
    for name in HOOKS:
        hook = folder / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {folder.with_name('hooks-ran')}\n")
        hook.chmod(0o755)
    (folder / "shared.txt").write_text("work in progress\n")


def take_snapshot(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a repository except objects, and refs and logs of `lemming/*`."""
    snapshot = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(".git/objects") and "/heads/lemming/" not in name:
            snapshot[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return snapshot


@dataclass
class Bench:
    """A user's repository at `folder` and an engine's repository beside it."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "user/repo"

    @property
    def repository(self) -> UserRepository:
        return open_repository(self.folder)

    @property
    def engine_repository(self) -> EngineRepository:
        return open_engine_repository(self.root / "engine/collector.git", self.repository)

    @property
    def head(self) -> str:
        return git(self.folder, "rev-parse", "main")

    def clone(self, name: str = "one", base: str = "", agent: str = "coder") -> Path:
        """Make a private clone and return its folder."""
        folder = self.root / "engine" / name / "clone"
        make_clone(folder, base or self.head, agent=agent, repository=self.repository)
        return folder

    def take(self, clone: Path, base: str = "", **limits: int) -> TakenTree:
        """Take the work tree of a clone."""
        return take_tree(self.engine_repository, clone, base or self.head, **limits)

    def order(self, taken: TakenTree, base: str = "", agent: str = "coder", tick: int = 1) -> MergeOrder:
        """Return the order to merge a tree into `lemming/team`."""
        return MergeOrder(
            agent=agent, branch="lemming/team", base=base or self.head, tree=taken.tree, at=AT, org="org-1",
            patch=hashlib.sha256(taken.patch).hexdigest(), tick=tick, turn=f"{tick}-{agent}", summary=f"Work of {agent}",
        )  # fmt: skip
