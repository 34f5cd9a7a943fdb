"""Counts of disk changes by an engine, taken at two places that every write passes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from benchmarks.orgs import register_models
from lemming.engine import ticks
from lemming.kernel.files import fs
from lemming.kernel.files.disk import Disk, use_disk


class CountingDisk(Disk):
    """The real disk; `counts` holds flushes and bytes written."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def write(self, descriptor: int, content: bytes) -> int:
        """Write the bytes and count their number."""
        written = super().write(descriptor, content)
        self.counts["bytes written"] += written
        return written

    def sync(self, descriptor: int) -> None:
        """Flush a file and count the flush."""
        self.counts["flushes"] += 1
        super().sync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Flush a folder and count the flush."""
        self.counts["flushes"] += 1
        super().sync_folder(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        """Flush the file system and count the flush."""
        self.counts["flushes"] += 1
        self.counts["file system flushes"] += 1
        super().sync_file_system(descriptor)


def count_writes(base: Path, warm_ticks: int, counted_ticks: int) -> Counter[str]:
    """Run an organisation and return the disk operations of the counted ticks in total.

    The keys are the keys of `CountingDisk`, "files appended to", and "agents' files" and "other files" with
    "created" and "replaced".
    """
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(warm_ticks):
        next(reports)
    disk, counts = CountingDisk(), Counter[str]()

    def observe(operation: str, path: str) -> None:
        if operation == "rename" and (base / path).exists():
            counts[f"{_owner_label(path)} files replaced"] += 1

    with use_disk(disk), fs.observe_changes(observe):
        for _ in range(counted_ticks):
            old_files = _stat_files(base)
            next(reports)
            counts.update(_count_changes(old_files, _stat_files(base)))
    reports.close()  # type: ignore[attr-defined]
    return disk.counts + counts


def _stat_files(base: Path) -> dict[str, tuple[int, int]]:
    """Return inode and size of every file by path in the organisation."""
    return {
        os.path.relpath(path, base): (status.st_ino, status.st_size)
        for folder, _, names in os.walk(base)
        for path in (f"{folder}/{name}" for name in names)
        if (status := os.stat(path))
    }


def _count_changes(old_files: dict[str, tuple[int, int]], new_files: dict[str, tuple[int, int]]) -> Counter[str]:
    changes = Counter(f"{_owner_label(path)} files created" for path in new_files.keys() - old_files.keys())
    for path in new_files.keys() & old_files.keys():
        (old, old_size), (new, new_size) = old_files[path], new_files[path]
        changes["files appended to"] += old == new and new_size > old_size
    return changes


def _owner_label(path: str) -> str:
    return "agents'" if path.startswith("agents/") else "other"
