"""How often an engine changes the disk, and how: counted at the two places it cannot go around."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.orgs import register_models
from lemming import fs
from lemming.disk import Disk, on_disk
from lemming.engine import ticks


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

    The keys: those of `CountingDisk`, "files created", "files appended to", "agents' files replaced" and
    "other files replaced".
    """
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(warm):
        next(reports)
    disk, found = CountingDisk(), Counter[str]()

    def observe(operation: str, path: str) -> None:
        if operation == "rename" and (base / path).exists():
            found["agents' files replaced" if path.startswith("agents/") else "other files replaced"] += 1

    with on_disk(disk), fs.observed(observe):
        for _ in range(counted):
            before = _files(base)
            next(reports)
            found.update(_changes(before, _files(base)))
    reports.close()  # type: ignore[attr-defined]
    return disk.counts + found


def _files(base: Path) -> dict[str, tuple[int, int]]:
    """Return inode and size of every file."""
    return {
        path: (status.st_ino, status.st_size)
        for folder, _, names in os.walk(base)
        for path in (f"{folder}/{name}" for name in names)
        if (status := os.stat(path))
    }


def _changes(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, int]:
    grown = [
        path
        for path, (inode, size) in after.items()
        if path in before and before[path][0] == inode and size > before[path][1]
    ]
    return {"files created": len(after.keys() - before.keys()), "files appended to": len(grown)}
