"""Journals up to a tick copied into another organisation, and journals after it set aside."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.journal.file import OWN_LIMIT_BYTES
from lemming.kernel.journal.sealing import (
    SEALED,
    SEGMENT_LIMIT_BYTES,
    load_last_removed_tick,
    note_removed,
    plain_ticks,
    read_sealed,
    sealed_ticks,
    segments,
)
from lemming.kernel.org.organisation import OrgPath


def copy_journals(base: OrgPath, other: Path, *, until: int) -> None:
    """Copy the journals up to and with a tick; segments that end before it are copied as they are."""
    for name, _, last in segments(base):
        if last <= until:
            content = fs.read_bytes(base / SEALED / name, SEGMENT_LIMIT_BYTES)
            fs.publish(other, f"{SEALED}/{name}", content)
        else:
            _unpack(base, other, name, until)
    if (through := load_last_removed_tick(base)) >= 0:
        note_removed(other, through)
    for tick in plain_ticks(base):
        if tick <= until:
            content = fs.read_bytes(base / paths.journal_file(tick), OWN_LIMIT_BYTES)
            fs.publish(other, paths.journal_file(tick), content)


def set_journals_aside(base: OrgPath, *, after: int, folder: str) -> None:
    """Move the journals of the ticks after a tick below `folder`. Safe to repeat; nothing is removed."""
    for name, _, last in segments(base):
        if last > after:
            # the copies first: a crash between the two leaves a journal twice, never not at all
            _unpack(Path(base), Path(base), name, after)
            fs.move(Path(base), f"{SEALED}/{name}", f"{folder}/{SEALED}/{name}")
    for tick in plain_ticks(base):
        if tick > after:
            fs.move(Path(base), paths.journal_file(tick), f"{folder}/{paths.journal_file(tick)}")


def _unpack(base: OrgPath, other: Path, name: str, until: int) -> None:
    """Write the journals of one segment up to a tick as files of their own."""
    first = int(name.partition("-")[0])
    for tick in sealed_ticks(base):
        if first <= tick <= until and (raw := read_sealed(base, tick)):
            fs.publish(other, paths.journal_file(tick), raw)
