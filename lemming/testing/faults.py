"""Faults on demand: the world stops at any change of the disk, or the disk refuses one.

`watch` runs something once and hands over, for every change it makes, what an end at that very moment would
leave behind: the process killed, killed half-way through a write, or the power gone. `fail_at` lets the
k-th change fail. The rules of power loss are those of docs/durability.md.
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
from lemming.kernel.files.disk import Disk, on_disk

Image = dict[str, bytes | None]
"""What stands below a folder, by path: the bytes of a file, None for a folder."""

End = Literal["kill", "torn", "strict", "names", "random", "blocks"]
"""How the world ends: see `watch`."""

ENDS: tuple[End, ...] = ("kill", "torn", "strict", "names", "random", "blocks")
POWER_LOSS: tuple[End, ...] = ("strict", "names", "random", "blocks")
BLOCK_BYTES = (64, 512, 4096)
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EMFILE": errno.EMFILE}


@dataclass(frozen=True)
class Point:
    """A moment at which the world could have ended. Numbers count from 1; `left` is what it would leave."""

    number: int
    change: str
    left: Image


Hear = Callable[[Point], None]
Wanted = Callable[[int], bool]


def take_image(base: Path) -> Image:
    """Return everything that stands below a folder now, hidden files too."""
    found: Image = {}
    _take(str(base), "", found)
    return found


def _take(folder: str, above: str, found: Image) -> None:
    """Add what stands in a folder to an image; `above` is its path there, with a slash behind it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            relative = f"{above}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                found[relative] = None
                _take(entry.path, f"{relative}/", found)
            elif entry.is_file():
                with open(entry.path, "rb", buffering=0) as file:
                    found[relative] = file.read()
            else:
                found[relative] = None


def restore(image: Image, base: Path) -> Path:
    """Put an image into a folder that holds nothing yet, and return the folder."""
    fs.make_root(base)
    for relative, content in image.items():
        if content is None:
            fs.make_folder(base, relative)
        else:
            fs.publish(base, relative, content)
    return base


@contextlib.contextmanager
def watch(base: Path, end: End, hear: Hear, *, wanted: Wanted | None = None, seed: int = 0) -> Iterator[None]:
    """Tell `hear` at every change of the disk below `base` what an end at that moment would leave.

    kill: all that was done so far. torn: that, and half of the bytes being written. strict: only what was
    synced. names: every name as it is now, with only the bytes that were synced. random: for each unsynced
    name the old or the new, and for unsynced bytes any part from the front; drawn from `seed`. blocks: as
    random, but of unsynced bytes any blocks, wherever they stand, with zeros where one is missing.
    The power models also tell of the moment after the last change. `wanted` chooses points by number.
    """
    watcher = _Watcher(base, end, hear, wanted or (lambda _: True), seed)
    with contextlib.closing(watcher.platter), on_disk(watcher), fs.observed(watcher.announced):
        yield
        if end in POWER_LOSS:
            watcher.announced("the end", "")


@contextlib.contextmanager
def fail_at(
    number: int, error_number: int, *, lasting: bool = False, half: bool = False
) -> Iterator[list[str]]:
    """Let the change of the disk with this number (from 1) fail; with `lasting`, every later one too.

    With `half` only calls that write bytes are counted, and the first one fails after half of its bytes, as
    on a disk that is filling up. Yields the list of changes so far, as "operation path".
    """
    changes: list[str] = []

    def count(operation: str, path: str) -> bool:
        changes.append(f"{operation} {path}")
        return len(changes) == number or (lasting and len(changes) > number)

    def refuse(operation: str, path: str) -> None:
        if count(operation, path):
            raise OSError(error_number, os.strerror(error_number))

    class Filling(Disk):
        def write(self, descriptor: int, content: bytes) -> int:
            if count("write", f"{len(content)} bytes"):
                if len(changes) == number:
                    super().write(descriptor, content[: len(content) // 2])
                raise OSError(error_number, os.strerror(error_number))
            return super().write(descriptor, content)

    with on_disk(Filling()) if half else fs.observed(refuse):
        yield changes


@contextlib.contextmanager
def refuse_look(base: Path, number: int, error_number: int) -> Iterator[list[str]]:
    """Let the look with this number (from 1) at something below `base` be refused: `stat`, `open`, `readdir`.

    Yields the list of looks so far, as "call path".
    """
    looks: list[str] = []
    counting = threading.Lock()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def look(path: Any = ".", *args: Any, **named: Any) -> Any:
            flags = args[0] if args and call.__name__ == "open" else 0
            place = _place_of(path, named.get("dir_fd"))
            if place is not None and is_below(base, place) and not flags & os.O_CREAT:
                with counting:
                    looks.append(f"{call.__name__} {place[len(str(base)) + 1 :]}")
                    is_refused = len(looks) == number
                if is_refused:
                    raise OSError(error_number, os.strerror(error_number), place)
            return call(path, *args, **named)

        return look

    calls: Any = {
        name: counted(getattr(os, name)) for name in ("open", "stat", "lstat", "scandir", "listdir")
    }
    with mock.patch.multiple(os, **calls):
        yield looks


def is_below(base: Path, place: str) -> bool:
    """Return whether a path lies in a folder, without what is throw-away there."""
    return place.startswith(f"{base}/") and not place.startswith(f"{base}/.lemming")


def _place_of(path: Any, folder: int | None) -> str | None:
    """Return where a call looks, when it looks at a file at all: what is open, and relative paths, too."""
    if isinstance(path, int):
        folder, path = path, ""
    text = os.fsdecode(path)
    if folder is None or text.startswith("/"):
        return os.path.normpath(text)
    try:
        return os.path.normpath(f"{os.readlink(f'/proc/self/fd/{folder}')}/{text}")
    except OSError:
        return None


class Platter:
    """What of a folder would survive power loss: what was there at first, and what was synced since."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}  # open descriptors: an inode in use is not given to another file
        self.keep_all()

    def close(self) -> None:
        """Let the files go."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def keep_all(self) -> None:
        """Everything as it is now survives."""
        for path in (self._base, *self._base.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self.keep(descriptor)
            os.close(descriptor)

    def keep(self, descriptor: int) -> None:
        """A file's bytes, or a folder's names, survive as they are now."""
        status = os.fstat(descriptor)
        if status.st_ino not in self._held:
            self._held[status.st_ino] = os.dup(descriptor)
        if os.path.isdir(descriptor):
            self._names[status.st_ino] = _names_in(descriptor)
        else:
            self._bytes[status.st_ino] = os.pread(descriptor, status.st_size, 0)

    def image(self, end: End, chance: random.Random) -> Image:
        """Return what the power model leaves."""
        found: Image = {}
        self._walk(self._base.stat().st_ino, self._base, "", found, end, chance)
        return found

    def _walk(
        self, folder: int, now: Path | None, above: str, found: Image, end: End, chance: random.Random
    ) -> None:
        """Collect one folder; `now` is where it stands at present, if it does."""
        old = self._names.get(folder, {})
        new = _names_in(now) if now else {}
        for name in sorted({**old, **new}):
            places = {"strict": [old], "names": [new]}.get(end, [old, new])
            inode = chance.choice(places).get(name)
            if inode is None:
                continue
            path = now / name if now and new.get(name) == inode else None
            relative = f"{above}{name}"
            if inode in self._names or (path and path.is_dir()):
                found[relative] = None
                self._walk(inode, path, f"{relative}/", found, end, chance)
            else:
                found[relative] = self._content(inode, path, end, chance)

    def _content(self, inode: int, path: Path | None, end: End, chance: random.Random) -> bytes:
        kept = self._bytes.get(inode, b"")
        if end not in ("random", "blocks") or path is None:
            return kept
        now = path.read_bytes()
        if not now.startswith(kept):
            return chance.choice([kept, now])
        if end == "blocks":
            return chance.choice([kept, now, _with_holes(now, len(kept), chance)])
        lost = len(now) - chance.choice([len(kept), chance.randint(len(kept), len(now)), len(now)])
        # A file system may have made the file longer before the bytes came: then there are zeros.
        return now[: len(now) - lost] + b"\0" * chance.choice([0, lost])


def _with_holes(content: bytes, kept: int, chance: random.Random) -> bytes:
    """Return a file of which the first bytes were kept and any of the blocks after them came back."""
    size = chance.choice(BLOCK_BYTES)
    left = bytearray(content)
    for start in range(kept - kept % size, len(content), size):
        if chance.random() < 0.5:
            first, end = max(start, kept), min(start + size, len(content))
            left[first:end] = bytes(end - first)
    return bytes(left)


class _Watcher(Disk):
    """The disk while a run is watched. Nothing is really synced: nobody pulls the plug."""

    def __init__(self, base: Path, end: End, hear: Hear, wanted: Wanted, seed: int) -> None:
        self._base, self._end, self._hear, self._wanted, self._seed = base, end, hear, wanted, seed
        self._count, self._lock = 0, threading.RLock()  # turns may run at once
        self.platter = Platter(base)

    def announced(self, operation: str, path: str) -> None:
        """Take note of a change about to be made."""
        with self._lock:
            if self._end == "torn" or not self._is_next_wanted():
                return
            if self._end == "kill":
                self._tell(f"{operation} {path}", take_image(self._base))
            else:
                chance = random.Random(f"{self._seed}/{self._count}")  # noqa: S311 - no secret
                self._tell(f"{operation} {path}", self.platter.image(self._end, chance))

    def write(self, descriptor: int, content: bytes) -> int:
        if self._end != "torn" or not self._is_next_wanted():
            return super().write(descriptor, content)
        half = len(content) // 2
        with self._lock:
            super().write(descriptor, content[:half])
            self._tell(f"half of {len(content)} bytes", take_image(self._base))
            return half + super().write(descriptor, content[half:])

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self.platter.keep(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        with self._lock:
            self.platter.keep(descriptor)

    def sync_file_system(self, descriptor: int) -> None:
        with self._lock:
            self.platter.keep_all()

    def _is_next_wanted(self) -> bool:
        self._count += 1
        return self._wanted(self._count)

    def _tell(self, change: str, left: Image) -> None:
        self._hear(Point(self._count, change, left))


def _names_in(folder: int | Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}
