"""Read the history of an organisation: commits, files after a tick, and changes between ticks.

Reading changes nothing and is safe beside a running engine. Content of a commit: docs/history.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lemming.git_history.git_repository import BRANCH, EMPTY_TREE, FOLDER, Repository
from lemming.git_history.recorder import foreign_commit_error, list_changing_ticks, list_external_roots, parse_trailers
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.tick.tick_counter import load_tick

NOW = "now"
_ID = re.compile(r"@([0-9a-f]{4,64})\Z")
_TICK = re.compile(r"\d{1,12}\Z")
_KINDS = {"A": "added", "M": "modified", "D": "deleted", "T": "modified"}


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Files at one time: after `tick`, or, for a commit by hand (between two ticks), before `tick`.

    `first_tick`: the first tick of a commit with changes of several ticks, otherwise `tick`. `agents`: the agents with
    turns. `calls`: number of model calls. `cost_usd`: None if no price is known.
    """

    id: str
    at: str
    subject: str
    trailers: dict[str, str]
    is_by_hand: bool
    tick: int
    first_tick: int
    agents: list[str]
    calls: int
    credits: float
    cost_usd: float | None

    @property
    def short(self) -> str:
        """The name of the commit in commands."""
        return f"@{self.id[:10]}"

    @property
    def last_finished_tick(self) -> int:
        """The newest tick run before the commit."""
        return self.tick - self.is_by_hand


def parse_commit(commit_id: str, at: str, message: str) -> Commit:
    """Parse the message of a commit. Raises `GitFailed` for a foreign commit."""
    trailers = parse_trailers(message)
    is_by_hand = "Tick" not in trailers
    tick = int(trailers["Before-Tick" if is_by_hand else "Tick"])
    return Commit(
        id=commit_id,
        at=at,
        subject=message.partition("\n")[0],
        trailers=trailers,
        is_by_hand=is_by_hand,
        tick=tick,
        first_tick=int(trailers.get("From-Tick", tick)),
        agents=[name for name in trailers.get("Agents", "").split(", ") if name],
        calls=int(trailers.get("Calls", 0)),
        credits=float(trailers.get("Credits", 0)),
        cost_usd=float(trailers["Cost-USD"]) if "Cost-USD" in trailers else None,
    )


@dataclass(frozen=True)
class PastState:
    """The organisation after a tick: the commit with its files."""

    tick: int
    commit: Commit


@dataclass(frozen=True)
class FileChange:
    """A changed file. `added` and `removed` count lines; None for a binary file."""

    path: str
    change: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class StateDiff:
    """Changes between two states: files, and the diff as text."""

    files: list[FileChange]
    diff: str

    def as_json(self) -> dict[str, Any]:
        """Return the changes as JSON values."""
        return {"files": [asdict(file) for file in self.files], "diff": self.diff}


class GitHistory:
    """The history of an organisation. Raises `UsageError` without a history, `GitFailed` if git cannot read it."""

    reliability_note = ""

    def __init__(self, base: Path) -> None:
        also = list_external_roots(base, survey_agents(base).agents.values())
        self.base, self.repository = base, Repository(base, extra_paths=also)
        if not self.repository.exists():
            is_on = load_config(base).org.history != "off"
            begins = "run a tick: the history begins with it"
            hint = begins if is_on else "turn it on with `lemming history on`, which builds the past from the journals"
            raise UsageError("no history is recorded here", where=str(base / FOLDER), hint=hint)
        self.repository.require_usable()

    def list_commits(self, *, agent: str = "", limit: int | None = None) -> list[Commit]:
        """Return the commits, newest first; with `agent`, only commits with changes to the agent's files."""
        if not self.repository.head():
            return []
        limit_option = [] if limit is None else [f"--max-count={limit}"]
        path_filter = [paths.agent_folder(agent)] if agent else []
        output = self.repository.run("log", "-z", *limit_option, "--format=%H %ct %B", BRANCH, "--", *path_filter)
        return [_parse_log_entry(text) for text in output.decode("utf-8", "replace").split("\0") if text]

    def list_branch_commits(self) -> list[Commit]:
        """Return the commits before the present, newest first, without commits archived by a rewind."""
        commits: list[Commit] = []
        awaited = ""
        for commit in self.list_commits():
            if awaited not in ("", commit.id):
                continue
            if commits and commit.last_finished_tick >= commits[-1].first_tick:  # ticks only grow
                continue
            commits.append(commit)
            awaited = commit.trailers.get("Rewound-To", "")
        return commits

    def find_commit(self, tick: int) -> Commit | None:
        """Return the commit of a tick that was not rewound, or None. Raises `UsageError` outside the history."""
        for commit in self.list_branch_commits():
            if not commit.is_by_hand and commit.first_tick <= tick <= commit.tick:
                return commit
        self.state_at_tick(tick)
        return None

    def resolve_state(self, reference: str) -> PastState:
        """Return the state of a tick, or of a commit as in `lemming history`. Raises `UsageError` for others."""
        if _TICK.match(reference):
            return self.state_at_tick(int(reference))
        match = _ID.match(reference)
        if match is None:
            hint = "use a number, or @ and a commit of `lemming history`"
            raise UsageError(f'expected a tick, got "{reference}"', hint=hint)
        matches = [commit for commit in self.list_commits() if commit.id.startswith(match[1])]
        if len(matches) != 1:
            count_text = "no commit" if not matches else f"{len(matches)} commits"
            message = f"expected one commit, got {count_text} of the history that begin with {match[1]}"
            raise UsageError(message, hint="lemming history")
        return PastState(matches[0].last_finished_tick, matches[0])

    def state_at_tick(self, tick: int) -> PastState:
        """Return the state after a tick. Raises `UsageError` for a tick outside the history."""
        commits = self.list_branch_commits()
        if tick >= load_tick(self.base):
            hint = f"name a tick up to {load_tick(self.base) - 1}"
            raise UsageError(f"tick {tick} has not run", hint=hint)
        for commit in commits:
            if commit.first_tick <= tick < commit.tick:
                range_text = f"ticks {commit.first_tick} to {commit.tick} share one commit"
                raise UsageError(f"tick {tick} is not in the history: {range_text}", hint="lemming history")
            is_oldest = commit is commits[-1]
            if commit.tick <= tick or (is_oldest and commit.last_finished_tick == tick):
                if commit is commits[0] and list_changing_ticks(self.base, commit.last_finished_tick + 1, tick + 1):
                    raise UsageError(f"tick {tick} is not in the history yet", hint="run the engine: it adds the tick")
                return PastState(tick, commit)
        begins = f"it begins before tick {commits[-1].tick}" if commits else "it is empty"
        raise UsageError(f"tick {tick} is not in the history: {begins}", hint="see all with `lemming history -n 0`")

    def diff_commit(self, commit: Commit, *, agent: str = "") -> StateDiff:
        """Return the changes of a commit against its parent."""
        parents = self.repository.run("log", "-1", "--format=%P", commit.id).decode().split()
        return _diff_trees(self.repository, parents[0] if parents else EMPTY_TREE, commit.id, agent)

    def changes_between(self, old: str, new: str, *, agent: str = "") -> StateDiff:
        """Return the changes from `old` to `new`; either may be `now`, the files on disk. The history is unchanged."""
        with self._resolve_tree(old) as (old_repo, old_tree), self._resolve_tree(new) as (new_repo, new_tree):
            return _diff_trees(old_repo if old == NOW else new_repo, old_tree, new_tree, agent)

    def read_file(self, commit: Commit, file: str) -> bytes:
        """Return a file's content at a commit. Raises `UsageError` for a missing file."""
        is_inside = not file.startswith("/") and ".." not in file.split("/")
        listed = self.repository.run("ls-tree", "-z", commit.id, "--", file) if is_inside else b""
        if not listed.startswith(b"100"):
            raise UsageError(f"file {file} did not exist then", hint="use a path from the organisation's folder")
        return self.repository.run("cat-file", "blob", listed.split()[2].decode())

    def checkout(self, commit: Commit, folder: Path) -> None:
        """Write the files of a commit into an existing empty folder."""
        with self.repository.open_scratch(folder) as scratch:
            scratch.run("read-tree", commit.id)
            scratch.run("checkout-index", "--all", "--force", "--quiet")

    @contextlib.contextmanager
    def _resolve_tree(self, reference: str) -> Iterator[tuple[Repository, str]]:
        if reference != NOW:
            yield self.repository, self.resolve_state(reference).commit.id
            return
        with self.repository.open_scratch() as scratch:
            if self.repository.head():
                scratch.run("read-tree", BRANCH)
            yield scratch, scratch.stage(scratch.list_changes())


def _parse_log_entry(text: str) -> Commit:
    number, seconds, message = text.split(" ", 2)
    try:
        at = timestamp(datetime.fromtimestamp(int(seconds), UTC))
    except (ValueError, OverflowError, OSError) as error:
        raise foreign_commit_error(f"{number[:10]} has no time") from error
    return parse_commit(number, at, message)


def _diff_trees(repository: Repository, old: str, new: str, agent: str) -> StateDiff:
    path_filter = ["--", paths.agent_folder(agent)] if agent else []
    plain = ("-r", "--no-renames", "--no-ext-diff", "--no-textconv")

    def diff_tree(*options: str) -> str:
        return repository.run("diff-tree", *plain, *options, old, new, *path_filter).decode("utf-8", "replace")

    kinds = diff_tree("--name-status", "-z").split("\0")[:-1]
    kind_of = dict(zip(kinds[1::2], kinds[::2], strict=True))
    files = []
    for line in diff_tree("--numstat", "-z").split("\0")[:-1]:
        added, removed, path = line.split("\t", 2)
        counts = [None if number == "-" else int(number) for number in (added, removed)]
        files.append(FileChange(path, _KINDS[kind_of[path]], *counts))
    return StateDiff(files, diff_tree("--patch"))
