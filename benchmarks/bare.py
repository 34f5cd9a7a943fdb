"""A second floor: the reads, encoding and writes of an engine's tick in bare Python, with the same flushes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from benchmarks.counting import CountingDisk
from benchmarks.floor import INBOX_SIZE
from benchmarks.orgs import WARM_TICKS, register_models
from benchmarks.sides import Work
from lemming.engine import ticks
from lemming.kernel.files.disk import Disk, use_disk
from lemming.testing import tree

APPENDED_SUFFIXES = (".jsonl", ".log")


class Piece(NamedTuple):
    """A write: either lines at the end of a file, or the single value of a file."""

    path: str
    values: list[Any]
    is_appended: bool

    def encode(self) -> bytes:
        """Encode the values and compute their digest, as the engine does for every written file."""
        indent = None if self.is_appended else 2
        content = b"".join([to_json(value, indent=indent) + b"\n" for value in self.values])
        blake2b(content, digest_size=8).hexdigest()
        return content


def make_bare_work(base: Path, turns: int, count: int) -> Work:
    """Run an organisation, and return work that repeats the bare I/O of the last tick `count` times.

    The work checks each displayed entry, then encodes and writes the tick's output. Nothing else is read,
    decided or validated.
    """
    old_files, new_files, disk = _run_last_tick(base)
    pieces = _diff_writes(old_files, new_files, turns)
    read_paths = _find_displayed_entries(old_files)
    folder = base.with_name(f"{base.name}-bare")
    for path in new_files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(old_files.get(path, b""))
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    file_system_flushes = disk.counts["file system flushes"]
    flushes = disk.counts["flushes"] - file_system_flushes
    repetitions = [0]

    def work() -> None:
        for _ in range(count):
            repetitions[0] += 1
            for path in read_paths:
                os.stat(path, dir_fd=root)
            _write_pieces(root, pieces, flushes, new_names=f".{repetitions[0]}", old_paths=old_files.keys())
            for _ in range(file_system_flushes):
                Disk().sync_file_system(root)

    return work


def _run_last_tick(base: Path) -> tuple[dict[str, bytes], dict[str, bytes], CountingDisk]:
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(WARM_TICKS["one"]):
        next(reports)
    old_files = tree(base, without=(".lemming",))
    with use_disk(disk := CountingDisk()):
        next(reports)
    return old_files, tree(base, without=(".lemming",)), disk


def _find_displayed_entries(files: Iterable[str]) -> list[str]:
    """Return the newest entries of every outbox, up to the size of an inbox.

    Each outbox has a single reader.
    """
    outboxes: dict[str, list[str]] = {}
    for path in sorted(files):
        folder, _, _ = path.rpartition("/")
        if folder.endswith("/outbox"):
            outboxes.setdefault(folder, []).append(path)
    return [path for entries in outboxes.values() for path in entries[-INBOX_SIZE:]]


def _diff_writes(old_files: dict[str, bytes], new_files: dict[str, bytes], turns: int) -> list[Piece]:
    """Return the writes of a tick. Appends of all turns to a shared file become a piece per turn."""
    pieces: list[Piece] = []
    for path, content in new_files.items():
        old = old_files.get(path, b"")
        if content == old:
            continue
        if not path.endswith(APPENDED_SUFFIXES):
            pieces.append(Piece(path, [from_json(content)], False))
            continue
        values = [from_json(line) for line in content[len(old) :].splitlines()]
        step = -(-len(values) // (turns if path.startswith("logs/") else 1))
        pieces += [Piece(path, values[start : start + step], True) for start in range(0, len(values), step)]
    return pieces


def _write_pieces(root: int, pieces: list[Piece], flushes: int, *, new_names: str, old_paths: Iterable[str]) -> None:
    """Write the pieces with evenly spaced flushes. A new file is again new in each repetition."""
    flush_interval = len(pieces) / flushes if flushes else len(pieces) + 1
    next_flush = flush_interval
    for number, piece in enumerate(pieces, 1):
        target = piece.path if piece.path in old_paths else piece.path + new_names
        open_path = target if piece.is_appended else f"{target}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if piece.is_appended else os.O_TRUNC)
        file = os.open(open_path, flags, 0o644, dir_fd=root)
        os.write(file, piece.encode())
        if number >= next_flush:
            os.fdatasync(file)
            next_flush += flush_interval
        os.close(file)
        if not piece.is_appended:
            os.rename(open_path, target, src_dir_fd=root, dst_dir_fd=root)
