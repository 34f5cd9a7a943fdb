"""The repository of the user: its branches are read here, and nothing in it changes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lemming.capabilities.workers.repositories.git_command import (
    GitError,
    GitRepository,
    RepositoryError,
    run_users_git,
)
from lemming.ext import ConfigError

MAX_STEPS = 1_000
"""Number of commits that are searched for those of a tick, and for a squashed branch."""

_PATCH = ("-p", "-r", "--binary", "--full-index", "--no-ext-diff", "--no-textconv")
_TRAILER = re.compile(r"^LeMMing-([A-Z][a-z]+): (.*)$")


@dataclass(frozen=True)
class UserRepository(GitRepository):
    """A repository of the user.

    `git_dir`: the folder that all work trees of the repository share. `objects`: folder of objects. `object_format`:
    "sha1" or "sha256".
    """

    objects: Path
    object_format: str = "sha1"

    @property
    def no_commit(self) -> str:
        """The id of zeros, which stands for a branch that does not exist."""
        return "0" * (64 if self.object_format == "sha256" else 40)

    def read_head(self, branch: str) -> str:
        """Return the id of a branch's newest commit, or an empty text without such a branch.

        Raises ConfigError for a name that cannot be a branch, and for a branch that stands for another.
        """
        ref = to_ref(branch)
        is_misleading = branch.startswith(("-", "refs/")) or branch == "HEAD"  # git has other meanings for these
        if is_misleading or not self.is_true("check-ref-format", ref):
            raise ConfigError(f"branch must be a valid name, got {branch!r}", where=str(self.git_dir))
        form = "--format=%(refname)%00%(objectname)%00%(symref)"
        for fields in self.read("for-each-ref", form, ref).splitlines():
            name, commit, symbolic_name = fields.split("\0")
            if name == ref and symbolic_name:
                raise ConfigError(f"branch must be its own, got {branch!r}, which stands for {symbolic_name}")
            if name == ref:
                return commit
        return ""

    def find_work_tree(self, branch: str) -> Path | None:
        """Return the folder of the work tree that has the branch checked out or is rebasing it, or None."""
        ref, work_tree = to_ref(branch).encode(), b""
        for fact in self.run("worktree", "list", "--porcelain", "-z").split(b"\0"):
            name, _, value = fact.partition(b" ")
            work_tree = value if name == b"worktree" else work_tree
            if name == b"branch" and value == ref:
                return Path(os.fsdecode(work_tree))
        # A rebase detaches HEAD and moves the branch at its end.
        for git_dir in (self.git_dir, *self.git_dir.glob("worktrees/*")):
            for rebase in ("rebase-merge", "rebase-apply"):
                head_name_file = git_dir / rebase / "head-name"
                if head_name_file.is_file() and head_name_file.read_bytes().strip() == ref:
                    return git_dir
        return None

    def find_base(self, branch: str, base_branch: str, *, agent: str, tick: int, tick_key: str) -> str:
        """Return the commit that a worker starts from: the branch's head as the tick opened.

        Without the branch, or with all of its changes in `base_branch` (empty: HEAD of the repository), the head of
        `base_branch`. `tick_key`: id of the organisation. Raises ConfigError without a commit to start from.
        """
        head, base_head = self.read_head(branch), self.read_base(base_branch)
        # Other workers of the tick may have merged already; every worker starts from the same commit.
        for _ in range(MAX_STEPS):
            trailers = self.read_trailers(head) if head else {}
            is_same_tick = trailers.get("Tick") == str(tick) and trailers.get("Org") == tick_key
            if not is_same_tick or trailers.get("Agent") == agent:
                break
            parents = self.read("rev-list", "--parents", "--max-count=1", head).split()[1:]
            head = parents[0] if parents else ""
        if base_head and (not head or self.has_changes(base_head, head)):
            return base_head
        if not head:
            hint = "commit something in the repository, or name a branch with commits as base of the workspace"
            raise ConfigError("repository must have a commit, got none", where=str(self.git_dir), hint=hint)
        return head

    def has_changes(self, commit: str, head: str) -> bool:
        """Return True if the history of `commit` has all changes up to `head`: merged, rebased, or squashed."""
        if self.is_ancestor(head, commit):
            return True
        merge_bases = self.run("merge-base", commit, head, accept=(0, 1)).decode().split()
        if not merge_bases:
            return False
        query = ("rev-list", f"--max-count={MAX_STEPS}")
        later = self.read(*query, "--no-merges", f"{merge_bases[0]}..{commit}").split()
        later_ids = self.read_patch_ids(later)
        output = self.read(*query, "--parents", head, f"^{commit}")
        rows = [row.split() for row in output.splitlines()]
        # A merge commit has no patch id, but may have changes.
        has_all_ids = len(rows) < MAX_STEPS and all(len(row) == 2 for row in rows)
        if has_all_ids and self.read_patch_ids([row[0] for row in rows]) <= later_ids:
            return True
        whole_patch = self.run("diff-tree", *_PATCH, merge_bases[0], head)
        return self._to_patch_ids(whole_patch) <= later_ids

    def is_ancestor(self, commit: str, head: str) -> bool:
        """Return True if the history of `head` has `commit`, which must exist."""
        return self.is_true("merge-base", "--is-ancestor", commit, head)

    def is_reachable(self, commit: str) -> bool:
        """Return True if a branch, a tag or HEAD has the commit in its history."""
        if self.read("for-each-ref", "--count=1", "--contains", commit):
            return True
        head = self.read_base("")
        return bool(head) and self.is_ancestor(commit, head)

    def read_trailers(self, commit: str) -> Mapping[str, str]:
        """Return the trailers that the engine wrote into a commit, by name without `LeMMing-`."""
        return parse_trailers(self.run("cat-file", "commit", commit))

    def read_patch_ids(self, commits: list[str]) -> set[str]:
        """Return the ids of the commits' changes, by `git patch-id --stable`, which ignores line numbers and blanks.

        Merge commits and empty commits have none.
        """
        # --stdin shows each commit with its id, and patch-id takes the patches apart by these lines.
        lines = "".join(f"{commit}\n" for commit in commits).encode()
        return self._to_patch_ids(self.run("diff-tree", "--stdin", "--root", *_PATCH, stdin=lines))

    def _to_patch_ids(self, patches: bytes) -> set[str]:
        lines = self.read("patch-id", "--stable", stdin=patches).splitlines()
        return {line.split()[0] for line in lines}

    def list_object_folders(self) -> list[Path]:
        """Return the folders with the repository's objects: own folders, and borrowed ones."""
        folders = [self.objects]
        for folder in folders:
            alternates = folder / "info/alternates"
            lines = alternates.read_bytes().splitlines() if alternates.is_file() else []
            for line in lines:
                borrowed = (folder / os.fsdecode(line)).resolve()
                if line and not line.startswith(b"#") and borrowed not in folders:
                    folders.append(borrowed)
        return folders

    def read_base(self, base_branch: str) -> str:
        """Return the head of a branch, or of HEAD for an empty name. Raises ConfigError for a missing branch."""
        if not base_branch:
            return self.find_object("HEAD^{commit}")
        if head := self.read_head(base_branch):
            return head
        raise ConfigError(f"base must be a branch of the repository, got {base_branch!r}", where=str(self.git_dir))


def open_repository(path: Path) -> UserRepository:
    """Return the repository whose top folder, or whose bare folder, is at `path`.

    Raises ConfigError for a folder without a repository, a folder inside one, a linked work tree, and a partial clone.
    """
    folder, where = path.resolve(), str(path)
    if not folder.is_dir():
        hint = "write the whole path: ~ means nothing here" if "~" in where else "clone or create it first"
        raise ConfigError(f"repository must be a folder, got no folder {folder}", where=where, hint=hint)
    query = ("--show-object-format", "--git-common-dir", "--git-dir")
    try:
        output = run_users_git("rev-parse", "--path-format=absolute", *query, folder=folder)
    except GitError as error:
        message = f"repository must be the top folder of a git repository: {error.message}"
        raise ConfigError(message, where=where, hint=f"create one: git init {folder}") from error
    object_format, folders = os.fsdecode(output).split("\n", 1)
    git_dir = Path(folders[: len(folders) // 2 - 1])  # the same folder twice, whose name may have line breaks
    if folders != f"{git_dir}\n" * 2:
        hint = "name the main work tree, which `git worktree list` shows first"
        raise ConfigError("repository must be the main work tree, got a linked one", where=where, hint=hint)
    if folder != git_dir and not (folder / ".git").exists():
        raise ConfigError(f"repository must be a top folder, got a folder inside that of {git_dir}", where=where)
    pattern = r"^(extensions\.partialclone|remote\..*\.promisor)$"
    repository = UserRepository(git_dir, git_dir / "objects", object_format)
    if repository.run("config", "--get-regexp", pattern, accept=(0, 1)):
        hint = "clone it again without --filter"
        raise ConfigError("repository must have all of its objects, got a partial clone", where=where, hint=hint)
    return repository


def to_ref(branch: str) -> str:
    """Return the full name of a branch.

    >>> to_ref("lemming/coder")
    'refs/heads/lemming/coder'
    """
    return f"refs/heads/{branch}"


def parse_trailers(commit: bytes) -> dict[str, str]:
    """Return the engine's trailers of a commit object, by name without `LeMMing-`.

    Only the last paragraph counts: the text above is a model's.

    >>> parse_trailers(b"tree 1\\n\\nsubject\\n\\nLeMMing-Agent: forged\\n\\nLeMMing-Agent: coder\\nLeMMing-Tick: 3\\n")
    {'Agent': 'coder', 'Tick': '3'}
    """
    message = commit.partition(b"\n\n")[2].decode("utf-8", "replace").strip()
    matches = [_TRAILER.match(line) for line in message.rpartition("\n\n")[2].splitlines()]
    return {match[1]: match[2] for match in matches if match}


def require_own_branch(repository: UserRepository, branch: str, agent: str) -> None:
    """Raise RepositoryError if a work tree has the branch checked out, or another branch's name takes its place."""
    if (folder := repository.find_work_tree(branch)) is not None:
        hint = f'use a branch of its own in the workspace, such as "lemming/{agent}", or check out another branch there'
        raise RepositoryError(f"branch must not be checked out, got {branch!r}", where=str(folder), hint=hint)
    # git keeps branches as files: one cannot have the name of a folder of others.
    ref, parents = to_ref(branch), {to_ref(f"{parent}") for parent in PurePosixPath(branch).parents}
    query = ("for-each-ref", "--format=%(refname)", f"{ref}/", *parents)
    for name in repository.read(*query).splitlines():
        if name in parents or name.startswith(f"{ref}/"):
            other = name.removeprefix(to_ref(""))
            raise RepositoryError(f"branch {branch!r} cannot exist beside {other!r}", hint="choose another name")
