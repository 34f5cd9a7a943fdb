"""The program git: its version, and a start that reads no settings of users or machines.

Used for repositories that belong to the engine. Only plumbing commands: no hooks, no signatures, no prompts.
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

TIMEOUT_S = 600.0
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
_NEUTRAL = {
    "LC_ALL": "C", "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # nothing is ever fetched, whatever a foreign repository promises
    "GIT_NO_REPLACE_OBJECTS": "1",  # otherwise refs/replace could replace recorded objects
    "GIT_OPTIONAL_LOCKS": "0",  # or looking would write the index beside a running engine
    "GIT_LITERAL_PATHSPECS": "1",  # a file may be called `*` or `:(top)`
}  # fmt: skip


def run_git(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], stdin: bytes = b"",
    is_neutral: bool = True,
) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """Run git in a folder and return its end, whatever its status.

    `environment`: variables; with `is_neutral` besides those that keep settings of users and machines away. Raises
    `GitFailed` if git cannot be started, or after ten minutes.
    """
    path = _find_search_path()
    try:
        return subprocess.run(
            [shutil.which("git", path=path) or "git", *arguments], input=stdin, capture_output=True, check=False,
            cwd=folder, env={**(_NEUTRAL if is_neutral else {}), **environment, "PATH": path}, timeout=TIMEOUT_S,
            start_new_session=True,  # Ctrl-C is for the engine; a step under way is finished
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git must run: {error}", where=str(folder)) from error


def require_git(oldest: tuple[int, int], hint: str) -> None:
    """Raise `GitFailed` without git, or for a version before `oldest`. `hint`: what to do, with {oldest}."""
    version, text = find_git_version(), ".".join(map(str, oldest))
    hint = hint.format(oldest=text)
    if version is None:
        raise GitFailed("git must be installed, got no program of that name", hint=hint)
    if version < oldest:
        raise GitFailed(f"git must be {text} or newer, got {'.'.join(map(str, version))}", hint=hint)


def find_git_version() -> tuple[int, int] | None:
    """Return the version of the installed git, or None."""
    return _probe_version(shutil.which("git", path=_find_search_path()))


def _find_search_path() -> str:
    """Return the search path for programs without relative folders."""
    # "." or "" in PATH would start a program named git that lies in a repository.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))


@cache
def _probe_version(program: str | None) -> tuple[int, int] | None:
    if program is None:
        return None
    try:
        completed = subprocess.run(
            [program, "--version"], capture_output=True, check=False, text=True, cwd="/", env={"LC_ALL": "C"}, timeout=60
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.match(completed.stdout)
    return (to_int(match[1]), to_int(match[2])) if match else None
