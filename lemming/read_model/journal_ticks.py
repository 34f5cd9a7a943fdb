"""The newest ticks with a journal; older segments of journals are not opened."""

from __future__ import annotations

import os

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.checksums import unreadable_error
from lemming.kernel.journal.journal_file import load_tick_started
from lemming.kernel.journal.journal_segments import plain_ticks, sealed_ticks
from lemming.kernel.org.organisation import OrgPath


def journal_bytes(base: OrgPath, tick: int) -> int:
    """Return the size of a tick's journal file in bytes; 0 if the journal is sealed or missing."""
    try:
        return os.stat(f"{base}/{paths.journal_file(tick)}").st_size
    except OSError:
        return 0


def newest_journals(base: OrgPath, count: int, *, before_tick: int | None = None) -> list[int]:
    """Return the newest `count` ticks with a journal, ascending, optionally only ticks before `before_tick`."""
    try:
        ticks = {*sealed_ticks(base, newest=count, before_tick=before_tick), *plain_ticks(base)}
        return sorted(tick for tick in ticks if before_tick is None or tick < before_tick)[-count:]
    except OSError as error:
        raise unreadable_error(paths.JOURNALS, error) from error


def started_journals(base: OrgPath, count: int, *, before_tick: int | None = None) -> list[int]:
    """Return the newest `count` ticks that have started, ascending, optionally only ticks before
    `before_tick`.

    The engine creates a journal before it writes the first line. A kill or a full disk in between leaves an
    empty or torn journal, which holds no information.
    """
    return drop_unstarted(base, newest_journals(base, count + 1, before_tick=before_tick))[-count:]


def drop_unstarted(base: OrgPath, ticks: list[int]) -> list[int]:
    """Return `ticks`, ascending, without a last tick that has not started."""
    try:
        return ticks[:-1] if ticks and load_tick_started(base, ticks[-1]) is None else ticks
    except CorruptState:  # reported by the reader of that journal
        return ticks
