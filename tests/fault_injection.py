"""Fault injection: stop the world at any disk change, or make the disk refuse a change.

`watch_crash_points` runs a block once and reports, for every disk change, the disk image left by an end at
this moment: the process killed, killed halfway through a write, or the power lost. `fail_nth_change` makes
the k-th change fail. docs/durability.md defines the rules of power loss.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from lemming.kernel.files import fs
from lemming.kernel.files.disk import Disk, use_disk

Image = dict[str, bytes | None]
"""The tree below a folder, by path: the bytes of a file, None for a folder."""

End = Literal["kill", "torn", "strict", "names", "random", "blocks"]
"""The kind of crash: see `watch`."""

ENDS: tuple[End, ...] = ("kill", "torn", "strict", "names", "random", "blocks")
POWER_LOSS: tuple[End, ...] = ("strict", "names", "random", "blocks")
BLOCK_BYTES = (64, 512, 4096)
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EMFILE": errno.EMFILE}


@dataclass(frozen=True)
class CrashPoint:
    """A moment at which the world could have ended. Numbers count from 1; `image` is the disk left behind."""

    number: int
    change: str
    image: Image


OnPoint = Callable[[CrashPoint], None]
PointFilter = Callable[[int], bool]


def take_image(base: Path) -> Image:
    """Return the current content of a folder, including hidden files."""
    image: Image = {}
    _scan_folder(str(base), "", image)
    return image


def _scan_folder(folder: str, prefix: str, image: Image) -> None:
    """Add a folder's content to an image. `prefix` is the folder's path in the image, ending in a slash."""
    with os.scandir(folder) as entries:
        for entry in entries:
            relative = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                image[relative] = None
                _scan_folder(entry.path, f"{relative}/", image)
            elif entry.is_file():
                with open(entry.path, "rb", buffering=0) as file:
                    image[relative] = file.read()
            else:
                image[relative] = None


def restore_image(image: Image, base: Path) -> Path:
    """Restore an image into an empty folder, and return the folder."""
    fs.make_root(base)
    for relative, content in image.items():
        if content is None:
            fs.make_folder(base, relative)
        else:
            fs.write_atomic(base, relative, content)
    return base


@contextlib.contextmanager
def watch_crash_points(
    base: Path, end: End, on_point: OnPoint, *, is_wanted: PointFilter | None = None, seed: int = 0
) -> Iterator[None]:
    """Call `on_point` at every disk change below `base` with the image left by an end at this moment.

    kill: everything done so far. torn: the same, and half of the bytes being written. strict: only synced data. names:
    every current name, with synced bytes only. random: for each unsynced name the old or the new, and for unsynced
    bytes any prefix; drawn from `seed`. blocks: as random, but any blocks of the unsynced bytes, with zeros for missing
    blocks. The power models also report the moment after the last change. `is_wanted` selects points by number.
    """
    watcher = _Watcher(base, end, on_point, is_wanted or (lambda _: True), seed)
    with contextlib.closing(watcher.disk), use_disk(watcher), fs.observe_changes(watcher.on_change):
        yield
        if end in POWER_LOSS:
            watcher.on_change("the end", "")


@contextlib.contextmanager
def fail_nth_change(
    number: int, error_number: int, *, lasting: bool = False, half: bool = False
) -> Iterator[list[str]]:
    """Make the disk change with this number (from 1) fail; with `lasting`, every later change too.

    With `half`, only calls that write bytes are counted, and the first failing call writes half of its bytes,
    as on a full disk. Yields the list of changes so far, as "operation path".
    """
    changes: list[str] = []

    def count_operation(operation: str, path: str) -> bool:
        changes.append(f"{operation} {path}")
        return len(changes) == number or (lasting and len(changes) > number)

    def raise_error(operation: str, path: str) -> None:
        if count_operation(operation, path):
            raise OSError(error_number, os.strerror(error_number))

    class Filling(Disk):
        def write(self, descriptor: int, content: bytes) -> int:
            if count_operation("write", f"{len(content)} bytes"):
                if len(changes) == number:
                    super().write(descriptor, content[: len(content) // 2])
                raise OSError(error_number, os.strerror(error_number))
            return super().write(descriptor, content)

    with use_disk(Filling()) if half else fs.observe_changes(raise_error):
        yield changes


@contextlib.contextmanager
def fail_nth_lookup(base: Path, number: int, error_number: int) -> Iterator[list[str]]:
    """Make the n-th `stat`, `open` or `readdir` (from 1) below `base` fail. Yields all lookups as "call path"."""
    lookups: list[str] = []
    counting = threading.Lock()

    def count_calls(call: Callable[..., Any]) -> Callable[..., Any]:
        def observed_call(path: Any = ".", *args: Any, **keywords: Any) -> Any:
            flags = args[0] if args and call.__name__ == "open" else 0
            lookup_path = _find_lookup_path(path, keywords.get("dir_fd"))
            if lookup_path is not None and is_watched_path(base, lookup_path) and not flags & os.O_CREAT:
                with counting:
                    lookups.append(f"{call.__name__} {lookup_path[len(str(base)) + 1 :]}")
                    is_refused = len(lookups) == number
                if is_refused:
                    raise OSError(error_number, os.strerror(error_number), lookup_path)
            return call(path, *args, **keywords)

        return observed_call

    calls: Any = {name: count_calls(getattr(os, name)) for name in ("open", "stat", "lstat", "scandir", "listdir")}
    with mock.patch.multiple(os, **calls):
        yield lookups


def is_watched_path(base: Path, path: str) -> bool:
    """Return True if a path lies in the folder, outside its disposable `.lemming` part."""
    return path.startswith(f"{base}/") and not path.startswith(f"{base}/.lemming")


def _find_lookup_path(path: Any, folder: int | None) -> str | None:
    """Return the absolute path of a call on a file, for descriptors and relative paths too, or None."""
    if isinstance(path, int):
        folder, path = path, ""
    text = os.fsdecode(path)
    if folder is None or text.startswith("/"):
        return os.path.normpath(text)
    try:
        return os.path.normpath(f"{os.readlink(f'/proc/self/fd/{folder}')}/{text}")
    except OSError:
        return None


class DurableDisk:
    """The part of a folder that survives power loss: the initial content, and all data synced since."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._descriptors: dict[int, int] = {}  # open descriptors: an inode in use is not given to another file
        self.mark_all_synced()

    def close(self) -> None:
        """Close the open descriptors."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def mark_all_synced(self) -> None:
        """Mark the whole current content as synced."""
        for path in (self._base, *self._base.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self.mark_synced(descriptor)
            os.close(descriptor)

    def mark_synced(self, descriptor: int) -> None:
        """Mark the current bytes of a file, or the current names of a folder, as synced."""
        status = os.fstat(descriptor)
        if status.st_ino not in self._descriptors:
            self._descriptors[status.st_ino] = os.dup(descriptor)
        if os.path.isdir(descriptor):
            self._names[status.st_ino] = _list_inodes(descriptor)
        else:
            self._bytes[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def make_image(self, end: End, chance: random.Random) -> Image:
        """Return the image left by the power model."""
        image: Image = {}
        self._collect_folder(self._base.stat().st_ino, self._base, "", image, end, chance)
        return image

    def _collect_folder(
        self, folder: int, current: Path | None, prefix: str, image: Image, end: End, chance: random.Random
    ) -> None:
        """Collect a folder; `current` is its present path, or None for a removed folder."""
        old = self._names.get(folder, {})
        new = _list_inodes(current) if current else {}
        for name in sorted({**old, **new}):
            name_tables = {"strict": [old], "names": [new]}.get(end, [old, new])
            inode = chance.choice(name_tables).get(name)
            if inode is None:
                continue
            path = current / name if current and new.get(name) == inode else None
            relative = f"{prefix}{name}"
            if inode in self._names or (path and path.is_dir()):
                image[relative] = None
                self._collect_folder(inode, path, f"{relative}/", image, end, chance)
            else:
                image[relative] = self._choose_content(inode, path, end, chance)

    def _choose_content(self, inode: int, path: Path | None, end: End, chance: random.Random) -> bytes:
        synced = self._bytes.get(inode, b"")
        if end not in ("random", "blocks") or path is None:
            return synced
        current = path.read_bytes()
        if not current.startswith(synced):
            return chance.choice([synced, current])
        if end == "blocks":
            return chance.choice([synced, current, _punch_holes(current, len(synced), chance)])
        lost_bytes = len(current) - chance.choice(
            [len(synced), chance.randint(len(synced), len(current)), len(current)]
        )
        # A file system may have made the file longer before the bytes came: then there are zeros.
        return current[: len(current) - lost_bytes] + b"\0" * chance.choice([0, lost_bytes])


def _punch_holes(content: bytes, intact: int, chance: random.Random) -> bytes:
    """Return a file with the first bytes intact, and zeros for some of the blocks after them."""
    size = chance.choice(BLOCK_BYTES)
    content_left = bytearray(content)
    for start in range(intact - intact % size, len(content), size):
        if chance.random() < 0.5:
            first, end = max(start, intact), min(start + size, len(content))
            content_left[first:end] = bytes(end - first)
    return bytes(content_left)


class _Watcher(Disk):
    """The disk of a watched run. Nothing is really synced, because the power is never lost."""

    def __init__(self, base: Path, end: End, on_point: OnPoint, is_wanted: PointFilter, seed: int) -> None:
        self._base, self._end, self._on_point, self._is_wanted, self._seed = (base, end, on_point, is_wanted, seed)
        self._count, self._lock = 0, threading.RLock()  # turns may run at once
        self.disk = DurableDisk(base)

    def on_change(self, operation: str, path: str) -> None:
        """Handle the announcement of a disk change."""
        with self._lock:
            if self._end == "torn" or not self._should_report_next():
                return
            if self._end == "kill":
                self._report_point(f"{operation} {path}", take_image(self._base))
            else:
                chance = random.Random(f"{self._seed}/{self._count}")
                self._report_point(f"{operation} {path}", self.disk.make_image(self._end, chance))

    def write(self, descriptor: int, content: bytes) -> int:
        if self._end != "torn" or not self._should_report_next():
            return super().write(descriptor, content)
        half = len(content) // 2
        with self._lock:
            super().write(descriptor, content[:half])
            self._report_point(f"half of {len(content)} bytes", take_image(self._base))
            return half + super().write(descriptor, content[half:])

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self.disk.mark_synced(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        with self._lock:
            self.disk.mark_synced(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        with self._lock:
            self.disk.mark_all_synced()

    def _should_report_next(self) -> bool:
        self._count += 1
        return self._is_wanted(self._count)

    def _report_point(self, change: str, image: Image) -> None:
        self._on_point(CrashPoint(self._count, change, image))


def _list_inodes(folder: int | Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}
