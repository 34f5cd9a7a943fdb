"""This organisation back where it was after a tick. Nothing is lost: what came later is kept first.

    keep < journals aside < files < tick.json < commit

A rewind that was interrupted is finished by doing it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lemming.history.journals import set_journals_aside
from lemming.history.read import NOW, Changes, History, State
from lemming.history.recorder import Recorder
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.tick.counter import load_tick, persist_tick
from lemming.kernel.tick.runtime import Runtime


@dataclass(frozen=True)
class Rewind:
    """What a rewind did, or would do. `kept` is the commit that holds the files as they were before it."""

    state: State
    changes: Changes
    journals: list[int]
    aside: str = ""
    kept: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the rewind as JSON values."""
        return {
            "to": self.state.tick,
            "next_tick": self.state.tick + 1,
            "is_done": bool(self.kept),
            "files": self.changes.as_json()["files"],
            "journals": self.journals,
            "aside": self.aside,
            "kept": self.kept,
        }


def plan_rewind(history: History, state: State) -> Rewind:
    """Return what a rewind would change, without changing anything."""
    changes = history.changes_between(NOW, f"@{state.commit.id}")
    return Rewind(state, changes, [tick for tick in journal_ticks(history.base) if tick > state.tick])


def rewind(runtime: Runtime, history: History, state: State) -> Rewind:
    """Bring the files of an organisation that we hold back to a state.

    Later journals are moved to `aside/<time>/`. Raises `GitFailed`, `DiskError`; doing it again is safe.
    """
    base, recorder, tick = runtime.base, Recorder(runtime), state.tick
    repository, planned = recorder.open(), plan_rewind(history, state)
    next_tick = max(load_tick(base), tick + 1)
    # first: what people changed by hand since then stands nowhere else
    recorder.keep_pending(next_tick)
    kept, aside = repository.head(), ""
    if planned.journals:
        aside = place_aside(runtime)
        set_journals_aside(base, after=tick, folder=aside)
    repository.run("read-tree", "--reset", "-u", state.commit.id)
    persist_tick(base, tick + 1)
    recorder.keep_rewound(tick + 1, state.commit.id)
    fs.sync_file_system(base)
    return Rewind(state, planned.changes, planned.journals, aside, kept)


def place_aside(runtime: Runtime) -> str:
    """Return a folder that is not there yet, for what is moved out of the way now."""
    folder = f"{paths.ASIDE}/{runtime.now().replace(':', '')}"
    number, free = 1, folder
    while (runtime.base / free).exists():
        number, free = number + 1, f"{folder}-{number + 1}"
    return free
