"""Runs git on a named repository, with settings that start no programs of the repository.

Rule of this folder: a clone in which a harness has run is hostile. git never runs with such a clone as its repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from lemming.kernel.base.errors import GitFailed
from lemming.kernel.base.integers import to_int

MIN_VERSION = (2, 38)
"""The first git with `merge-tree --write-tree`."""

TIMEOUT_S = 600.0
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
# Settings on the command line outrank those of a repository, so that none of its programs starts and none of its
# preferences changes a tree, a patch or a merge.
_SETTINGS = {
    "core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.untrackedCache": "false", "core.splitIndex": "false",
    "core.attributesFile": os.devnull, "core.excludesFile": os.devnull, "core.protectHFS": "true",
    "core.protectNTFS": "true", "core.symlinks": "true", "core.fileMode": "true", "core.ignoreCase": "false",
    "core.precomposeUnicode": "false", "core.autocrlf": "false", "core.safecrlf": "false", "core.quotePath": "true",
    "core.bigFileThreshold": "512m", "core.sparseCheckout": "false", "core.commentChar": "#", "gc.auto": "0",
    "maintenance.auto": "false", "log.showSignature": "false", "blame.ignoreRevsFile": "", "diff.renames": "false",
    "diff.noprefix": "false", "diff.mnemonicPrefix": "false", "diff.algorithm": "myers", "diff.context": "3",
    "diff.interHunkContext": "0", "diff.indentHeuristic": "true", "diff.suppressBlankEmpty": "false",
    "diff.orderFile": os.devnull, "diff.submodule": "short", "apply.whitespace": "nowarn",
    "apply.ignoreWhitespace": "no", "merge.renames": "true", "merge.directoryRenames": "conflict",
    "merge.conflictStyle": "merge", "merge.renormalize": "false", "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    # A branch must not survive a power loss that its objects do not.
    "core.fsync": "loose-object,pack,pack-metadata,reference", "core.fsyncMethod": "batch",
}  # fmt: skip


class RepositoryError(GitFailed):
    """A repository, a branch or a work tree is in a state that the engine refuses."""


class GitError(RepositoryError):
    """git ended with an error. `status`: exit status, `output`: standard output."""

    def __init__(self, arguments: Sequence[str], status: int, output: bytes, error_output: str, *, where: str) -> None:
        command = " ".join(arguments)[:80]
        super().__init__(f"git {command} exited with {status}: {error_output.strip()[:500]}", where=where)
        self.status, self.output = status, output


def run_git(
    *arguments: str,
    git_dir: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
    cwd: Path | None = None,
) -> bytes:
    """Run git on a repository and return the bytes of standard output.

    `env`: variables besides those of the engine. `accept`: exit statuses without error. Raises `GitError`, and
    `RepositoryError` without git, with an old git or after ten minutes.
    """
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [require_git(), *settings, *arguments]
    return _run(
        command, arguments, stdin, {**_environment(), "GIT_DIR": str(git_dir), **(env or {})}, accept, cwd or git_dir
    )


def read_git(*arguments: str, git_dir: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
    """Run git as `run_git` does and return the text of standard output without surrounding blanks."""
    return run_git(*arguments, git_dir=git_dir, stdin=stdin, env=env).decode("utf-8", "replace").strip()


def is_git_true(*arguments: str, git_dir: Path) -> bool:
    """Return True if a git command that answers a question exits with 0, and False for 1. Raises as `run_git`."""
    try:
        run_git(*arguments, git_dir=git_dir)
    except GitError as error:
        if error.status != 1:
            raise
        return False
    return True


def run_users_git(*arguments: str, folder: Path, accept: Sequence[int] = (0,)) -> bytes:
    """Run git in a folder of the user as the user would, with the user's settings, hooks and filters."""
    # Variables of a git that runs the engine, such as a hook, would lead to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"PATH": _search_path(), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    return _run([require_git(), *arguments], arguments, b"", environment, accept, folder)


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


def _run(
    command: list[str],
    arguments: Sequence[str],
    stdin: bytes,
    environment: Mapping[str, str],
    accept: Sequence[int],
    folder: Path,
) -> bytes:
    try:
        completed = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            check=False,
            cwd=folder,
            env=environment,
            timeout=TIMEOUT_S,
            start_new_session=True,  # Ctrl-C is for the engine; a step under way is finished
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RepositoryError(f"git {arguments[0]}: {error}", where=str(folder)) from error
    if completed.returncode not in accept:
        error_output = completed.stderr.decode("utf-8", "replace")
        raise GitError(arguments, completed.returncode, completed.stdout, error_output, where=str(folder))
    return completed.stdout


def _environment() -> dict[str, str]:
    return {
        "PATH": _search_path(), "LC_ALL": "C", "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_LAZY_FETCH": "1",
    }  # fmt: skip


def _search_path() -> str:
    """Return the search path for programs without relative folders."""
    # "." in PATH would start a program named git that lies in a repository.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))


@cache
def _read_version(program: str) -> tuple[int, int] | None:
    try:
        completed = subprocess.run(
            [program, "--version"],
            capture_output=True,
            check=False,
            text=True,
            cwd="/",
            env={"LC_ALL": "C"},
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.match(completed.stdout)
    return (to_int(match[1]), to_int(match[2])) if match else None
