"""Finds the turn that wrote a line of a file, by `git blame` and the trailers of the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lemming.capabilities.workers.repositories.git_command import RepositoryError, read_git, run_git
from lemming.capabilities.workers.repositories.user_repository import UserRepository, parse_trailers
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.integers import parse_int, to_int


@dataclass(frozen=True, kw_only=True)
class RecordedPatch:
    """A patch of a turn, as the organisation recorded it. `patch`: SHA-256 of the content."""

    agent: str
    tick: int
    turn: str
    patch: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class LineOrigin:
    """The commit that wrote a line, and the turn behind the commit.

    `at`: timestamp of the author. `agent`, `turn`, `patch` are empty, and `tick` is 0, for a commit of a person.
    """

    commit: str
    author: str
    at: str
    agent: str = ""
    tick: int = 0
    turn: str = ""
    patch: str = ""


def find_line_origin(
    repository: UserRepository,
    revision: str,
    path: str,
    line: int,
    *,
    patches: Callable[[], Iterable[RecordedPatch]] | None = None,
) -> LineOrigin:
    """Return the origin of a line, which counts from 1, of a file as it is in `revision`.

    `patches`: gives the recorded patches, newest first. They are asked for a commit without the trailers of a single
    turn, such as a squash of several. Raises RepositoryError without the revision, the file or the line.
    """
    if revision.startswith("-"):
        raise RepositoryError(f"revision must be a branch or a commit, got {revision!r}", where=f"{path}:{line}")
    arguments = ("--porcelain", "--no-textconv", f"-L{line},{line}", revision, "--", path)
    header, _, text = run_git("blame", *arguments, git_dir=repository.git_dir).partition(b"\n\t")
    names, *rows = (row.partition(" ") for row in header.decode("utf-8", "replace").split("\n"))
    facts, commit = {name: value for name, _, value in rows}, names[0]
    at = timestamp(datetime.fromtimestamp(to_int(facts["author-time"]), UTC))
    origin = LineOrigin(commit=commit, author=facts["author"], at=at)
    content = run_git("cat-file", "commit", commit, git_dir=repository.git_dir)
    if content.count(b"LeMMing-Turn: ") == 1 and (trailers := parse_trailers(content)):
        turn, tick = trailers.get("Turn", ""), parse_int(trailers.get("Tick", "")) or 0
        return replace(origin, agent=trailers.get("Agent", ""), tick=tick, turn=turn, patch=trailers.get("Patch", ""))
    patch = _find_patch(repository, commit, text.removesuffix(b"\n"), list(patches() if patches else ()))
    return replace(origin, agent=patch.agent, tick=patch.tick, turn=patch.turn, patch=patch.patch) if patch else origin


def _find_patch(
    repository: UserRepository, commit: str, text: bytes, patches: list[RecordedPatch]
) -> RecordedPatch | None:
    """Return the patch with the same changes as a commit, else the newest one that adds the line."""
    # Each patch gets a number in the place of a commit id, by which git tells them apart.
    contents = [b"From %040d\n%b\n" % (number, patch.content) for number, patch in enumerate(patches)]
    output = read_git("patch-id", "--stable", git_dir=repository.git_dir, stdin=b"".join(contents))
    numbers = {name: to_int(number) for name, number in (row.split() for row in output.splitlines())}
    for name in repository.read_patch_ids([commit]) & numbers.keys():
        return patches[numbers[name]]
    return next((patch for patch in patches if text.strip() and b"\n+" + text + b"\n" in patch.content), None)
