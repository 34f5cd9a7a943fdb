"""Merges a branch of workers into a branch of the user, as a person asks for it by `lemming merge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lemming.capabilities.workers.repositories.collector import EngineRepository
from lemming.capabilities.workers.repositories.git_command import RepositoryError, run_users_git
from lemming.capabilities.workers.repositories.merging import copy_commit, create_commit, merge_heads, move_branch
from lemming.capabilities.workers.repositories.user_repository import UserRepository
from lemming.ext import ConfigError

MAX_NAMES = 20
"""Number of files in conflict that an error names."""


@dataclass(frozen=True)
class BranchMerge:
    """The end of a merge of two branches. `commit`: the target's head now."""

    commit: str
    kind: Literal["already", "fast-forward", "merge"]


def merge_branch(
    collector: EngineRepository, repository: UserRepository, source_branch: str, target_branch: str
) -> BranchMerge:
    """Merge one branch of the user's repository into another, by a fast-forward if possible.

    A merge commit has the identity of git's settings. The target may be checked out in a clean work tree: then the user's
    own git updates the files, with hooks and filters. Raises ConfigError without one of the branches, and RepositoryError
    for conflicts, a work tree with changes, and a target that moved meanwhile.
    """
    source, target = _require_head(repository, source_branch), _require_head(repository, target_branch)
    if repository.is_ancestor(source, target):
        return BranchMerge(target, "already")
    work_tree = repository.find_work_tree(target_branch)
    if work_tree and run_users_git("status", "--porcelain", "--untracked-files=no", folder=work_tree):
        hint = "commit or stash them, then repeat"
        raise RepositoryError(f"work tree of {target_branch!r} must have no changes", where=str(work_tree), hint=hint)
    if repository.is_ancestor(target, source):
        merge = BranchMerge(source, "fast-forward")
    else:
        commit = _create_merge(collector, repository, [target, source], f"Merge branch {source_branch!r}")
        copy_commit(collector, repository, commit, [target, source])
        merge = BranchMerge(commit, "merge")
    if work_tree:
        # Refuses a target that moved, and files in the way that git does not track.
        run_users_git("merge", "--ff-only", "--quiet", merge.commit, folder=work_tree)
    elif not move_branch(repository, target_branch, merge.commit, target, f"merge {source_branch}", "lemming"):
        raise RepositoryError(f"branch {target_branch!r} must not move meanwhile", hint="repeat the command")
    return merge


def _require_head(repository: UserRepository, branch: str) -> str:
    if head := repository.read_head(branch):
        return head
    raise ConfigError(f"branch must exist, got {branch!r}", where=str(repository.git_dir))


def _create_merge(collector: EngineRepository, repository: UserRepository, heads: list[str], message: str) -> str:
    files_or_tree = merge_heads(collector, *heads)
    if not isinstance(files_or_tree, str):
        names = ", ".join(sorted(files_or_tree)[:MAX_NAMES])
        hint = "merge by hand: git merge, then solve them"
        raise RepositoryError(f"branches must merge without conflicts, got {len(files_or_tree)}: {names}", hint=hint)
    return create_commit(collector, files_or_tree, heads, message, _read_identity(repository.git_dir))


def _read_identity(git_dir: Path) -> tuple[str, str, str]:
    """Return name, address and date as git would write them now. Raises GitError with git's advice without a name."""
    identity = run_users_git("var", "GIT_COMMITTER_IDENT", folder=git_dir).decode("utf-8", "replace").strip()
    name, _, facts = identity.rpartition(" <")
    address, _, date = facts.partition("> ")
    return name, address, date
