"""Rewind this organisation to the state after a tick. Nothing is lost: later changes are committed first.

    commit < archive journals < files < tick.json < commit

An interrupted rewind is finished by repeating the rewind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lemming.git_history.history_reader import NOW, GitHistory, PastState, StateDiff
from lemming.git_history.journal_copies import archive_journals
from lemming.git_history.recorder import Recorder
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick, persist_tick


@dataclass(frozen=True)
class RewindResult:
    """Result or plan of a rewind. `previous_commit` is the commit with the files before the rewind."""

    state: PastState
    changes: StateDiff
    journals: list[int]
    archive_folder: str = ""
    previous_commit: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the rewind as JSON values."""
        return {
            "to": self.state.tick,
            "next_tick": self.state.tick + 1,
            "is_done": bool(self.previous_commit),
            "files": self.changes.as_json()["files"],
            "journals": self.journals,
            "aside": self.archive_folder,
            "kept": self.previous_commit,
        }


def plan_rewind(history: GitHistory, state: PastState) -> RewindResult:
    """Return the changes of a rewind without making them."""
    changes = history.changes_between(NOW, f"@{state.commit.id}")
    return RewindResult(state, changes, [tick for tick in journal_ticks(history.base) if tick > state.tick])


def rewind(runtime: Runtime, history: GitHistory, state: PastState) -> RewindResult:
    """Rewind the files of a locked organisation to a state.

    Later journals are moved to `aside/<time>/`. Raises `GitFailed`, `DiskError`; repeating a rewind is safe.
    """
    base, recorder, tick = runtime.base, Recorder(runtime), state.tick
    repository, plan = recorder.open(), plan_rewind(history, state)
    next_tick = max(load_tick(base), tick + 1)
    # first: manual edits since then exist nowhere else
    recorder.commit_pending(next_tick)
    previous_commit, archive_folder = repository.head(), ""
    if plan.journals:
        archive_folder = make_archive_folder_name(runtime)
        archive_journals(base, last_tick=tick, folder=archive_folder)
    repository.run("read-tree", "--reset", "-u", state.commit.id)
    persist_tick(base, tick + 1)
    recorder.commit_rewind(tick + 1, state.commit.id)
    fs.sync_file_system(base)
    return RewindResult(state, plan.changes, plan.journals, archive_folder, previous_commit)


def make_archive_folder_name(runtime: Runtime) -> str:
    """Return the path of a new folder for archived files."""
    folder = f"{paths.ARCHIVE_FOLDER}/{runtime.now().replace(':', '')}"
    number, candidate = 1, folder
    while (runtime.base / candidate).exists():
        number, candidate = number + 1, f"{folder}-{number + 1}"
    return candidate
