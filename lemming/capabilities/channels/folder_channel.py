"""Folder channel: dropped files become entries, and answers are files.

A file is received once no process writes to it. Its entry is written and flushed first, then the file is moved, then
the log is written. An interrupted step is finished the next time, by the name and the digest in the entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import mimetypes
import os
import pwd
import re
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
    InboundMessage,
    OutgoingEntry,
    PollResult,
    require_kind,
    require_name,
    to_utf8_safe,
)
from lemming.ext import ConfigError, LemmingError
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import DiskError, RequestRejected, Unavailable
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import raises_disk_error, require_about_one_file
from lemming.kernel.messages import ENTRIES_PER_TURN, OutboxEntry, parse_identities
from lemming.libraries.outbox_files import read_entry

DONE, FAILED, ANSWERS = "done", "failed", "answers"
DIGITS = 16
_ENGINE_FOLDER = re.compile(r"\.|config|agents(/[^/]+(/(outbox|memory))?)?|(logs|\.lemming)(/.*)?")
_PATH_HINT = 'write "path": "shared/drop", or an absolute path'
UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".download", ".swp", "~")


@dataclass(frozen=True)
class _DroppedFile:
    """Content of a dropped file. `text` is None for a binary file, or a file too large for an entry."""

    name: str
    digest: str
    size: int
    owner: str
    text: str | None

    @property
    def idempotency_id(self) -> str:
        """Idempotency id until the file is moved: its name and the start of its digest."""
        return f"{self.name} {self.digest[:DIGITS]}"


class _ReceivedFile(NamedTuple):
    """Received file: message id, archived name and entry."""

    message_id: str
    archived_name: str
    entry: OutboxEntry


class FolderChannel(Channel):
    """Channel for files dropped into `path`, a folder of the organisation or an absolute path. `files` are globs."""

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
        if not path.strip() or ".." in Path(path).parts or _ENGINE_FOLDER.fullmatch(Path(path).as_posix()):
            raise ConfigError(f'option "path" must name a folder of its own, got "{path}"', hint=_PATH_HINT)
        if not 1 <= per_tick <= ENTRIES_PER_TURN:
            raise ConfigError(f'option "per_tick" must be 1 to {ENTRIES_PER_TURN}, got {per_tick}')
        require_kind(kind)
        require_name(to)
        self.path, self.to, self.kind = path, to, kind
        self._globs, self._per_tick = files or ["*"], per_tick
        self._max_text_chars, self._max_bytes, self._settle_s = max_text_chars, max_bytes, settle_s

    def get_folder(self, base: Path) -> Path:
        """Return the folder."""
        return base / Path(self.path).expanduser()

    def watch_folder(self) -> str:
        """Return the folder for dropped files."""
        return self.path

    def pending_arrivals(self, base: Path) -> list[str]:
        """Return the names of the files to receive."""
        try:
            return sorted(filter(self._is_wanted, _list_files(self.get_folder(base))))
        except OSError:
            return []

    def collect(self, context: ChannelContext) -> PollResult:
        """Receive files in order of their names, as far as there is room in this tick."""
        root = self._ensure_folder(context.org.base)
        with _report_unreachable(root, context):
            self._finish_interrupted(context, root)
            names, remaining = self.pending_arrivals(context.org.base), self._per_tick
            received_files: list[_ReceivedFile] = []
            poll_after_s, remaining = None, context.remaining_entries(self._per_tick) if names else 0
            for number, name in enumerate(names):
                if remaining <= 0:
                    self._archive_files(context, root, received_files)
                    return PollResult(len(names) - number, poll_after_s)
                if not has_stable_mtime(root / name, self._settle_s):
                    poll_after_s = self._settle_s
                elif received := self._receive_file(
                    context, root, name, {received_file.archived_name for received_file in received_files}
                ):
                    received_files.append(received)
                    remaining -= 1
            self._archive_files(context, root, received_files)
        return PollResult(0, poll_after_s)

    def deliver(self, context: ChannelContext, outgoing: OutgoingEntry) -> None:
        """Write an answer beside the answered file: `answers/NAME.md`."""
        root = self._ensure_folder(context.org.base)
        entry = outgoing.entry
        name = f"{entry.tick:08}_{entry.id}.md"
        if outgoing.answers and (archived_name := _archived_name(outgoing.answers)):
            stem = archived_name.removesuffix(".md")
            first_answer = f"{stem}.md"
            # Another response to the same file may have been delivered.
            first_key = context.log.history.answered.get(outgoing.answered_id, outgoing.key)
            name = first_answer if first_key == outgoing.key else f"{stem}.{entry.id}.md"
        with _report_unreachable(root, context):
            text = outgoing.text
            content = (text if text.endswith("\n") else f"{text}\n").encode()
            fs.write_atomic(root, f"{ANSWERS}/{name}", content, sync=context.syncs, is_org=False)

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(".") or name.lower().endswith(UNFINISHED):
            return False
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _ensure_folder(self, base: Path) -> Path:
        root = self.get_folder(base)
        # An absolute path, or a link, to where files of the engine are: they would be moved away as if dropped.
        if _ENGINE_FOLDER.fullmatch(os.path.relpath(os.path.realpath(root), os.path.realpath(base))):
            raise Unavailable(f"folder {root} has files of the organisation itself", hint=_PATH_HINT)
        if not _is_folder(root):
            if not root.is_relative_to(base):
                raise Unavailable(f"folder {root} does not exist", hint="create it")
            fs.make_folder(base, str(root.relative_to(base)))
        return root

    def _receive_file(
        self, context: ChannelContext, root: Path, name: str, claimed: Collection[str]
    ) -> _ReceivedFile | None:
        """Write the entry of a file. An invalid file is moved to `failed/` with the reason."""
        try:
            dropped = self._load_file(root, name)
            archived_name = _free_name(root, DONE, name, claimed)
            entry = context.write_next(self._to_message(context, dropped, archived_name))
        except FileNotFoundError:  # the sender removed the file again
            return None
        except (OSError, RequestRejected) as error:
            reason = error.message if isinstance(error, LemmingError) else (error.strerror or str(error))
            self._move_to_failed(context, root, name, reason)
            return None
        return _ReceivedFile(dropped.idempotency_id, archived_name, entry)

    def _load_file(self, root: Path, name: str) -> _DroppedFile:
        path = root / name
        status = _stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise RequestRejected("expected a regular file")
        if status.st_size > self._max_bytes:
            raise RequestRejected(
                f"a file must have at most {self._max_bytes:,} bytes (max_bytes), got {status.st_size:,}"
            )
        if to_utf8_safe(name) != name:
            raise RequestRejected("the file name must be UTF-8")
        if status.st_size == 0:
            raise RequestRejected("the file is empty")
        raw = fs.read_bytes(path, self._max_bytes)
        digest = sha256(raw).hexdigest()
        return _DroppedFile(name, digest, len(raw), _owner_name(status.st_uid), self._decode_text(raw))

    def _decode_text(self, raw: bytes) -> str | None:
        if len(raw) > 4 * self._max_text_chars or b"\0" in raw:
            return None
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        return text if len(text) <= self._max_text_chars else None

    def _to_message(self, context: ChannelContext, dropped: _DroppedFile, archived_name: str) -> InboundMessage:
        path = f"{self.path.rstrip('/')}/{DONE}/{archived_name}"
        text = dropped.text
        if text is None:
            kind = mimetypes.guess_type(dropped.name)[0] or "no text"
            text = f"A file: {path} ({kind}, {dropped.size:,} bytes)"
        return InboundMessage(
            id=dropped.idempotency_id,
            text=text,
            sender=dropped.owner,
            kind=self.kind,
            target=self.to,
            more={"file": path},
            verified={"owner": dropped.owner} if dropped.owner else {},
        )

    def _archive_files(self, context: ChannelContext, root: Path, received_files: list[_ReceivedFile]) -> None:
        """Move the files of written entries, unless replaced by another file, and then log them as received."""
        for received_file in received_files:
            name, _, digest = received_file.message_id.rpartition(" ")
            if _file_digest(root / name, self._max_bytes).startswith(digest):
                move = fs.move_durable if context.syncs else fs.move
                move(root, name, f"{DONE}/{received_file.archived_name}")
        if received_files and context.syncs:
            fs.sync_file_system(root)
        for received_file in received_files:
            facts = {"message": received_file.message_id, "from": str(received_file.entry.payload.get("from", ""))}
            context.log.append("received", context.now(), entry=received_file.entry.identity, **facts)

    def _finish_interrupted(self, context: ChannelContext, root: Path) -> None:
        """Finish interrupted work: files with written entries that were not moved or logged."""
        unfinished = []
        identity = context.log.history.last_received
        last = next(iter(parse_identities([identity])), None) if identity else None
        for name in context.list_entries():
            if last is not None and (name.tick, name.number) <= (last.tick, last.number):
                continue
            with contextlib.suppress(ConfigError, FileNotFoundError):
                entry = read_entry(context.org, name)
                if entry.payload.get("channel") == context.channel and (archived_name := _archived_name(entry)):
                    unfinished.append(_ReceivedFile(str(entry.payload["message_id"]), archived_name, entry))
        self._archive_files(context, root, unfinished)

    def _move_to_failed(self, context: ChannelContext, root: Path, name: str, reason: str) -> None:
        target = f"{FAILED}/{_free_name(root, FAILED, name)}"
        fs.write_atomic(root, f"{target}.why.txt", f"{name}: {reason}\n".encode("utf-8", "replace"), is_org=False)
        # Cut short after this, it comes here again and is not noted twice.
        if all(line.get("file") != to_utf8_safe(target) for line in context.log.history.refused[-1:]):
            context.record_refusal(name, reason, file=target)
        # Last: as long as it lies there, all of this is done again.
        fs.move(root, name, target)


def has_stable_mtime(path: Path, settle_s: float) -> bool:
    """Return True if no process is writing to a file.

    Linux grants a read lease (fcntl(2), `F_SETLEASE`) only while no process has the file open for writing.
    Elsewhere, and for files of other users, the last change must be `settle_s` seconds ago.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:  # a link or an unreadable file: moved aside
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


def _archived_name(entry: OutboxEntry) -> str:
    """Return the archived name of an entry's file, or the empty string for an entry without a file."""
    path, message = entry.payload.get("file"), entry.payload.get("message_id")
    return path.rpartition("/")[2] if isinstance(path, str) and isinstance(message, str) else ""


def _free_name(root: Path, folder: str, name: str, claimed: Collection[str] = ()) -> str:
    """Return a free name in a folder without an answer yet: NAME, then NAME-2, ..."""
    stem, suffix = os.path.splitext(name)
    number, free = 1, name
    while (free in claimed or _exists(root / folder / free)) or (
        folder == DONE and _exists(root / ANSWERS / f"{free.removesuffix('.md')}.md")
    ):
        number += 1
        free = f"{stem}-{number}{suffix}"
    return free


@raises_disk_error
def _list_files(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]


@raises_disk_error
def _stat(path: Path, *, follows_links: bool = False) -> os.stat_result:
    return path.stat(follow_symlinks=follows_links)


def _exists(path: Path) -> bool:
    try:
        return bool(_stat(path))
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(_stat(path, follows_links=True).st_mode)
    except OSError:
        return False


def _file_digest(path: Path, limit_bytes: int) -> str:
    try:
        return sha256(fs.read_bytes(path, limit_bytes)).hexdigest()
    except OSError:
        return "gone"


def _owner_name(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


@contextlib.contextmanager
def _report_unreachable(root: Path, context: ChannelContext) -> Iterator[None]:
    """Convert disk errors in a folder outside the organisation to `Unavailable`. Other disk errors stop the engine."""
    try:
        yield
    except DiskError as error:
        is_elsewhere = error.where.startswith(str(root)) and not root.is_relative_to(context.org.base)
        if is_elsewhere or error.concerns_one_file:
            raise Unavailable(f"{error.where}: {error.message}", hint=error.hint) from error
        raise
