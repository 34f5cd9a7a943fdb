"""A second floor: the files that the engine wrote in one tick, written bare, with as many flushes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.counting import CountingDisk
from benchmarks.orgs import WARM_TICKS, register_models
from benchmarks.sides import Work
from lemming.disk import Disk, on_disk
from lemming.engine import ticks
from lemming.testing import tree

APPENDED = (".jsonl", ".log")
Piece = tuple[str, bytes, bool]
"""Path, bytes, whether they are added to the end of a file."""


def same_files(base: Path, turns: int, count: int) -> Work:
    """Run an organisation, and return the work of writing what its last tick wrote, `count` times over."""
    before, after, disk = _last_tick(base)
    pieces = _written_between(before, after, turns)
    folder = base.with_name(f"{base.name}-bare")
    for path in after:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(before.get(path, b""))
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    of_all = disk.counts["file system flushes"]
    flushes = disk.counts["flushes"] - of_all
    done = [0]

    def work() -> None:
        for _ in range(count):
            done[0] += 1
            _write(root, pieces, flushes, new_names=f".{done[0]}", known=before.keys())
            for _ in range(of_all):
                Disk().sync_file_system(root)

    return work


def _last_tick(base: Path) -> tuple[dict[str, bytes], dict[str, bytes], CountingDisk]:
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(WARM_TICKS["one"]):
        next(reports)
    before = tree(base, without=(".lemming",))
    with on_disk(disk := CountingDisk()):
        next(reports)
    return before, tree(base, without=(".lemming",)), disk


def _written_between(before: dict[str, bytes], after: dict[str, bytes], turns: int) -> list[Piece]:
    """Return all that a tick wrote; what all turns add to is in one piece a turn."""
    pieces: list[Piece] = []
    for path, content in after.items():
        old = before.get(path, b"")
        if content == old:
            continue
        if not path.endswith(APPENDED):
            pieces.append((path, content, False))
            continue
        new = content[len(old) :]
        step = -(-len(new) // (turns if path.startswith("logs/") else 1))
        pieces += [(path, new[at : at + step], True) for at in range(0, len(new), step)]
    return pieces


def _write(root: int, pieces: list[Piece], flushes: int, *, new_names: str, known: Iterable[str]) -> None:
    """Write the pieces and flush after every so many of them; a file that was new is new again."""
    every = len(pieces) / flushes if flushes else len(pieces) + 1
    due = every
    for number, (path, content, is_appended) in enumerate(pieces, 1):
        target = path if path in known else path + new_names
        place = target if is_appended else f"{target}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if is_appended else os.O_TRUNC)
        file = os.open(place, flags, 0o644, dir_fd=root)
        os.write(file, content)
        if number >= due:
            os.fdatasync(file)
            due += every
        os.close(file)
        if not is_appended:
            os.rename(place, target, src_dir_fd=root, dst_dir_fd=root)
