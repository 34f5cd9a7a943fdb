"""A second floor: what the engine looked at, encoded and wrote in one tick, bare, with as many flushes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from benchmarks.counting import CountingDisk
from benchmarks.floor import SHOWN
from benchmarks.orgs import WARM_TICKS, register_models
from benchmarks.sides import Work
from lemming.engine import ticks
from lemming.kernel.files.disk import Disk, on_disk
from lemming.testing import tree

APPENDED = (".jsonl", ".log")


class Piece(NamedTuple):
    """What one write brought: values that are lines at the end of a file, or the one value of a file."""

    path: str
    values: list[Any]
    is_appended: bool

    def encoded(self) -> bytes:
        """Return the bytes to write; their digest is taken, as the engine takes one of all that it keeps."""
        indent = None if self.is_appended else 2
        content = b"".join([to_json(value, indent=indent) + b"\n" for value in self.values])
        blake2b(content, digest_size=8).hexdigest()
        return content


def bare(base: Path, turns: int, count: int) -> Work:
    """Run an organisation, and return the work of doing bare what its last tick did, `count` times over.

    That is: a look at each entry that a turn showed, and encoding and writing what was written. Nothing is
    decided, nothing is checked, nothing else is read.
    """
    before, after, disk = _last_tick(base)
    pieces = _written_between(before, after, turns)
    looks = _shown(before)
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
            for path in looks:
                os.stat(path, dir_fd=root)
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


def _shown(files: Iterable[str]) -> list[str]:
    """Return the newest entries of every outbox, as many as an inbox shows: each outbox has one reader."""
    outboxes: dict[str, list[str]] = {}
    for path in sorted(files):
        folder, _, _ = path.rpartition("/")
        if folder.endswith("/outbox"):
            outboxes.setdefault(folder, []).append(path)
    return [path for entries in outboxes.values() for path in entries[-SHOWN:]]


def _written_between(before: dict[str, bytes], after: dict[str, bytes], turns: int) -> list[Piece]:
    """Return all that a tick wrote; what all turns add to is in one piece a turn."""
    pieces: list[Piece] = []
    for path, content in after.items():
        old = before.get(path, b"")
        if content == old:
            continue
        if not path.endswith(APPENDED):
            pieces.append(Piece(path, [from_json(content)], False))
            continue
        values = [from_json(line) for line in content[len(old) :].splitlines()]
        step = -(-len(values) // (turns if path.startswith("logs/") else 1))
        pieces += [Piece(path, values[at : at + step], True) for at in range(0, len(values), step)]
    return pieces


def _write(root: int, pieces: list[Piece], flushes: int, *, new_names: str, known: Iterable[str]) -> None:
    """Write the pieces and flush after every so many of them; a file that was new is new again."""
    every = len(pieces) / flushes if flushes else len(pieces) + 1
    due = every
    for number, piece in enumerate(pieces, 1):
        target = piece.path if piece.path in known else piece.path + new_names
        place = target if piece.is_appended else f"{target}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if piece.is_appended else os.O_TRUNC)
        file = os.open(place, flags, 0o644, dir_fd=root)
        os.write(file, piece.encoded())
        if number >= due:
            os.fdatasync(file)
            due += every
        os.close(file)
        if not piece.is_appended:
            os.rename(place, target, src_dir_fd=root, dst_dir_fd=root)
