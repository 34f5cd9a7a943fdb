"""The history of an organisation, read back: commits, the files after a tick, what changed between two.

Reading changes nothing, so it is safe beside a running engine. What is in a commit: docs/history.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lemming.history.git import BRANCH, EMPTY_TREE, FOLDER, Repository
from lemming.history.outside import outside_roots
from lemming.history.recorder import not_ours, ticks_with_turns, trailers_of
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.tick.counter import load_tick

NOW = "now"
_ID = re.compile(r"@([0-9a-f]{4,64})\Z")
_TICK = re.compile(r"\d{1,12}\Z")
_KINDS = {"A": "added", "M": "modified", "D": "deleted", "T": "modified"}


@dataclass(frozen=True)
class Commit:
    """The files at one moment: as they were after `tick`, or, by hand, as they were before it."""

    id: str
    at: str
    subject: str
    trailers: dict[str, str]

    @property
    def short(self) -> str:
        """The name by which commands take a commit."""
        return f"@{self.id[:10]}"

    @property
    def is_by_hand(self) -> bool:
        """Whether it holds what people changed between two ticks."""
        return "Tick" not in self.trailers

    @property
    def tick(self) -> int:
        """The tick it belongs to."""
        return int(self.trailers["Before-Tick" if self.is_by_hand else "Tick"])

    @property
    def first(self) -> int:
        """The first tick whose changes are in it: an earlier one when several were kept together."""
        return int(self.trailers.get("From-Tick", self.tick))

    @property
    def ticks_done(self) -> int:
        """The newest tick that had been run."""
        return self.tick - self.is_by_hand

    def may_follow(self, older: Commit) -> bool:
        """Return whether it can go on from an older commit: ticks only grow."""
        return older.ticks_done < self.first

    def as_json(self) -> dict[str, Any]:
        """Return the commit as JSON values."""
        trailers = self.trailers
        return {
            "commit": self.id,
            "at": self.at,
            "subject": self.subject,
            "tick": None if self.is_by_hand else self.tick,
            "before_tick": self.tick if self.is_by_hand else None,
            "agents": [name for name in trailers.get("Agents", "").split(", ") if name],
            "calls": int(trailers.get("Calls", 0)),
            "credits": float(trailers.get("Credits", 0)),
            "cost_usd": float(trailers["Cost-USD"]) if "Cost-USD" in trailers else None,
        }


@dataclass(frozen=True)
class State:
    """The organisation as it was after a tick: the commit that holds its files."""

    tick: int
    commit: Commit


@dataclass(frozen=True)
class FileChange:
    """One file that differs. `added` and `removed` count lines; None for a file that is not text."""

    path: str
    change: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class Changes:
    """What differs between two states: the files, and the text of the difference."""

    files: list[FileChange]
    diff: str

    def as_json(self) -> dict[str, Any]:
        """Return the changes as JSON values."""
        return {"files": [asdict(file) for file in self.files], "diff": self.diff}


class History:
    """An organisation's history.

    Raises `UsageError` when there is none, and `GitFailed` when git cannot read it.
    """

    remark = ""

    def __init__(self, base: Path) -> None:
        also = outside_roots(survey_agents(base).agents.values())
        self.base, self.repository = base, Repository(base, also=also)
        if not self.repository.exists():
            is_on = load_config(base).org.history != "off"
            begins = "it begins with the next tick"
            hint = (
                begins if is_on else "`lemming history on` turns it on, and makes the past from the journals"
            )
            raise UsageError("there is no history here", where=str(base / FOLDER), hint=hint)
        self.repository.check()

    def commits(self, *, agent: str = "", limit: int | None = None) -> list[Commit]:
        """Return the commits, newest first; with `agent` those that changed a file of its."""
        if not self.repository.head():
            return []
        most = [] if limit is None else [f"--max-count={limit}"]
        below = [paths.agent_folder(agent)] if agent else []
        form = "--format=%H %ct %B"
        told = self.repository.run("log", "-z", *most, form, BRANCH, "--", *below).decode("utf-8", "replace")
        return [_commit(text) for text in told.split("\0") if text]

    def line(self) -> list[Commit]:
        """Return the commits that led to the present, newest first: what a rewind set aside is left out."""
        line: list[Commit] = []
        awaited = ""
        for commit in self.commits():
            if awaited not in ("", commit.id) or (line and not line[-1].may_follow(commit)):
                continue
            line.append(commit)
            awaited = commit.trailers.get("Rewound-To", "")
        return line

    def commit_of(self, tick: int) -> Commit | None:
        """Return the newest commit that holds what a tick changed; None when it changed nothing.

        Raises `UsageError` for a tick that has not been run or is older than the history.
        """
        for commit in self.commits():
            if not commit.is_by_hand and commit.first <= tick <= commit.tick:
                return commit
        self.state_after(tick)
        return None

    def state(self, word: str) -> State:
        """Return the state that a word names: a tick, or a commit as `lemming history` shows it.

        Raises `UsageError` for any other word and for what is not in the history.
        """
        if _TICK.match(word):
            return self.state_after(int(word))
        match = _ID.match(word)
        if match is None:
            raise UsageError(
                f'"{word}" is not a tick', hint="a number, or @ and a commit of `lemming history`"
            )
        found = [commit for commit in self.commits() if commit.id.startswith(match[1])]
        if len(found) != 1:
            why = "no commit" if not found else f"{len(found)} commits"
            raise UsageError(f"{why} of the history begin with {match[1]}", hint="lemming history")
        return State(found[0].ticks_done, found[0])

    def state_after(self, tick: int) -> State:
        """Return the state after a tick. Raises `UsageError` when it is not in the history."""
        line = self.line()
        if tick >= load_tick(self.base):
            hint = f"the newest is tick {load_tick(self.base) - 1}"
            raise UsageError(f"tick {tick} has not been run", hint=hint)
        for commit in line:
            if commit.first <= tick < commit.tick:
                together = f"ticks {commit.first} to {commit.tick} were kept together"
                raise UsageError(f"tick {tick} is not in the history: {together}", hint="lemming history")
            is_oldest = commit is line[-1]
            if commit.tick <= tick or (is_oldest and commit.ticks_done == tick):
                if commit is line[0] and ticks_with_turns(self.base, commit.ticks_done + 1, tick + 1):
                    raise UsageError(
                        f"tick {tick} is not in the history yet", hint="the next run of the engine keeps it"
                    )
                return State(tick, commit)
        begins = f"it begins before tick {line[-1].tick}" if line else "it is empty"
        raise UsageError(
            f"tick {tick} is not in the history: {begins}", hint="lemming history -n 0 shows all"
        )

    def changes_of(self, commit: Commit, *, agent: str = "") -> Changes:
        """Return what a commit changed against the one before it."""
        parents = self.repository.run("log", "-1", "--format=%P", commit.id).decode().split()
        return _changes(self.repository, parents[0] if parents else EMPTY_TREE, commit.id, agent)

    def changes_between(self, old: str, new: str, *, agent: str = "") -> Changes:
        """Return how the files after `new` differ from those after `old`; either may be `now`.

        `now` is what is on disk; it is looked at without changing the history.
        """
        with self._tree(old) as (one, before), self._tree(new) as (other, after):
            return _changes(one if old == NOW else other, before, after, agent)

    def read_file(self, commit: Commit, file: str) -> bytes:
        """Return a file as it was; raise `UsageError` when it was not there."""
        is_below = not file.startswith("/") and ".." not in file.split("/")
        listed = self.repository.run("ls-tree", "-z", commit.id, "--", file) if is_below else b""
        if not listed.startswith(b"100"):
            raise UsageError(f"there was no file {file} then", hint="a path from the organisation's folder")
        return self.repository.run("cat-file", "blob", listed.split()[2].decode())

    def check_out(self, commit: Commit, folder: Path) -> None:
        """Write the files of a commit into a folder that is there and empty."""
        with self.repository.aside(folder) as side:
            side.run("read-tree", commit.id)
            side.run("checkout-index", "--all", "--force", "--quiet")

    @contextlib.contextmanager
    def _tree(self, word: str) -> Iterator[tuple[Repository, str]]:
        if word != NOW:
            yield self.repository, self.state(word).commit.id
            return
        with self.repository.aside() as side:
            if self.repository.head():
                side.run("read-tree", BRANCH)
            yield side, side.stage(side.changes())


def _commit(text: str) -> Commit:
    number, seconds, message = text.split(" ", 2)
    try:
        at = timestamp(datetime.fromtimestamp(int(seconds), UTC))
    except (ValueError, OverflowError, OSError) as error:
        raise not_ours(f"{number[:10]} has no time") from error
    return Commit(number, at, message.partition("\n")[0], trailers_of(message))


def _changes(repository: Repository, old: str, new: str, agent: str) -> Changes:
    below = ["--", paths.agent_folder(agent)] if agent else []

    def diff_tree(*form: str) -> str:
        words = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", *form, old, new, *below)
        return repository.run(*words).decode("utf-8", "replace")

    kinds = diff_tree("--name-status", "-z").split("\0")[:-1]
    kind_of = dict(zip(kinds[1::2], kinds[::2], strict=True))
    files = []
    for line in diff_tree("--numstat", "-z").split("\0")[:-1]:
        added, removed, path = line.split("\t", 2)
        files.append(FileChange(path, _KINDS[kind_of[path]], _count(added), _count(removed)))
    return Changes(files, diff_tree("--patch"))


def _count(number: str) -> int | None:
    return None if number == "-" else int(number)
