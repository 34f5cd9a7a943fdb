"""Merges as journals record them: compared with the repositories, and found again by a line of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

from lemming.capabilities.workers.merge_tool import MERGE, load_patch, patch_file
from lemming.capabilities.workers.repositories.git_command import RepositoryError, require_git
from lemming.capabilities.workers.repositories.user_repository import (
    UserRepository,
    open_repository,
    parse_trailers,
    to_ref,
)
from lemming.capabilities.workers.workspace_settings import get_workspace, locate_repository
from lemming.ext import LemmingError, Problem
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.verify.journal_facts import make_mismatch
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState, UsageError
from lemming.kernel.base.integers import parse_int, to_int
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks, raw_journal, read_journal
from lemming.kernel.journal.journal_records import ToolFinished, TurnStarted
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.queries.line_trace import LineTrace

_CALL = f'"tool":"{MERGE}"'.encode()


@dataclass(frozen=True, kw_only=True)
class RecordedMerge:
    """A merge that a turn has made. `key`: of the turn. `index`: of the call. `git_dir`: the repository as the turn began."""

    tick: int
    key: str
    agent: str
    index: int
    commit: str
    branch: str
    git_dir: str = ""


def iter_merges(org: Organisation, ticks: Iterable[int]) -> Iterator[RecordedMerge]:
    """Yield the merges of these ticks. A damaged journal is left out."""
    for tick in ticks:
        with suppress(CorruptState):
            if _CALL in raw_journal(org, tick):
                yield from _read_merges(org, tick)


def _read_merges(org: Organisation, tick: int) -> Iterator[RecordedMerge]:
    git_dirs: dict[str, str] = {}
    for record in read_journal(org, tick):
        if isinstance(record, TurnStarted):
            git_dirs[record.turn_key] = str(record.given.get("workers", {}).get("repository", ""))
        elif isinstance(record, ToolFinished) and record.tool == MERGE and record.success:
            output = parse_object_or_empty(record.output)
            if output.get("merged"):
                key = turn_key(record.agent, record.index // NUMBERS_PER_TURN)
                yield RecordedMerge(
                    tick=tick, key=key, agent=record.agent, index=record.index, git_dir=git_dirs.get(key, ""),
                    commit=str(output["merged"]), branch=str(output["branch"]),
                )  # fmt: skip


def find_merge_problems(org: Organisation, ticks: Iterable[int]) -> Iterator[Problem]:
    """Yield the recorded merges missing from their repositories, and the damaged patches.

    Commits are named by their content, so a commit in the repository has the recorded files. A branch removed by the
    user, and a missing repository, are no errors.
    """
    tick_list, folder = [*ticks], Path(org.base) / paths.PATCHES
    for name in fs.list_names(folder) if folder.is_dir() else ():
        try:
            load_patch(org, name.removesuffix(".patch"))
        except LemmingError as error:
            yield make_mismatch(max(tick_list, default=0), f"{paths.PATCHES}/{name}", "damage", error.message)
    repositories: dict[str, UserRepository | None] = {}
    for merge in iter_merges(org, tick_list) if folder.is_dir() or _list_workspaces(org) else ():
        try:
            if merge.git_dir not in repositories:
                repositories[merge.git_dir] = _find_repository(merge.git_dir)
            yield from _check_merge(org, merge, repositories[merge.git_dir])
        except LemmingError as error:
            place = f"{merge.branch} of {merge.git_dir}"
            yield make_mismatch(merge.tick, place, "damage", f"commit {merge.commit[:12]}: {error.message}")


def _check_merge(org: Organisation, merge: RecordedMerge, repository: UserRepository | None) -> Iterator[Problem]:
    place, subject = f"{merge.branch} of {merge.git_dir}", f"commit {merge.commit[:12]} of {merge.agent}"
    if repository is None:
        yield make_mismatch(
            merge.tick, place, "missing", f"{subject} was merged, and there is no repository now", is_error=False
        )
        return
    head = repository.read_head(merge.branch)
    has_commit = repository.find_object(f"{merge.commit}^{{commit}}")
    if not has_commit or not (head and repository.is_ancestor(merge.commit, head)):
        if not (has_commit and repository.is_reachable(merge.commit)):
            reason = "is gone from the branch's history" if head else "is gone with its branch"
            yield make_mismatch(merge.tick, place, "missing", f"{subject} {reason}", is_error=bool(head))
        return
    file = patch_file(repository.read_trailers(merge.commit).get("Patch", ""))
    if not (Path(org.base) / file).exists():
        yield make_mismatch(merge.tick, file, "missing", f"does not exist; {subject} was made from it")


def _find_repository(git_dir: str) -> UserRepository | None:
    """Return the repository of a git directory, or None if no repository is left. Raises `RepositoryError` without git."""
    require_git()
    path = Path(git_dir)
    for folder in (path, path.parent) if git_dir else ():
        with suppress(ConfigError, RepositoryError):
            return open_repository(folder)
    return None


def find_line(org: Organisation, target: str, branch: str = "") -> tuple[LineTrace, str] | None:
    """Return the line at `PATH:LINE` and the call that merged it, or None for a path of no repository.

    PATH is absolute, relative to the current folder, or inside the repository of a workspace. Without `branch`, the line
    is that of the commit that the user has checked out, else of a worker's branch. Raises `UsageError` without the line.
    """
    path, colon, number = target.rpartition(":")
    if not colon or not number.isdecimal() or not 0 < len(number) < 10:
        return None
    is_file = False
    for folder, branches in _list_workspaces(org).items():
        repository = _find_repository(f"{folder}")
        if repository is None:
            continue
        names = [*dict.fromkeys(filter(None, (_locate(folder, Path.cwd() / path), _locate(folder, folder / path))))]
        for revision, name in product([branch] if branch else ["HEAD", *branches], names):
            try:
                patches = partial(_iter_patches, org)
                line, call = find_line_origin(repository, revision, name, to_int(number), patches=patches)
                return replace(line, repository=f"{folder}"), call
            except RepositoryError:
                is_file = is_file or bool(repository.find_object(f"{_to_revision(revision)}:{name}"))
    if is_file:
        hint = "see `git log` for branches"
        raise UsageError(f"{target} must be a line of the file, got none of that number", hint=hint)
    return None


def _to_revision(branch: str) -> str:
    return branch if branch == "HEAD" else to_ref(branch)


def _list_workspaces(org: Organisation) -> dict[Path, list[str]]:
    """Return the branches that agents merge into, by folder of the repository. An unusable folder is left out."""
    workspaces: dict[Path, list[str]] = {}
    for name, agent in survey_agents(org).agents.items():
        if settings := get_workspace(agent):
            folder = locate_repository(org.base, settings.repository).resolve()
            if folder.is_dir():
                workspaces.setdefault(folder, []).append(settings.branch_name(name))
    return workspaces


def _locate(folder: Path, path: Path) -> str:
    """Return a path relative to the folder of a repository, or an empty text for a path outside."""
    name = os.path.relpath(os.path.join(os.path.realpath(path.parent), path.name), folder)
    return "" if name == os.curdir or name.startswith(os.pardir) else name


def _iter_patches(org: Organisation) -> Iterator[RecordedPatch]:
    """Yield the patches of recorded merges, newest first."""
    for merge in iter_merges(org, reversed(journal_ticks(org))):
        with suppress(LemmingError):
            turn = load_tick_record(org, merge.tick).find_turn(merge.key)
            for call in turn.tools if turn else ():
                if call.index == merge.index:
                    name, patch = f"{merge.tick}/{merge.agent}/{merge.index}", call.args["patch"]
                    content = load_patch(org, patch)
                    yield RecordedPatch(agent=merge.agent, tick=merge.tick, turn=name, patch=patch, content=content)


@dataclass(frozen=True, kw_only=True)
class RecordedPatch:
    """A patch of a turn, as the organisation recorded it. `patch`: SHA-256 of the content."""

    agent: str
    tick: int
    turn: str
    patch: str
    content: bytes


def find_line_origin(
    repository: UserRepository,
    revision: str,
    path: str,
    line: int,
    *,
    patches: Callable[[], Iterable[RecordedPatch]] | None = None,
) -> tuple[LineTrace, str]:
    """Return a line of a file in a branch or HEAD, and the name of the call that merged it.

    `line`: counts from 1. The name is empty for a commit of a person. `patches`: gives the recorded patches, newest
    first. They are asked for a commit without the trailers of a single turn, such as a squash of several. Raises
    RepositoryError without the branch, the file or the line.
    """
    arguments = ("--porcelain", "--no-textconv", f"-L{line},{line}", _to_revision(revision), "--", path)
    header, _, text = repository.run("blame", *arguments).partition(b"\n\t")
    names, *rows = (row.partition(" ") for row in header.decode("utf-8", "replace").split("\n"))
    facts, commit, text = {name: value for name, _, value in rows}, names[0], text.removesuffix(b"\n")
    trace = LineTrace(
        repository=f"{repository.git_dir}", revision=revision, path=path, line=line, commit=commit,
        content=text.decode("utf-8", "replace"), author=facts["author"],
        at=timestamp(datetime.fromtimestamp(to_int(facts["author-time"]), UTC)),
    )  # fmt: skip
    content = repository.run("cat-file", "commit", commit)
    if content.count(b"LeMMing-Turn: ") == 1 and (trailers := parse_trailers(content)):
        agent, tick, patch = (trailers.get(name, "") for name in ("Agent", "Tick", "Patch"))
        return _add_turn(trace, agent, parse_int(tick) or 0, patch), trailers.get("Turn", "")
    recorded = _find_patch(repository, commit, text, list(patches() if patches else ()))
    if recorded is None:
        return trace, ""
    return _add_turn(trace, recorded.agent, recorded.tick, recorded.patch), recorded.turn


def _add_turn(trace: LineTrace, agent: str, tick: int, patch: str) -> LineTrace:
    return replace(trace, agent=agent, tick=tick, merge_tick=tick, patch=patch)


def _find_patch(
    repository: UserRepository, commit: str, text: bytes, patches: list[RecordedPatch]
) -> RecordedPatch | None:
    """Return the patch with the same changes as a commit, else the newest one that adds the line."""
    # Each patch gets a number in the place of a commit id, by which git tells them apart.
    contents = [b"From %040d\n%b\n" % (number, patch.content) for number, patch in enumerate(patches)]
    output = repository.read("patch-id", "--stable", stdin=b"".join(contents))
    numbers = {name: to_int(number) for name, number in (row.split() for row in output.splitlines())}
    for name in repository.read_patch_ids([commit]) & numbers.keys():
        return patches[numbers[name]]
    return next((patch for patch in patches if text.strip() and b"\n+" + text + b"\n" in patch.content), None)
