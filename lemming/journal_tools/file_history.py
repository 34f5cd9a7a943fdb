"""The files of an organisation after each tick, reconstructed from journals without a git history.

Files written in turns are in the journals with their original content. Other files (resumes, settings, files
from people) have their present content, from the first tick with evidence of the file in the journals.
Content from before the first write in a turn is unknown.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lemming.journal_tools.recorded_tick import RecordedTick, load_tick_record
from lemming.journal_tools.replay.external_arrivals import Arrivals, find_arrivals, load_file_changes
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.safe_folder import is_temporary
from lemming.kernel.journal.journal_file import make_prompt_reader
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import encode_counter

FILE_LIMIT_BYTES = 64 << 20
TRACKED_FOLDERS = ("agents", "config", "shared", paths.TRUST)


class FileVersion(NamedTuple):
    """A version of a file: the content written by a turn in a tick, or the present content."""

    tick: int = -1
    turn: str = ""


CURRENT_VERSION = FileVersion()

Files = dict[str, FileVersion | None]
"""Files by path, each with its content; None: it is gone."""


class FileHistory:
    """The file history of an organisation, from the journals. Read-only, safe beside a running engine.

    Damaged journals are skipped. Raises `UsageError` if no tick was ever run.
    """

    def __init__(self, base: OrgPath) -> None:
        self.base = Path(base)
        self.file_changes = load_file_changes(base, despite_damage=True)
        committed_ticks = [tick for tick, tick_changes in self.file_changes.ticks.items() if tick_changes.is_committed]
        if not committed_ticks:
            raise UsageError("no tick has run yet", where=str(base), hint="run a tick with `lemming run-once`")
        self.first_tick = committed_ticks[0]
        self.ticks = [
            tick
            for tick in committed_ticks  # by the same rule as `list_changing_ticks`
            if any(
                report.calls or report.status in ("done", "waiting") for report in self.file_changes.ticks[tick].reports
            )
        ]
        self.names = [name for name in list_agent_folders(base) if paths.AGENT_NAME.match(name)]
        self._prompts, self._latest = make_prompt_reader(base), RecordedTick()

    @property
    def tick_before_first(self) -> int:
        """The tick before the first, whose state is the start of the first tick."""
        return self.first_tick - 1

    @cached_property
    def changes_by_tick(self) -> dict[int, Files]:
        """The file changes of each tick, ascending, beginning with the files before the first tick.

        Without ledgers. Files placed by people before or during a tick count as changes of this tick.
        """
        steps: dict[int, Files] = {self.tick_before_first: {}, **{tick: {} for tick in self.ticks}}
        for tick, files in self.external_arrivals.files.items():
            if tick is not None:
                change_tick = self.tick_before_first  # files from before the first tick belong to the beginning
                if self.ticks and tick > self.first_tick:  # others to the next tick with changes
                    change_tick = self.ticks[min(bisect_left(self.ticks, tick), len(self.ticks) - 1)]
                steps[change_tick] |= dict.fromkeys(files, CURRENT_VERSION)
        for tick in self.ticks:
            for path, turn in self.file_changes.ticks[tick].changes.items():
                if not path.startswith("/"):
                    steps[tick][path] = FileVersion(tick, turn) if turn else None
        return steps

    @cached_property
    def external_arrivals(self) -> Arrivals:
        """Files from people, by the tick before which each file arrived."""
        return find_arrivals(self.base, self.file_changes, iter_tracked_files(self.base))

    def files_at_tick(self, tick: int) -> dict[str, FileVersion]:
        """Return the files after a tick, without ledgers and counter."""
        files: Files = {}
        for change_tick, changed in self.changes_by_tick.items():
            if change_tick <= max(tick, self.tick_before_first):  # the oldest state there is
                files |= changed
        return {path: version for path, version in files.items() if version is not None}

    def load_version(self, path: str, version: FileVersion | bytes | None) -> bytes | None:
        """Return the content of a file version, or None if the content is gone. A known content is returned."""
        if version is None or isinstance(version, bytes):
            return version
        if not version.turn:
            return self.external_arrivals.texts.get(path) or load_current_file(self.base, path)
        if self._latest.tick != version.tick:
            self._latest = load_tick_record(self.base, version.tick, self._prompts)
        turn = self._latest.find_turn(version.turn)
        effect = turn.writes.get(path) if turn else None
        return effect.content if effect else None

    def load_engine_files(self, tick: int) -> dict[str, bytes]:
        """Return the ledgers and the counter after a tick."""
        ledgers = {paths.ledger_file(name): self._load_past_ledger(name, tick) for name in self.names}
        return {file: raw for file, raw in ledgers.items() if raw} | {paths.TICK_FILE: encode_counter(tick + 1)}

    def _load_past_ledger(self, name: str, tick: int) -> bytes:
        """Return an agent's ledger after a tick; only a single line if the ledger does not reach back far enough."""
        if lines := b"".join(line for line_tick, line in self._ledger_lines[name] if line_tick <= tick):
            return lines
        later = (changes.states for line_tick, changes in self.file_changes.ticks.items() if line_tick > tick)
        state = next((states[name] for states in later if name in states), None)
        return dump_compact(state) + b"\n" if state and 0 <= state["tick"] <= tick else b""

    @cached_property
    def _ledger_lines(self) -> dict[str, list[tuple[int, bytes]]]:
        return {name: list(_iter_ledger_lines(self.base, name)) for name in self.names}


def load_current_file(base: OrgPath, path: str) -> bytes | None:
    """Return the present content of a file, or None if the file is missing or too large."""
    try:
        content = fs.read_bytes(base / path, FILE_LIMIT_BYTES)
    except OSError:  # unreadable content; a refusing disk is a `DiskError`
        return None
    return content if len(content) <= FILE_LIMIT_BYTES else None  # otherwise the file is truncated


def iter_tracked_files(base: OrgPath) -> Iterator[str]:
    """Yield the regular files tracked by a git history."""
    prefix_length = len(f"{base}/")
    for tracked_folder in TRACKED_FOLDERS:
        for folder, subfolders, files in (
            () if os.path.islink(base / tracked_folder) else walk(f"{base}/{tracked_folder}")
        ):
            if Path(folder).parent == Path(base) / "agents" and "logs" in subfolders:
                subfolders.remove("logs")
            for file in files:
                if not is_temporary(file.name) and file.is_file(follow_symlinks=False):
                    yield file.path[prefix_length:]


def _iter_ledger_lines(base: OrgPath, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a ledger with their ticks."""
    for line in (load_current_file(base, paths.ledger_file(name)) or b"").splitlines(keepends=True):
        try:
            yield int(parse(line, limit_bytes=FILE_LIMIT_BYTES)["tick"]), line
        except (JsonProblem, KeyError, TypeError, ValueError):
            continue
