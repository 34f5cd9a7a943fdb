"""The objects of a commit as bytes: for another machine, and for a clone that borrows nothing."""

from __future__ import annotations

from pathlib import Path

from lemming.capabilities.workers.repositories.collector import EngineRepository
from lemming.capabilities.workers.repositories.git_command import run_git
from lemming.capabilities.workers.repositories.user_repository import UserRepository
from lemming.kernel.files import fs


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
