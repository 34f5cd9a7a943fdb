"""The folder channel: files that are dropped become entries; answers are files.

A file is taken once nobody writes it. Its entry is written and flushed first, then the file is moved, then
the log is told: whatever is cut short is finished the next time, by the name and the digest in the entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import mimetypes
import os
import pwd
import signal
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.channels.channel import (
    Channel,
    ChannelContext,
    Message,
    Outgoing,
    Soon,
    clean,
    require_kind,
    require_name,
)
from lemming.kernel.base.errors import ConfigError, DiskError, LemmingError, RequestRejected, Unavailable
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.files import fs
from lemming.kernel.files.refusals import looking, require_about_one_file
from lemming.kernel.messages import ENTRIES_PER_TURN, EntryName, OutboxEntry, names_of, read_entry

DONE, FAILED, ANSWERS = "done", "failed", "answers"
DIGITS = 16
UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".download", ".swp", "~")


@dataclass(frozen=True)
class _Dropped:
    """A file that was read. `text` is None for one that is too large for an entry, or no text."""

    name: str
    digest: str
    size: int
    owner: str
    text: str | None

    @property
    def message_id(self) -> str:
        """What is remembered of it until it is moved: its name, and the beginning of its digest."""
        return f"{self.name} {self.digest[:DIGITS]}"


class _Taken(NamedTuple):
    """A file that became an entry: its name and digest, the name it is kept under, and the entry."""

    message: str
    kept: str
    entry: OutboxEntry


class FolderChannel(Channel):
    """Files dropped into `path`, a folder of the organisation or an absolute one; `files` are globs."""

    def __init__(
        self,
        *,
        path: str,
        to: str = "",
        kind: MessageKind = "request",
        files: list[str] | None = None,
        per_tick: int = 20,
        max_text_chars: int = 32_000,
        max_bytes: int = 64 << 20,
        settle_s: float = 1.0,
    ) -> None:
        if not path.strip() or ".." in Path(path).parts:
            hint = '"path": "shared/drop", or an absolute one'
            raise ConfigError('option "path": it names no folder', hint=hint)
        if not 1 <= per_tick <= ENTRIES_PER_TURN:
            raise ConfigError(f'option "per_tick": expected 1 to {ENTRIES_PER_TURN}, found {per_tick}')
        require_kind(kind)
        require_name(to)
        self.path, self.to, self.kind = path, to, kind
        self._globs, self._per_tick = files or ["*"], per_tick
        self._max_text_chars, self._max_bytes, self._settle_s = max_text_chars, max_bytes, settle_s

    def root(self, base: Path) -> Path:
        """Return the folder."""
        return base / Path(self.path).expanduser()

    def watched(self) -> str:
        """Return the folder in which files are dropped."""
        return self.path

    def arrived(self, base: Path) -> list[str]:
        """Return the files that are there to be taken, by their names."""
        try:
            return sorted(filter(self._is_wanted, _files_in(self.root(base))))
        except OSError:
            return []

    def collect(self, context: ChannelContext) -> Soon:
        """Take files, oldest name first, as many as there is room for in this tick."""
        root = self._made_folder(context.org.base)
        with _reachable(root, context):
            self._finish(context, root)
            names, left = self.arrived(context.org.base), self._per_tick
            taken: list[_Taken] = []
            again_s, left = None, context.room(self._per_tick) if names else 0
            for number, name in enumerate(names):
                if left <= 0:
                    self._settle(context, root, taken)
                    return Soon(len(names) - number, again_s)
                if not is_at_rest(root / name, self._settle_s):
                    again_s = self._settle_s
                elif entry := self._take(context, root, name, {one.kept for one in taken}):
                    taken.append(entry)
                    left -= 1
            self._settle(context, root, taken)
        return Soon(0, again_s)

    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        """Write an answer beside the file it answers: `answers/NAME.md`."""
        root = self._made_folder(context.org.base)
        entry = outgoing.entry
        name = f"{entry.tick:08}_{entry.id}.md"
        if outgoing.answers and (kept := _kept_name(outgoing.answers)):
            plain = kept.removesuffix(".md")
            first = f"{plain}.md"
            name = first if _is_first(context, outgoing) else f"{plain}.{entry.id}.md"
        with _reachable(root, context):
            text = outgoing.text
            content = (text if text.endswith("\n") else f"{text}\n").encode()
            fs.publish(root, f"{ANSWERS}/{name}", content, sync=context.syncs, is_org=False)

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(".") or name.lower().endswith(UNFINISHED):
            return False
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _made_folder(self, base: Path) -> Path:
        root = self.root(base)
        if not _is_folder(root):
            if not root.is_relative_to(base):
                raise Unavailable(f"there is no folder {root}", hint="make it")
            fs.make_folder(base, str(root.relative_to(base)))
        return root

    def _take(
        self, context: ChannelContext, root: Path, name: str, claimed: Collection[str]
    ) -> _Taken | None:
        """Write the entry of a file; one that can be none is set aside with its reason."""
        try:
            dropped = self._read(root, name)
            kept = _free_name(root, DONE, name, claimed)
            entry = context.write_next(self._message(context, dropped, kept))
        except FileNotFoundError:  # somebody took it back
            return None
        except (OSError, RequestRejected) as error:
            why = error.message if isinstance(error, LemmingError) else (error.strerror or str(error))
            self._set_aside(context, root, name, why)
            return None
        return _Taken(dropped.message_id, kept, entry)

    def _read(self, root: Path, name: str) -> _Dropped:
        path = root / name
        status = _status(path)
        if not stat.S_ISREG(status.st_mode):
            raise RequestRejected("it is no plain file")
        if status.st_size > self._max_bytes:
            raise RequestRejected(f"{status.st_size:,} bytes are more than {self._max_bytes:,} (max_bytes)")
        if not is_utf8(name):
            raise RequestRejected("its name is not UTF-8")
        if status.st_size == 0:
            raise RequestRejected("it is empty")
        raw = fs.read_bytes(path, self._max_bytes)
        digest = sha256(raw).hexdigest()
        return _Dropped(name, digest, len(raw), _owner(status.st_uid), self._text_in(raw))

    def _text_in(self, raw: bytes) -> str | None:
        if len(raw) > 4 * self._max_text_chars or b"\0" in raw:
            return None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return text if len(text) <= self._max_text_chars else None

    def _message(self, context: ChannelContext, dropped: _Dropped, kept: str) -> Message:
        place = f"{self.path.rstrip('/')}/{DONE}/{kept}"
        text = dropped.text
        if text is None:
            kind = mimetypes.guess_type(dropped.name)[0] or "no text"
            text = f"A file: {place} ({kind}, {dropped.size:,} bytes)"
        return Message(
            id=dropped.message_id,
            text=text,
            sender=dropped.owner,
            kind=self.kind,
            target=self.to,
            more={"file": place},
            verified={"owner": dropped.owner} if dropped.owner else {},
        )

    def _settle(self, context: ChannelContext, root: Path, taken: list[_Taken]) -> None:
        """Move the files of entries, but where another one stands by now, and then note that they arrived."""
        for one in taken:
            name, _, digest = one.message.rpartition(" ")
            if _digest_of(root / name, self._max_bytes).startswith(digest):
                move = fs.move_surely if context.syncs else fs.move
                move(root, name, f"{DONE}/{one.kept}")
        if taken and context.syncs:
            fs.sync_file_system(root)
        for one in taken:
            facts = {"message": one.message, "from": str(one.entry.payload.get("from", ""))}
            context.log.note("received", context.now(), entry=one.entry.identity, **facts)

    def _finish(self, context: ChannelContext, root: Path) -> None:
        """Finish what was cut short: files whose entries are written, and that were not moved or noted."""
        unfinished = []
        for name in _after(context, context.log.traffic.last_received):
            with contextlib.suppress(ConfigError, FileNotFoundError):
                entry = read_entry(context.org, name)
                if entry.payload.get("channel") == context.channel and (kept := _kept_name(entry)):
                    unfinished.append(_Taken(str(entry.payload["message_id"]), kept, entry))
        self._settle(context, root, unfinished)

    def _set_aside(self, context: ChannelContext, root: Path, name: str, why: str) -> None:
        """Move a file that can be no entry to `failed/`, with the reason beside it."""
        kept = f"{FAILED}/{_free_name(root, FAILED, name)}"
        fs.publish(root, f"{kept}.why.txt", f"{name}: {why}\n".encode("utf-8", "replace"), is_org=False)
        # Cut short after this, it comes here again and is not noted twice.
        if all(line.get("file") != clean(kept) for line in context.log.traffic.refused[-1:]):
            context.refuse(name, why, file=kept)
        # Last: as long as it lies there, all of this is done again.
        fs.move(root, name, kept)


def is_at_rest(path: Path, settle_s: float) -> bool:
    """Return whether nobody is writing a file.

    Linux tells: it gives a lease for reading (fcntl(2), `F_SETLEASE`) only while nobody has the file open to
    write. Elsewhere, and of other people's files, its last change must be `settle_s` ago.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:  # a link, or one that may not be read: it is set aside
        require_about_one_file(path, error)
        return True
    try:
        setting, signalled = fcntl.F_SETLEASE, fcntl.F_SETSIG  # type: ignore[attr-defined,unused-ignore]
        fcntl.fcntl(descriptor, signalled, signal.SIGURG)  # which does nothing, should a writer come now
        fcntl.fcntl(descriptor, setting, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, setting, fcntl.F_UNLCK)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        return abs(time.time() - os.fstat(descriptor).st_mtime) >= settle_s
    finally:
        os.close(descriptor)
    return True


def _is_first(context: ChannelContext, outgoing: Outgoing) -> bool:
    """Return whether no other response to the same file has gone out."""
    return context.log.traffic.answered.get(outgoing.asked, outgoing.key) == outgoing.key


def _kept_name(entry: OutboxEntry) -> str:
    """Return the name under which the file of an entry is kept; empty for an entry that is of no file."""
    place, message = entry.payload.get("file"), entry.payload.get("message_id")
    return place.rpartition("/")[2] if isinstance(place, str) and isinstance(message, str) else ""


def _after(context: ChannelContext, identity: str) -> list[EntryName]:
    """Return the agent's entries that come after one, in order; all without one."""
    names = context.own_entries()
    last = next(iter(names_of([identity])), None) if identity else None
    return [name for name in names if last is None or (name.tick, name.number) > (last.tick, last.number)]


def _free_name(root: Path, folder: str, name: str, claimed: Collection[str] = ()) -> str:
    """Return a name that is free in a folder and has no answer yet: NAME, then NAME-2, ..."""
    stem, suffix = os.path.splitext(name)
    number, free = 1, name
    while (free in claimed or _is_there(root / folder / free)) or (
        folder == DONE and _is_there(root / ANSWERS / f"{free.removesuffix('.md')}.md")
    ):
        number += 1
        free = f"{stem}-{number}{suffix}"
    return free


@looking
def _files_in(folder: Path) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found if not entry.is_dir(follow_symlinks=False)]


@looking
def _status(path: Path) -> os.stat_result:
    return path.lstat()


def _is_there(path: Path) -> bool:
    try:
        _status(path)
    except OSError:
        return False
    return True


@looking
def _mode_of(path: Path) -> int:
    return path.stat().st_mode


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(_mode_of(path))
    except OSError:
        return False


def _digest_of(path: Path, limit_bytes: int) -> str:
    try:
        return sha256(fs.read_bytes(path, limit_bytes)).hexdigest()
    except OSError:
        return "gone"


def is_utf8(name: str) -> bool:
    """Return whether a file's name can be written down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _owner(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


@contextlib.contextmanager
def _reachable(root: Path, context: ChannelContext) -> Iterator[None]:
    """Say of a refusal in a folder elsewhere that it is out of reach; another one stops the engine."""
    try:
        yield
    except DiskError as error:
        is_elsewhere = error.where.startswith(str(root)) and not root.is_relative_to(context.org.base)
        if is_elsewhere or error.concerns_one_file:
            raise Unavailable(f"{error.where}: {error.message}", hint=error.hint) from error
        raise
