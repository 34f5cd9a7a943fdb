"""A clone of a worker's own: nothing that the worker does to it reaches the user's branches, settings or hooks.

Not `git clone --shared`, which keeps a remote to the user's repository, and no linked work tree, which shares refs,
stash, settings and hooks.
"""

from __future__ import annotations

from pathlib import Path

from lemming.capabilities.workers.repositories.collector import EngineRepository, create_repository
from lemming.capabilities.workers.repositories.git_command import RepositoryError, run_git
from lemming.capabilities.workers.repositories.user_repository import UserRepository
from lemming.kernel.files import fs

BRANCH = "work"
"""Name of the only branch of a clone."""


def make_clone(
    folder: Path, base: str, *, agent: str, repository: UserRepository | None, bundle: bytes = b"",
    is_full_copy: bool = False,
) -> None:  # fmt: skip
    """Create a clone in `folder`, which must not exist, with the files of the commit `base`.

    Its objects are borrowed from `repository`, or copied from there with `is_full_copy`, or come from `bundle`. A
    borrowing clone can read every object of the repository, also the user's stash. A clone that was cut short has to be
    removed before this is repeated. Raises RepositoryError for a folder that exists.
    """
    if folder.exists():
        raise RepositoryError("folder of a clone must not exist", where=str(folder), hint="remove it: it was cut short")
    settings = "\tbare = false\n\tfilemode = true\n\tlogAllRefUpdates = true\n"
    settings += f"[user]\n\tname = {agent}\n\temail = {to_address(agent)}\n[gc]\n\tauto = 0\n"
    object_format = "sha256" if len(base) == 64 else "sha1"
    is_borrowing = not is_full_copy and not bundle
    create_repository(folder, ".git", repository, settings, is_borrowing=is_borrowing, object_format=object_format)
    git_dir = folder / ".git"
    if bundle:
        load_bundle(git_dir, bundle, base)
    elif repository and is_full_copy:
        load_bundle(git_dir, make_bundle(repository, base, has_history=True), base, has_history=True)
    run_git("update-ref", f"refs/heads/{BRANCH}", base, git_dir=git_dir)
    # No program of anybody has run here yet, so git may still use the clone itself.
    run_git("read-tree", "-u", "--reset", base, git_dir=git_dir, env={"GIT_WORK_TREE": str(folder)}, cwd=folder)


def patch_clone(folder: Path, patch: bytes) -> None:
    """Change the files of a clone by a patch. No program of a worker may have run in the clone.

    Raises RepositoryError for a patch that does not apply, or that would write through a link.
    """
    env = {"GIT_WORK_TREE": str(folder)}
    run_git("apply", "--binary", "--allow-empty", git_dir=folder / ".git", env=env, cwd=folder, stdin=patch)


def to_address(agent: str) -> str:
    """Return the mail address of an agent, in a domain that never exists.

    >>> to_address("coder")
    'coder@lemming.invalid'
    """
    return f"{agent}@lemming.invalid"


def make_bundle(source: EngineRepository | UserRepository, base: str, *, has_history: bool = False) -> bytes:
    """Return a pack with the commit `base` and its files, without earlier commits unless `has_history`."""
    depth = () if has_history else ("--no-walk",)
    objects = run_git("rev-list", "--objects", "--no-object-names", *depth, base, git_dir=source.git_dir)
    return run_git("pack-objects", "--stdout", "-q", git_dir=source.git_dir, stdin=objects)


def load_bundle(git_dir: Path, bundle: bytes, base: str, *, has_history: bool = False) -> None:
    """Store the objects of a bundle of `base` in a repository. Safe to repeat.

    Without history, the repository is marked as shallow, so that git does not look for earlier commits.
    """
    run_git("index-pack", "--stdin", git_dir=git_dir, stdin=bundle)
    shallow = git_dir / "shallow"
    lines = shallow.read_bytes() if shallow.is_file() else b""
    if not has_history and base.encode() not in lines.split():
        fs.write_atomic(git_dir, "shallow", lines + base.encode() + b"\n")
