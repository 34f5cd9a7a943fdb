"""Rewind this organisation to the state after a tick. Nothing is lost: later changes are committed first.

    commit < archive journals < files < tick.json < commit

An interrupted rewind is finished by repeating the rewind. Until then `.lemming/rewinding` keeps engines from starting.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming.git_history.history_reader import NOW, GitHistory, PastState, StateDiff
from lemming.git_history.recorder import Recorder
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES, journal_ticks
from lemming.kernel.journal.journal_segments import (
    SEALED_FOLDER,
    load_sealed_journal,
    plain_ticks,
    sealed_ticks,
    segments,
)
from lemming.kernel.messages import parse_identities
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick, persist_tick
from lemming.libraries.journal_sealing import SEGMENT_LIMIT_BYTES, load_last_removed_tick, record_removed
from lemming.libraries.lenient_json import parse_object_or_empty

LOG_LIMIT_BYTES = 1 << 30
"""Maximum size of the log of a channel."""


def copy_journals(base: OrgPath, other: Path, *, until: int) -> None:
    """Copy the journals up to and including a tick, and all patches; segments that end earlier are copied unchanged."""
    for file in sorted((Path(base) / paths.PATCHES).glob("*.patch")):
        fs.write_atomic(other, f"{paths.PATCHES}/{file.name}", fs.read_bytes(file, SEGMENT_LIMIT_BYTES))
    for name, _, last in segments(base):
        if last <= until:
            content = fs.read_bytes(base / SEALED_FOLDER / name, SEGMENT_LIMIT_BYTES)
            fs.write_atomic(other, f"{SEALED_FOLDER}/{name}", content)
        else:
            _unpack_segment(base, other, name, until)
    if (through := load_last_removed_tick(base)) >= 0:
        record_removed(other, through)
    for tick in plain_ticks(base):
        if tick <= until:
            content = fs.read_bytes(base / paths.journal_file(tick), OWN_LIMIT_BYTES)
            fs.write_atomic(other, paths.journal_file(tick), content)


def archive_journals(base: OrgPath, *, last_tick: int, folder: str) -> None:
    """Move the journals after a tick below `folder`. Safe to repeat; nothing is deleted."""
    for name, _, last in segments(base):
        if last > last_tick:
            # the copies first: a crash between the two leaves a journal twice, never not at all
            _unpack_segment(Path(base), Path(base), name, last_tick)
            fs.move(Path(base), f"{SEALED_FOLDER}/{name}", f"{folder}/{SEALED_FOLDER}/{name}")
    for tick in plain_ticks(base):
        if tick > last_tick:
            fs.move(Path(base), paths.journal_file(tick), f"{folder}/{paths.journal_file(tick)}")


def _unpack_segment(base: OrgPath, other: Path, name: str, until: int) -> None:
    """Write the journals of a segment up to a tick as separate files."""
    first = int(name.partition("-")[0])
    for tick in sealed_ticks(base):
        if first <= tick <= until and (raw := load_sealed_journal(base, tick)):
            fs.write_atomic(other, paths.journal_file(tick), raw)


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
    fs.write_atomic(base, paths.REWINDING_FILE, f"@{state.commit.id}".encode(), sync=True)
    if plan.journals:
        archive_folder = make_archive_folder_name(runtime)
        archive_journals(base, last_tick=tick, folder=archive_folder)
    delivery_logs = _load_delivery_logs(base)
    repository.run("read-tree", "--reset", "-u", state.commit.id)
    _keep_deliveries(base, delivery_logs)
    persist_tick(base, tick + 1)
    recorder.commit_rewind(tick + 1, state.commit.id)
    fs.sync_file_system(base)
    fs.remove(base, paths.REWINDING_FILE, sync=True)
    return RewindResult(state, plan.changes, plan.journals, archive_folder, previous_commit)


def _load_delivery_logs(base: Path) -> dict[str, list[bytes]]:
    """Return the lines of the log of each channel, by path."""
    files = (base / paths.channel_log(name) for name in list_agent_folders(base))
    return {
        str(file.relative_to(base)): fs.read_bytes(file, LOG_LIMIT_BYTES).splitlines(keepends=True)
        for file in files
        if file.is_file()
    }


def _keep_deliveries(base: Path, logs: dict[str, list[bytes]]) -> None:
    """Add lines to the restored logs of channels about entries that are still there.

    The log tells of the world outside, which a rewind does not undo: an entry that was sent after the restored commit
    would be sent again. Of an entry that is gone nothing is kept, since the next one may get its id.
    """
    for log, lines in logs.items():
        file = base / log
        restored = {*fs.read_bytes(file, LOG_LIMIT_BYTES).splitlines(keepends=True)} if file.is_file() else set()
        surviving_lines = [line for line in lines if line not in restored and _has_entry(base, line)]
        if surviving_lines and file.parent.is_dir():
            fs.append(base, log, b"".join(surviving_lines))


def _has_entry(base: Path, line: bytes) -> bool:
    """Return True if the entry that a line of a channel's log names is in its outbox."""
    names = parse_identities([str(parse_object_or_empty(line).get("entry", ""))])
    return any((base / name.file).is_file() for name in names)


def make_archive_folder_name(runtime: Runtime) -> str:
    """Return the path of a new folder for archived files."""
    folder = f"{paths.ARCHIVE_FOLDER}/{runtime.now().replace(':', '')}"
    number, candidate = 1, folder
    while (runtime.base / candidate).exists():
        number, candidate = number + 1, f"{folder}-{number + 1}"
    return candidate
