"""Append-only log of a channel: `agents/<name>/channel.jsonl`.

The log holds received messages, delivered entries, failed attempts and the reachability of the other end. A
line is written after its event. An event without a line is repeated under the same id or key.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.redaction.secrets import redact_json, redacted_excerpt
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import raises_disk_error
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.lenient_json import parse_object_or_empty

Did = Literal["received", "refused", "delivered", "failed", "gave_up", "down", "up"]
MIN_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 10.0, 3600.0
SENDER_WINDOW_S = 3600.0
_LIMIT_BYTES, _PIECE_BYTES = 1 << 30, 1 << 16


@dataclass
class DeliveryAttempts:
    """Failed delivery attempts of an entry: number, last reason and time of the next attempt."""

    attempts: int
    reason: str
    next_at: datetime


@dataclass
class ChannelHistory:
    """Content of a channel's log."""

    messages: dict[str, str] = field(default_factory=dict)
    """The entry that each message became, by the message's id."""
    settled: set[str] = field(default_factory=set)
    """The entries that went out, or were given up."""
    answered: dict[str, str] = field(default_factory=dict)
    """The first entry that went out as the response to one of the agent's."""
    failed_deliveries: dict[str, DeliveryAttempts] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    last_received: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    down_since: str = ""
    down_why: str = ""
    failures: int = 0
    """Number of consecutive attempts that did not reach the other end."""
    retry_at: datetime | None = None
    sends_at: datetime | None = None
    """Time of the next delivery after a temporary failure."""
    not_sent: int = 0
    senders: deque[tuple[datetime, str]] = field(default_factory=deque)
    gave_up: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def apply_line(self, line: dict[str, Any]) -> None:
        """Apply a line."""
        did, entry, at = str(line.get("did")), str(line.get("entry", "")), _parse_time(line.get("at"))
        if did not in get_args(Did):
            return
        self.counts[did] += 1
        self.last = line
        if did == "received":
            self.messages[str(line.get("message", ""))] = self.last_received = entry
            self.senders.append((at, str(line.get("from", ""))))
            while self.senders and (at - self.senders[0][0]).total_seconds() > SENDER_WINDOW_S:
                self.senders.popleft()
        elif did == "refused":
            self.refused.append(line)
        elif did in ("delivered", "gave_up"):
            self.settled.add(entry)
            self.not_sent, self.sends_at = 0, None
            self.failed_deliveries.pop(entry, None)
            if did == "gave_up":
                self.gave_up.append(line)
            elif answered_identity := line.get("answers"):
                self.answered.setdefault(str(answered_identity), entry)
        elif did == "failed":
            attempts = self.failed_deliveries[entry].attempts + 1 if entry in self.failed_deliveries else 1
            self.failed_deliveries[entry] = DeliveryAttempts(
                attempts, str(line.get("why", "")), at + retry_delay(attempts)
            )
            self.not_sent += 1
            self.sends_at = at + retry_delay(self.not_sent)
        elif did == "up":
            self.down_since, self.down_why, self.failures, self.retry_at = "", "", 0, None
        else:
            self.failures += 1
            self.down_since = self.down_since or str(line.get("at", ""))
            self.down_why, self.retry_at = str(line.get("why", "")), at + retry_delay(self.failures)


def retry_delay(attempts: int) -> timedelta:
    """Return the delay after a number of consecutive failures: 10 s, doubled each time, at most an hour.

    >>> [retry_delay(n).seconds for n in (1, 2, 3, 20)]
    [10, 20, 40, 3600]
    """
    return timedelta(seconds=min(MIN_RETRY_DELAY_S * 2 ** min(attempts - 1, 20), MAX_RETRY_DELAY_S))


class ChannelLog:
    """Log of an agent's channel. Several threads and processes may write to the log."""

    def __init__(self, org: Organisation, agent: str) -> None:
        self._base, self.file = org.base, paths.channel_log(agent)
        self._lock = threading.RLock()
        self._loaded_identity: tuple[int, int, int] | None = None
        self._position = _ReadPosition()
        self._is_mended = False
        self.syncs = True
        self._history = ChannelHistory()

    @property
    def history(self) -> ChannelHistory:
        """Current content of the log: new lines are parsed, or the whole log if the last parsed line has moved."""
        with self._lock:
            identity = self._file_identity()
            if identity != self._loaded_identity:
                self._load_new_lines(identity)
                self._loaded_identity = identity
            return self._history

    def _load_new_lines(self, identity: tuple[int, int, int] | None) -> None:
        """Parse the lines added since the last read."""
        inode, raw = identity[0] if identity else 0, self._load_tail(self._position.start)
        if inode != self._position.inode or not raw.startswith(self._position.last):
            self._history, self._position = ChannelHistory(), _ReadPosition(inode)
            raw = self._load_tail(0)
        complete_lines = raw[: raw.rfind(b"\n") + 1]  # the rest is being written, or torn
        for line in complete_lines[len(self._position.last) :].split(b"\n"):
            if plain := parse_object_or_empty(line):
                self._history.apply_line(plain)
        self._position.mark_read(self._position.start + len(complete_lines), complete_lines)

    def _load_tail(self, start: int) -> bytes:
        try:
            return fs.read_with_status(self._base / self.file, _LIMIT_BYTES, start=start)[0]
        except FileNotFoundError:
            return b""

    @contextlib.contextmanager
    def lock_for_writing(self) -> Iterator[LockedChannelLog]:
        """Lock the log against other writers during the block."""
        with self._lock, fs.AppendFile(self._base, self.file) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            try:
                file.size = os.fstat(file.fileno()).st_size
                is_whole = file.size == 0 or os.pread(file.fileno(), 1, file.size - 1) == b"\n"
                if not (self._is_mended and is_whole):
                    _drop_torn_line(file)
                    self._is_mended = True
                yield LockedChannelLog(file, self.history, self._position, syncs=self.syncs)
                self._loaded_identity = self._file_identity()
            finally:  # closing alone would leave it locked as long as a copy of the descriptor is open
                fcntl.flock(file.fileno(), fcntl.LOCK_UN)

    def append(self, did: Did, current_time: datetime, **facts: str) -> None:
        """Append a line."""
        with self.lock_for_writing() as writer:
            writer.append(did, current_time, **facts)

    def _file_identity(self) -> tuple[int, int, int] | None:
        try:
            status = _stat(self._base / self.file)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class _ReadPosition:
    """Position of the last parsed line: `last` starts at `start`.

    Lines contain timestamps, so a replaced or rewritten file does not have the same line there.
    """

    inode: int = 0
    start: int = 0
    last: bytes = b""

    def mark_read(self, end: int, lines: bytes) -> None:
        """Mark everything up to `end` as parsed, with these lines before it."""
        if lines:
            self.last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
            self.start = end - len(self.last)


class LockedChannelLog:
    """Locked log: its content, and appending."""

    def __init__(self, file: fs.AppendFile, history: ChannelHistory, position: _ReadPosition, *, syncs: bool) -> None:
        self._file, self.history, self._position, self._syncs = file, history, position, syncs

    def append(self, did: Did, current_time: datetime, **facts: str) -> None:
        """Append a line. With `syncs`, the line survives power loss."""
        line = redact_json({"at": timestamp(current_time), "did": did, **facts})
        if isinstance(line.get("why"), str):
            line["why"] = redacted_excerpt(line["why"], 400)
        raw = dump_compact(line) + b"\n"
        self._file.append(raw)
        self.history.apply_line(line)
        self._position.inode = os.fstat(self._file.fileno()).st_ino
        self._position.mark_read(self._file.size, raw)
        if self._syncs:
            self._file.sync()


@raises_disk_error
def _stat(path: Path) -> os.stat_result:
    return os.stat(path)


def _drop_torn_line(file: fs.AppendFile) -> None:
    """Remove a torn last line, or a line damaged by power loss."""
    raw = file.read_tail(_PIECE_BYTES, 2)
    start = file.size - len(raw)
    complete_lines = raw[: raw.rfind(b"\n") + 1]
    last = complete_lines[complete_lines.rfind(b"\n", 0, -1) + 1 :]
    # A power cut may leave a whole line with a hole in it.
    with contextlib.suppress(JsonProblem):
        parse(last)
        last = b""
    if (size := len(complete_lines) - len(last)) < len(raw):
        file.truncate(start + size)


def _parse_time(text: object) -> datetime:
    try:
        return parse_timestamp(str(text))
    except ValueError:
        return parse_timestamp("1970-01-01T00:00:00Z")


class ChannelLogs:
    """Channel logs of an organisation: `org.own(ChannelLogs)`."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._logs = org, dict[str, ChannelLog]()

    def get_log(self, agent: str) -> ChannelLog:
        """Return the log of an agent's channel."""
        return self._logs.setdefault(agent, ChannelLog(self._org, agent))
