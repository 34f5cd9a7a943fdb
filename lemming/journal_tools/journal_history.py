"""The past of an organisation without a git history, with the interface of `GitHistory`."""

from __future__ import annotations

import re
from difflib import unified_diff
from functools import cached_property
from pathlib import Path

from lemming.git_history.git_repository import FOLDER
from lemming.git_history.history_reader import NOW, Commit, FileChange, GitHistory, PastState, StateDiff
from lemming.git_history.recorder import format_message, format_tick_message, parse_trailers
from lemming.journal_tools.file_history import (
    CURRENT_VERSION,
    FileHistory,
    FileVersion,
    iter_tracked_files,
    load_current_file,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick

PRESENT_FILES_REMARK = (
    "no history is recorded here: this is from the journals, with today's resumes, settings and files of people"
)
_TICK = re.compile(r"\d{1,12}\Z")
_Contents = dict[str, FileVersion | bytes]


class JournalHistory:
    """The past of an organisation according to its journals. Read-only. Raises `UsageError` if no tick was ever run."""

    def __init__(self, base: OrgPath) -> None:
        self.base, self.file_history = Path(base), FileHistory(base)
        first = self.file_history.file_changes.ticks[self.file_history.first_tick]
        self._agent_with_lost_turns = next((name for name in first.states if first.states[name]["status"]), "")

    @property
    def reliability_note(self) -> str:
        """A note for people on the reliability of the result."""
        if not self._agent_with_lost_turns:
            return PRESENT_FILES_REMARK
        first = self.file_history.first_tick
        return f"{PRESENT_FILES_REMARK}; earlier versions of files from before tick {first} are missing"

    def list_branch_commits(self) -> list[Commit]:
        """Return a commit for each tick that changed files, newest first."""
        return [self._build_commit(tick) for tick in reversed(self.file_history.ticks)]

    def resolve_state(self, revision: str) -> PastState:
        """Return the state after the tick with this number. Raises `UsageError` for other text."""
        if not _TICK.match(revision):
            hint = "use a number; commits exist once `lemming history on` has made them"
            raise UsageError(f'expected a tick, got "{revision}"', hint=hint)
        return self.state_at_tick(int(revision))

    def state_at_tick(self, tick: int) -> PastState:
        """Return the state after a tick. Raises `UsageError` for a tick without a record in the journals."""
        self._require_run(tick)
        first = self.file_history.first_tick
        if tick < self.file_history.tick_before_first or (
            tick == self.file_history.tick_before_first and self._agent_with_lost_turns
        ):
            reason = f"the journals begin with tick {first}"
            raise UsageError(f"the files after tick {tick} are unknown: {reason}", hint=f"name a tick from {first} on")
        return PastState(tick, self._build_commit(tick))

    def find_commit(self, tick: int) -> Commit | None:
        """Return the changes of a tick as a commit, or None if the tick changed nothing."""
        self._require_run(tick)
        return self._build_commit(tick) if tick in self.file_history.ticks else None

    def _require_run(self, tick: int) -> None:
        if tick >= (next_tick := load_tick(self.base)):
            raise UsageError(f"tick {tick} has not run", hint=f"name a tick up to {next_tick - 1}")

    def _build_commit(self, tick: int) -> Commit:
        """Return the newest commit a git history would have after a tick; the commit has no id."""
        last_tick = max((change_tick for change_tick in self.file_history.ticks if change_tick <= tick), default=None)
        if last_tick is None:
            tick_changes = self.file_history.file_changes.ticks[self.file_history.first_tick]
            subject = f"before tick {self.file_history.first_tick}"
            message = format_message(subject, {"Before-Tick": self.file_history.first_tick})
        else:
            tick_changes = self.file_history.file_changes.ticks[last_tick]
            message = format_tick_message(last_tick, tick_changes.reports, Rebuilt="yes")
        return Commit("", tick_changes.at, message.partition("\n")[0], parse_trailers(message))

    def diff_commit(self, commit: Commit, *, agent: str = "") -> StateDiff:
        """Return the changes of a commit against the state before."""
        return self._diff_files(self._files_at_tick(commit.tick - 1), self._files_at_tick(commit.tick), agent)

    def changes_between(self, old: str, new: str, *, agent: str = "") -> StateDiff:
        """Return the changes between the files after `old` and the files after `new`; either may be `now`."""
        return self._diff_files(self._resolve_files(old), self._resolve_files(new), agent)

    def read_file(self, commit: Commit, file: str) -> bytes:
        """Return the past content of a file; raise `UsageError` if there was no such file."""
        content = self._load_content(file, self._files_at_tick(commit.last_finished_tick).get(file))
        if content is None:
            raise UsageError(f"file {file} did not exist then", hint="use a path from the organisation's folder")
        return content

    def checkout(self, commit: Commit, folder: Path) -> None:
        """Write the files of a commit into an existing, empty folder."""
        for file, version in self._files_at_tick(commit.last_finished_tick).items():
            if (content := self._load_content(file, version)) is not None:
                fs.write_atomic(folder, file, content)

    @cached_property
    def _current_files(self) -> _Contents:
        files = [*iter_tracked_files(self.base), *([paths.TICK_FILE] if (self.base / paths.TICK_FILE).exists() else [])]
        return dict.fromkeys(files, CURRENT_VERSION)

    def _resolve_files(self, revision: str) -> _Contents:
        return self._current_files if revision == NOW else self._files_at_tick(self.resolve_state(revision).tick)

    def _files_at_tick(self, tick: int) -> _Contents:
        return {**self.file_history.files_at_tick(tick), **self.file_history.load_engine_files(tick)}

    def _load_content(self, file: str, version: FileVersion | bytes | None) -> bytes | None:
        if version is None or isinstance(version, bytes):
            return version
        if version == CURRENT_VERSION and file not in self.file_history.external_arrivals.texts:
            return load_current_file(self.base, file)
        return self.file_history.load_version(file, version)

    def _diff_files(self, old: _Contents, new: _Contents, agent: str) -> StateDiff:
        folder_prefix = f"{paths.agent_folder(agent)}/" if agent else ""
        files, diffs = [], []
        for file in sorted({*old, *new}):
            old_version, new_version = old.get(file), new.get(file)
            if old_version == new_version or not file.startswith(folder_prefix):
                continue
            change, diff = diff_file(file, self._load_content(file, old_version), self._load_content(file, new_version))
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
