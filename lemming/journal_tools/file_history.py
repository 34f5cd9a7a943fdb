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
        """Return the ledgers and the counter after a tick.

        A ledger that does not reach back far enough has a single line, from the agent's next turn.
        """
        ledgers = {
            self._find_owner(name, tick): b"".join(past_lines)
            for name, lines in self._ledger_lines.items()
            if (past_lines := [line for line_tick, line in lines if line_tick <= tick])
        }
        for name in filter(lambda name: self._was_planned(name, tick), self.names):
            later = (changes.states for line_tick, changes in self.file_changes.ticks.items() if line_tick > tick)
            state = next((states[name] for states in later if name in states), None)
            if state and 0 <= state["tick"] <= tick:
                ledgers.setdefault(name, dump_compact(state) + b"\n")
        files = {paths.ledger_file(name): content for name, content in ledgers.items()}
        return files | {paths.TICK_FILE: encode_counter(tick + 1)}

    def _find_owner(self, name: str, tick: int) -> str:
        """Return the name after a tick of the agent whose ledger this is.

        Before the first plan with the present name, an earlier name took the turns of the ledger's lines. No other ledger
        has a line for them.
        """
        changes, lines = self.file_changes, self._ledger_lines[name]
        if self._was_planned(name, tick):
            return name
        last = max(line_tick for line_tick, _ in lines if line_tick <= tick)
        known_agents = {
            other for other in self.names if any(line_tick == last for line_tick, _ in self._ledger_lines[other])
        }
        reports = changes.ticks[last].reports if last in changes.ticks else ()  # a damaged journal is skipped
        owners = {report.agent for report in reports} - known_agents
        if len(owners) > 1:
            states = [parse(line, limit_bytes=FILE_LIMIT_BYTES) for _, line in lines]
            owners = {
                owner for owner in owners if any(step.states.get(owner) in states for step in changes.ticks.values())
            }
        return owners.pop() if len(owners) == 1 else name

    def _was_planned(self, name: str, tick: int) -> bool:
        """Return True if there was an agent with the name by a tick, as far back as journals tell."""
        first = self.file_changes.first_planned.get(name, tick)
        return tick >= first or first == min(self.file_changes.ticks)

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
