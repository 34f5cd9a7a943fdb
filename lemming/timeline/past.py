"""The files of an organisation as they were after each of its ticks, without a history: from the journals.

What turns wrote is in the journals, and is as it was then. What no turn wrote (resumes, settings, what people
put there) is as it is now, from the tick on in which the journals first show it. What was there before a turn
wrote over it for the first time, nobody can tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.temporary import is_temporary
from lemming.kernel.journal.file import prompts_in
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import counter
from lemming.timeline.file_changes import TickChanges, read_file_changes
from lemming.timeline.record import RecordedTick, read_tick
from lemming.timeline.replay.arrivals import Arrivals, find_arrivals

FILE_LIMIT_BYTES = 64 << 20
KEPT_FOLDERS = ("agents", "config", "shared", paths.TRUST)


class Version(NamedTuple):
    """Which content of a file: what the turn of a key wrote in a tick; without a key, what is there now."""

    tick: int = -1
    turn: str = ""


AS_NOW = Version()

Files = dict[str, Version | None]
"""Files by path, each with its content; None: it is gone."""


class PastFiles:
    """What an organisation's journals tell of its files. Reads only, also beside a running engine.

    Journals that are damaged are left out. Raises `UsageError` where no tick has been run.
    """

    def __init__(self, base: OrgPath) -> None:
        self.base = base
        self.told = read_file_changes(base, despite_damage=True)
        over = [tick for tick, told in self.told.ticks.items() if told.is_over]
        if not over:
            raise UsageError("no tick has been run here", where=str(base), hint="`lemming run-once` runs one")
        self.first, self.ticks = over[0], [tick for tick in over if _changed_files(self.told.ticks[tick])]
        self.names = [name for name in agent_folders(base) if paths.AGENT_NAME.match(name)]
        self._prompts, self._latest = prompts_in(base), RecordedTick()

    @property
    def before_all(self) -> int:
        """The tick after which there was what the first one began with."""
        return self.first - 1

    @cached_property
    def steps(self) -> dict[int, Files]:
        """What each tick changed, ascending, after `before_all` with what was there then. No ledgers.

        What people put there before a tick, or while it ran, counts as changed by it.
        """
        steps: dict[int, Files] = {self.before_all: {}, **{tick: {} for tick in self.ticks}}
        for tick, files in self.arrivals.files.items():
            if tick is not None:
                # what was there before the first tick belongs to the beginning
                at = self.before_all if tick <= self.first else self._step_of(tick)
                steps[at] |= dict.fromkeys(files, AS_NOW)
        for tick in self.ticks:
            for place, turn in self.told.ticks[tick].changes.items():
                if not place.startswith("/"):
                    steps[tick][place] = Version(tick, turn) if turn else None
        return steps

    @cached_property
    def arrivals(self) -> Arrivals:
        """What came from people, by the tick before which it was there."""
        return find_arrivals(self.base, self.told, files_of(self.base))

    def _step_of(self, tick: int) -> int:
        """Return the first tick that changed files, from this one on; the last there is for a later one."""
        return next((at for at in self.ticks if at >= tick), max(self.ticks, default=self.before_all))

    def after(self, tick: int) -> dict[str, Version]:
        """Return the files as they were after a tick, without ledgers and counter."""
        files: Files = {}
        for at, changed in self.steps.items():
            if at <= tick or at == self.before_all:  # also of a tick before it: that is the oldest there is
                files |= changed
        return {place: version for place, version in files.items() if version is not None}

    def content_of(self, place: str, version: Version) -> bytes | None:
        """Return the content of a file; None where there is none any more."""
        if not version.turn:
            return self.arrivals.texts.get(place) or read_now(self.base, place)
        if self._latest.tick != version.tick:
            self._latest = read_tick(self.base, version.tick, self._prompts)
        turn = self._latest.turn_of(version.turn)
        effect = turn.writes.get(place) if turn else None
        return effect.content if effect else None

    def own_files(self, tick: int) -> dict[str, bytes]:
        """Return the ledgers and the counter as they were after a tick."""
        ledgers = {paths.ledger_file(name): self._ledger(name, tick) for name in self.names}
        return {file: raw for file, raw in ledgers.items() if raw} | {paths.TICK_FILE: counter(tick + 1)}

    def _ledger(self, name: str, tick: int) -> bytes:
        """Return an agent's ledger after a tick; one line where it keeps none so old."""
        if lines := b"".join(line for at, line in self._ledgers[name] if at <= tick):
            return lines
        told = self.told.ticks.items()
        found = next((turn.states[name] for at, turn in told if at > tick and name in turn.states), None)
        return compact(found) + b"\n" if found and 0 <= found["tick"] <= tick else b""

    @cached_property
    def _ledgers(self) -> dict[str, list[tuple[int, bytes]]]:
        return {name: list(_lines_of(self.base, name)) for name in self.names}


def read_now(base: OrgPath, place: str) -> bytes | None:
    """Return a file's content as it is now; None for one that is not there, or too large."""
    try:
        content = fs.read_bytes(base / place, FILE_LIMIT_BYTES)
    except OSError:  # what stands there cannot be read; a disk that refuses is a `DiskError`
        return None
    return content if len(content) <= FILE_LIMIT_BYTES else None  # else it is cut off


def _changed_files(told: TickChanges) -> bool:
    """Return whether the turns of a tick wrote anything, as `ticks_with_turns` has it."""
    return any(report.calls or report.status in ("done", "waiting") for report in told.reports)


def files_of(base: OrgPath) -> Iterator[str]:
    """Yield the regular files that a history would keep."""
    above = len(f"{base}/")
    for top in KEPT_FOLDERS:
        for folder, inner, files in () if os.path.islink(base / top) else walk(f"{base}/{top}"):
            if Path(folder).parent == Path(base) / "agents" and "logs" in inner:
                inner.remove("logs")
            for file in files:
                if not is_temporary(file.name) and file.is_file(follow_symlinks=False):
                    yield file.path[above:]


def _lines_of(base: OrgPath, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines of a ledger, each with its tick."""
    for line in (read_now(base, paths.ledger_file(name)) or b"").splitlines(keepends=True):
        try:
            yield int(parse(line, limit_bytes=FILE_LIMIT_BYTES)["tick"]), line
        except (JsonProblem, KeyError, TypeError, ValueError):
            continue
