"""Copy journals up to a tick, with the patches that they name, into another organisation; archive journals after a tick."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import OWN_LIMIT_BYTES
from lemming.kernel.journal.journal_packing import (
    SEALED_FOLDER,
    SEGMENT_LIMIT_BYTES,
    load_last_removed_tick,
    load_sealed_journal,
    plain_ticks,
    record_removed,
    sealed_ticks,
    segments,
)
from lemming.kernel.org.organisation import OrgPath


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
