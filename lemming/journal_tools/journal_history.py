"""The past of an organisation without a git history: read with the interface of `GitHistory`, or rebuilt in git.

A rebuilt history has a commit for each recorded tick, with the trailer `Rebuilt`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from lemming.git_history.git_repository import BRANCH, FOLDER, Repository
from lemming.git_history.history_reader import NOW, Commit, FileChange, GitHistory, PastState, StateDiff, parse_commit
from lemming.git_history.recorder import BY_HAND, ENGINE, format_message, format_tick_message
from lemming.journal_tools.file_history import CURRENT_VERSION, FileHistory, FileVersion, iter_tracked_files
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick

PRESENT_FILES_REMARK = (
    "no history is recorded here: this is from the journals, with today's resumes, settings and files of people"
)
_TICK = re.compile(r"\d{1,12}\Z")
_Contents = dict[str, FileVersion | bytes]


class JournalHistory(FileHistory):
    """The past of an organisation according to the journals. Read-only. Raises `UsageError` if no tick was ever run."""

    def __init__(self, base: OrgPath) -> None:
        super().__init__(base)
        first = self.file_changes.ticks[self.first_tick]
        self._agent_with_lost_turns = next((name for name in first.states if first.states[name]["status"]), "")

    @property
    def reliability_note(self) -> str:
        """A note for people on the reliability of the result."""
        if not self._agent_with_lost_turns:
            return PRESENT_FILES_REMARK
        return f"{PRESENT_FILES_REMARK}; earlier versions of files from before tick {self.first_tick} are missing"

    def list_branch_commits(self) -> list[Commit]:
        """Return a commit for each tick that changed files, newest first."""
        return [self._build_commit(tick) for tick in reversed(self.ticks)]

    def resolve_state(self, revision: str) -> PastState:
        """Return the state after the tick with this number. Raises `UsageError` for other text."""
        if not _TICK.match(revision):
            hint = "use a number; commits exist once `lemming history on` has made them"
            raise UsageError(f'expected a tick, got "{revision}"', hint=hint)
        return self.state_at_tick(int(revision))

    def state_at_tick(self, tick: int) -> PastState:
        """Return the state after a tick. Raises `UsageError` for a tick without a record in the journals."""
        self._require_run(tick)
        if tick < self.tick_before_first + bool(self._agent_with_lost_turns):
            hint = f"name a tick from {self.first_tick} on"
            reason = f"the journals begin with tick {self.first_tick}"
            raise UsageError(f"the files after tick {tick} are unknown: {reason}", hint=hint)
        return PastState(tick, self._build_commit(tick))

    def find_commit(self, tick: int) -> Commit | None:
        """Return the changes of a tick as a commit, or None if the tick changed nothing."""
        self._require_run(tick)
        return self._build_commit(tick) if tick in self.ticks else None

    def _require_run(self, tick: int) -> None:
        if tick >= (next_tick := load_tick(self.base)):
            raise UsageError(f"tick {tick} has not run", hint=f"name a tick up to {next_tick - 1}")

    def _build_commit(self, tick: int) -> Commit:
        """Return the newest commit a git history would have after a tick; the commit has no id."""
        first, changes = self.first_tick, self.file_changes.ticks
        last_tick = max((change_tick for change_tick in self.ticks if change_tick <= tick), default=None)
        if last_tick is None:
            message = format_message(f"before tick {first}", {"Before-Tick": first})
        else:
            message = format_tick_message(last_tick, changes[last_tick].reports, Rebuilt="yes")
        at = changes[first if last_tick is None else last_tick].at
        return parse_commit("", at, message)

    def diff_commit(self, commit: Commit, *, agent: str = "") -> StateDiff:
        """Return the changes of a commit against the state before."""
        return self._diff_files(self._files_at_tick(commit.tick - 1), self._files_at_tick(commit.tick), agent)

    def changes_between(self, old: str, new: str, *, agent: str = "") -> StateDiff:
        """Return the changes between the files after `old` and the files after `new`; either may be `now`."""
        return self._diff_files(self._resolve_files(old), self._resolve_files(new), agent)

    def read_file(self, commit: Commit, file: str) -> bytes:
        """Return the past content of a file; raise `UsageError` if there was no such file."""
        content = self.load_version(file, self._files_at_tick(commit.last_finished_tick).get(file))
        if content is None:
            raise UsageError(f"file {file} did not exist then", hint="use a path from the organisation's folder")
        return content

    def checkout(self, commit: Commit, folder: Path) -> None:
        """Write the files of a commit into an existing, empty folder."""
        for file, version in self._files_at_tick(commit.last_finished_tick).items():
            if (content := self.load_version(file, version)) is not None:
                fs.write_atomic(folder, file, content)

    def _resolve_files(self, revision: str) -> _Contents:
        if revision != NOW:
            return self._files_at_tick(self.resolve_state(revision).tick)
        counter = [paths.TICK_FILE] if (self.base / paths.TICK_FILE).exists() else []
        return dict.fromkeys([*iter_tracked_files(self.base), *counter], CURRENT_VERSION)

    def _files_at_tick(self, tick: int) -> _Contents:
        return {**self.files_at_tick(tick), **self.load_engine_files(tick)}

    def _diff_files(self, old: _Contents, new: _Contents, agent: str) -> StateDiff:
        folder_prefix = f"{paths.agent_folder(agent)}/" if agent else ""
        files, diffs = [], []
        for file in sorted({*old, *new}):
            old_version, new_version = old.get(file), new.get(file)
            if old_version == new_version or not file.startswith(folder_prefix):
                continue
            change, diff = diff_file(file, self.load_version(file, old_version), self.load_version(file, new_version))
            files += [change] if change else []
            diffs.append(diff)
        return StateDiff(files, "".join(diffs))


PastStates = GitHistory | JournalHistory
"""An organisation's past, whatever tells of it: its history, or its journals alone."""


def open_past(base: OrgPath) -> PastStates:
    """Return the git history, or else the history from the journals. Raises `UsageError` if there is neither."""
    has_history = (base / FOLDER / "config").exists()
    return GitHistory(Path(base)) if has_history else JournalHistory(base)


def diff_file(file: str, old_content: bytes | None, new_content: bytes | None) -> tuple[FileChange | None, str]:
    """Return the change of a file and its diff in git's format: None and empty for equal contents."""
    if old_content == new_content:
        return None, ""
    kind = "added" if old_content is None else "deleted" if new_content is None else "modified"
    try:
        old_lines, new_lines = ((raw or b"").decode().splitlines(keepends=True) for raw in (old_content, new_content))
    except UnicodeDecodeError:
        return FileChange(file, kind, None, None), f"Binary files differ: {file}\n"
    names = ("/dev/null" if old_content is None else f"a/{file}", "/dev/null" if new_content is None else f"b/{file}")
    lines = list(unified_diff(old_lines, new_lines, *names))
    counts = [sum(line.startswith(sign) for line in lines[2:]) for sign in "+-"]
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return FileChange(file, kind, *counts), f"diff --git a/{file} b/{file}\n{text}"


_TICKS_PER_BATCH = 100


def rebuild_history(base: OrgPath, repository: Repository) -> int:
    """Fill an empty git history with a commit for each recorded tick, and return the number of ticks.

    The caller must hold the organisation's lock. Unreadable journals are skipped. After an interruption, the
    next call continues where the last call stopped. Raises `GitFailed`.
    """
    try:
        history = FileHistory(base)
    except UsageError:
        return 0
    if not history.ticks:
        return 0
    commits = _iter_fast_import(history)
    while batch := b"".join(islice(commits, _TICKS_PER_BATCH)):
        repository.run("fast-import", "--quiet", "--date-format=raw", stdin=batch)
    repository.run("read-tree", BRANCH)
    return len(history.ticks)


def _iter_fast_import(history: FileHistory) -> Iterator[bytes]:
    """Yield the commits in the format of `git fast-import`."""
    engine_files: dict[str, bytes] = {}
    for index, (tick, changed) in enumerate(history.changes_by_tick.items()):
        files = {path: history.load_version(path, version) for path, version in sorted(changed.items())}
        previous, engine_files = engine_files, history.load_engine_files(tick)
        if tick == history.tick_before_first:
            subject, trailers = f"before tick {tick + 1}: the history begins", {"Before-Tick": tick + 1}
            message, author = format_message(subject, {**trailers, "Rebuilt": "yes"}), BY_HAND
            at = history.file_changes.ticks[history.first_tick].at
            files |= engine_files
        else:
            tick_changes = history.file_changes.ticks[tick]
            message, author = format_tick_message(tick, tick_changes.reports, Rebuilt="yes"), ENGINE
            at = tick_changes.at
            changing = {paths.TICK_FILE, *(paths.ledger_file(report.agent) for report in tick_changes.reports)}
            same = {file for file in engine_files if file in previous and file not in changing}
            # A ledger goes where its agent was renamed: another agent with the name must not get the lines.
            files |= {file: engine_files.get(file) for file in {*engine_files, *previous} - same}
        parent = f"{BRANCH}^0" if index and index % _TICKS_PER_BATCH == 0 else ""  # git has forgotten it
        at_s = 0
        with contextlib.suppress(ValueError):
            at_s = max(0, int(parse_timestamp(at).timestamp()))
        yield _format_commit(message, author, at_s, files, parent)


def _format_commit(message: str, author: str, at_s: int, files: Mapping[str, bytes | None], parent: str = "") -> bytes:
    author_line = f"{author} <lemming@localhost> {at_s} +0000"
    parts = [
        f"commit {BRANCH}\nauthor {author_line}\ncommitter LeMMing <lemming@localhost> {at_s} +0000\n".encode(),
        _format_data(message.encode()),
    ]
    parts += [f"from {parent}\n".encode()] if parent else []
    for file, content in sorted(files.items()):
        if content is None:
            parts.append(b"D %b\n" % _quote_path(file))
        else:
            parts += [b"M 100644 inline %b\n" % _quote_path(file), _format_data(content)]
    return b"".join([*parts, b"\n"])


def _format_data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quote_path(file: str) -> bytes:
    """Return a path in C quotes, the form git accepts for any name."""
    raw = os.fsencode(file).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % raw
