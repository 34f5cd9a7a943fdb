"""How often an engine changes the disk, and how: counted at the two places it cannot go around."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.orgs import register_models
from lemming.engine import ticks
from lemming.kernel.files import fs
from lemming.kernel.files.disk import Disk, on_disk


class CountingDisk(Disk):
    """The real disk; `counts` holds flushes and bytes written."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def write(self, descriptor: int, content: bytes) -> int:
        """Write, and count the bytes."""
        written = super().write(descriptor, content)
        self.counts["bytes written"] += written
        return written

    def sync(self, descriptor: int) -> None:
        """Flush, and count it."""
        self.counts["flushes"] += 1
        super().sync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Flush, and count it."""
        self.counts["flushes"] += 1
        super().sync_folder(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """Flush, and count it."""
        self.counts["flushes"] += 1
        self.counts["file system flushes"] += 1
        super().sync_file_system(descriptor)


def count_writing(base: Path, warm: int, counted: int) -> Counter[str]:
    """Run an organisation and return what the ticks after the warm ones did to the disk, in all.

    The keys: those of `CountingDisk`, "files appended to", and "agents' files" and "other files" with
    "created" and "replaced".
    """
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(warm):
        next(reports)
    disk, found = CountingDisk(), Counter[str]()

    def observe(operation: str, path: str) -> None:
        if operation == "rename" and (base / path).exists():
            found[f"{_whose(path)} files replaced"] += 1

    with on_disk(disk), fs.observed(observe):
        for _ in range(counted):
            before = _files(base)
            next(reports)
            found.update(_changes(before, _files(base)))
    reports.close()  # type: ignore[attr-defined]
    return disk.counts + found


def _files(base: Path) -> dict[str, tuple[int, int]]:
    """Return inode and size of every file by its path in the organisation."""
    return {
        os.path.relpath(path, base): (status.st_ino, status.st_size)
        for folder, _, names in os.walk(base)
        for path in (f"{folder}/{name}" for name in names)
        if (status := os.stat(path))
    }


def _changes(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Counter[str]:
    changes = Counter(f"{_whose(path)} files created" for path in after.keys() - before.keys())
    for path in after.keys() & before.keys():
        (old, old_size), (new, new_size) = before[path], after[path]
        changes["files appended to"] += old == new and new_size > old_size
    return changes


def _whose(path: str) -> str:
    return "agents'" if path.startswith("agents/") else "other"
