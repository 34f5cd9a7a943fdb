"""A new repository of the user with one commit, whose id depends on the files alone."""

from __future__ import annotations

from pathlib import Path

from lemming.capabilities.workers.repositories.git_command import read_git, run_git, run_users_git

_AUTHOR = {"NAME": "LeMMing", "EMAIL": "lemming@lemming.invalid", "DATE": "2026-11-23T09:00:00Z"}


def make_repository(folder: Path) -> str:
    """Make a folder with files a repository with one commit on `main`. Return the commit.

    Raises `RepositoryError` without git, and for a folder that git refuses.
    """
    run_users_git("init", "-q", "-b", "main", "--template=", "--object-format=sha1", folder=folder)
    git_dir = folder / ".git"
    run_git("add", "-A", git_dir=git_dir, env={"GIT_WORK_TREE": f"{folder}"}, cwd=folder)
    people = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _AUTHOR.items()}
    run_git("commit", "-q", "-m", "begin", git_dir=git_dir, env={"GIT_WORK_TREE": f"{folder}", **people}, cwd=folder)
    return read_git("rev-parse", "main", git_dir=git_dir)
