"""Runs git on a named repository, with settings that start no programs of the repository.

Rule of this folder: a clone in which a harness has run is hostile. git never runs with such a clone as its repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lemming.kernel.base.errors import GitFailed
from lemming.kernel.base.integers import to_int

MIN_VERSION = (2, 38)
"""The first git with `merge-tree --write-tree`."""

TIMEOUT_S = 600.0
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
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
_ENVIRONMENT = {
    "LC_ALL": "C", "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
}  # fmt: skip


class RepositoryError(GitFailed):
    """A repository, a branch or a work tree is in a state that the engine refuses."""


class GitError(RepositoryError):
    """git ended with an error. `status`: exit status, `output`: standard output."""

    def __init__(self, arguments: list[str], completed: subprocess.CompletedProcess[bytes], *, where: str) -> None:
        self.status, self.output = completed.returncode, completed.stdout
        settings = arguments.count("-c") * 2
        reason = completed.stderr.decode("utf-8", "replace").strip()[:500]
        super().__init__(f"git {' '.join(arguments[settings:])[:80]} exited with {self.status}: {reason}", where=where)


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
        environment = {**_ENVIRONMENT, "PATH": _search_path(), "GIT_DIR": str(self.git_dir), **(env or {})}
        return _run([*settings, *arguments], stdin, environment, accept, cwd or self.git_dir)

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
    environment |= {"PATH": _search_path(), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    return _run([*arguments], b"", environment, (0,), folder)


def require_git() -> str:
    """Return the path of git. Raises `RepositoryError` without git, or with a git that is too old."""
    program, oldest = shutil.which("git", path=_search_path()), ".".join(map(str, MIN_VERSION))
    version = _read_version(program) if program else None
    hint = f"install git {oldest} or newer: workers need it"
    if program is None or version is None:
        raise RepositoryError("git must be installed, got no program of that name", hint=hint)
    if version < MIN_VERSION:
        raise RepositoryError(f"git must be {oldest} or newer, got {'.'.join(map(str, version))}", hint=hint)
    return program


def find_git_version() -> str:
    """Return git's version, such as "2.39", or an empty text without git."""
    program = shutil.which("git", path=_search_path())
    return ".".join(map(str, (_read_version(program) if program else None) or ()))


def _run(
    arguments: list[str], stdin: bytes, environment: Mapping[str, str], accept: Sequence[int], folder: Path
) -> bytes:
    try:
        completed = subprocess.run(
            [require_git(), *arguments], input=stdin, capture_output=True, check=False, cwd=folder, env=environment,
            timeout=TIMEOUT_S, start_new_session=True,  # Ctrl-C is for the engine; a step under way is finished
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RepositoryError(f"git must run: {error}", where=str(folder)) from error
    if completed.returncode not in accept:
        raise GitError(arguments, completed, where=str(folder))
    return completed.stdout


def _search_path() -> str:
    """Return the search path for programs without relative folders."""
    # "." in PATH would start a program named git that lies in a repository.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))


@cache
def _read_version(program: str) -> tuple[int, int] | None:
    try:
        completed = subprocess.run(
            [program, "--version"], capture_output=True, check=False, text=True, cwd="/", env={"LC_ALL": "C"}, timeout=60
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.match(completed.stdout)
    return (to_int(match[1]), to_int(match[2])) if match else None
