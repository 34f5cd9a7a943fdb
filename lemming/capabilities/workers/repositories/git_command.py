"""Runs git on a named repository, with settings that start no programs of the repository.

Rule of this folder: a clone in which a harness has run is hostile. git never runs with such a clone as its repository.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import GitFailed
from lemming.libraries import git_program

MIN_VERSION = (2, 38)
"""The first git with `merge-tree --write-tree`."""

# Settings on the command line outrank those of a repository. The engine's repositories and clones have no others, and of
# a user's repository git runs only commands below, which read no work tree.
_SETTINGS = {
    "core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.protectHFS": "true", "core.protectNTFS": "true",
    "blame.ignoreRevsFile": "",
    # The user's own git may hold the lock of a branch for a moment.
    "core.filesRefLockTimeout": "5000", "core.packedRefsTimeout": "5000",
    # A branch must not survive a power loss that its objects do not.
    "core.fsync": "loose-object,pack,pack-metadata,reference", "core.fsyncMethod": "batch",
}  # fmt: skip


class RepositoryError(GitFailed):
    """A repository, a branch or a work tree is in a state that the engine refuses."""


class GitError(RepositoryError):
    """git ended with an error. `status`: exit status, `output`: standard output."""

    def __init__(self, arguments: Sequence[str], status: int, output: bytes, errors: bytes, *, where: str) -> None:
        self.status, self.output = status, output
        command, reason = arguments[arguments.count("-c") * 2 :], errors.decode("utf-8", "replace").strip()[:500]
        super().__init__(f"git {' '.join(command)[:80]} exited with {status}: {reason}", where=where)


@dataclass(frozen=True)
class GitRepository:
    """A repository on which git runs. `git_dir`: its git directory, which a bare repository is."""

    git_dir: Path

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,), cwd: Path | None = None,
    ) -> bytes:  # fmt: skip
        """Run git and return the bytes of standard output.

        `env`: variables besides those of the engine. `accept`: exit statuses without error. Raises `GitError`, and
        `RepositoryError` without git, with an old git or after ten minutes.
        """
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        environment = {"GIT_DIR": str(self.git_dir), **(env or {})}
        return _run([*settings, *arguments], cwd or self.git_dir, accept, environment=environment, stdin=stdin)

    def read(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """Run git and return the text of standard output without surrounding blanks. Raises as `run`."""
        return self.run(*arguments, stdin=stdin, env=env).decode("utf-8", "replace").strip()

    def find_object(self, name: str) -> str:
        """Return the id of an object, such as `HEAD^{commit}` or `BRANCH:PATH`, or an empty text without one."""
        return self.run("rev-parse", "-q", "--verify", name, accept=(0, 1, 128)).decode().strip()

    def is_true(self, *arguments: str) -> bool:
        """Return True if a git command that answers a question exits with 0, and False for 1. Raises as `run`."""
        try:
            self.run(*arguments)
        except GitError as error:
            if error.status != 1:
                raise
            return False
        return True


def run_users_git(*arguments: str, folder: Path) -> bytes:
    """Run git in a folder of the user as the user would, with the user's settings, hooks and filters."""
    # Variables of a git that runs the engine, such as a hook, would lead to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    return _run(arguments, folder, (0,), environment=environment, is_neutral=False)


def require_git() -> None:
    """Raise `GitFailed` without git, or with a git that is too old."""
    git_program.require_git(MIN_VERSION, "install git {oldest} or newer: workers need it")


def _run(arguments: Sequence[str], folder: Path, accept: Sequence[int], **options: Any) -> bytes:
    require_git()
    end = git_program.run_git(arguments, folder=folder, **options)
    if end.returncode not in accept:
        raise GitError(arguments, end.returncode, end.stdout, end.stderr, where=str(folder))
    return end.stdout
