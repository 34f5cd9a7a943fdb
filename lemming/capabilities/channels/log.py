"""What came and went through one channel: `agents/<name>/channel.jsonl`, which only grows.

Whether a message has arrived before, whether an entry went out, how often it was tried and whether the other
end can be reached are all read from it. A line is written after what it tells: what is not in it is done
again, under the same id or key.
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
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.redaction.secrets import excerpt, redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.refusals import looking
from lemming.kernel.org.organisation import Organisation

Did = Literal["received", "refused", "delivered", "failed", "gave_up", "down", "up"]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 3600.0
SENDERS_KEPT_S = 3600.0
_LIMIT_BYTES, _PIECE_BYTES = 1 << 30, 1 << 16


@dataclass
class Tried:
    """How often an entry that did not go out was tried, why not, and when it is tried again."""

    attempts: int
    why: str
    next_at: datetime


@dataclass
class Traffic:
    """What a channel's log says, all of it."""

    messages: dict[str, str] = field(default_factory=dict)
    """The entry that each message became, by the message's id."""
    settled: set[str] = field(default_factory=set)
    """The entries that went out, or were given up."""
    answered: dict[str, str] = field(default_factory=dict)
    """The first entry that went out as the response to one of the agent's."""
    tried: dict[str, Tried] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    last_received: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    down_since: str = ""
    down_why: str = ""
    failures: int = 0
    """How often in a row the other end could not be reached."""
    retry_at: datetime | None = None
    sends_at: datetime | None = None
    """When the next entry may go out, after one that did not for a reason that may pass."""
    not_sent: int = 0
    senders: deque[tuple[datetime, str]] = field(default_factory=deque)
    gave_up: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        """Take in one more line."""
        did, entry, at = str(line.get("did")), str(line.get("entry", "")), _moment(line.get("at"))
        if did not in get_args(Did):
            return
        self.counts[did] += 1
        self.last = line
        if did == "received":
            self.messages[str(line.get("message", ""))] = self.last_received = entry
            self._sent(str(line.get("from", "")), at)
        elif did == "refused":
            self.refused.append(line)
        elif did in ("delivered", "gave_up"):
            self.settled.add(entry)
            self.not_sent, self.sends_at = 0, None
            self.tried.pop(entry, None)
            if did == "gave_up":
                self.gave_up.append(line)
            elif asked := line.get("answers"):
                self.answered.setdefault(str(asked), entry)
        elif did == "failed":
            attempts = self.tried[entry].attempts + 1 if entry in self.tried else 1
            self.tried[entry] = Tried(attempts, str(line.get("why", "")), at + pause(attempts))
            self.not_sent += 1
            self.sends_at = at + pause(self.not_sent)
        else:
            self._reached(did == "up", line, at)

    def _sent(self, sender: str, at: datetime) -> None:
        self.senders.append((at, sender))
        while self.senders and (at - self.senders[0][0]).total_seconds() > SENDERS_KEPT_S:
            self.senders.popleft()

    def _reached(self, is_up: bool, line: dict[str, Any], at: datetime) -> None:
        if is_up:
            self.down_since, self.down_why, self.failures, self.retry_at = "", "", 0, None
            return
        self.failures += 1
        self.down_since = self.down_since or str(line.get("at", ""))
        self.down_why, self.retry_at = str(line.get("why", "")), at + pause(self.failures)


def pause(attempts: int) -> timedelta:
    """Return how long to wait after so many failures in a row: 10 s, doubled each time, an hour at most.

    >>> [pause(n).seconds for n in (1, 2, 3, 20)]
    [10, 20, 40, 3600]
    """
    return timedelta(seconds=min(FIRST_PAUSE_S * 2 ** min(attempts - 1, 20), LONGEST_PAUSE_S))


class ChannelLog:
    """The log of one agent's channel; several threads and processes may write to it."""

    def __init__(self, org: Organisation, agent: str) -> None:
        self._base, self.file = org.base, paths.channel_log(agent)
        self._lock = threading.RLock()
        self._read: tuple[int, int, int] | None = None
        self._place = _Place()
        self._is_mended = False
        self.syncs = True
        self._traffic = Traffic()

    @property
    def traffic(self) -> Traffic:
        """What the log says now. Of what was read, only what others have added since is read.

        It is read whole again where what was read last no longer stands in its place.
        """
        with self._lock:
            stamp = self._stamp()
            if stamp != self._read:
                self._take_in(stamp)
                self._read = stamp
            return self._traffic

    def _take_in(self, stamp: tuple[int, int, int] | None) -> None:
        """Read the lines that are not read yet."""
        inode, raw = stamp[0] if stamp else 0, self._since(self._place.start)
        if inode != self._place.inode or not raw.startswith(self._place.last):
            self._traffic, self._place = Traffic(), _Place(inode)
            raw = self._since(0)
        whole = raw[: raw.rfind(b"\n") + 1]  # the rest is being written, or torn
        for line in whole[len(self._place.last) :].split(b"\n"):
            with contextlib.suppress(JsonProblem):
                if line and isinstance(plain := parse(line), dict):
                    self._traffic.add(plain)
        self._place.mark_read(self._place.start + len(whole), whole)

    def _since(self, start: int) -> bytes:
        try:
            return fs.read_with_status(self._base / self.file, _LIMIT_BYTES, start=start)[0]
        except FileNotFoundError:
            return b""

    @contextlib.contextmanager
    def writing(self) -> Iterator[ChannelWriter]:
        """Keep others from writing while the block decides what is so."""
        with self._lock, fs.AppendFile(self._base, self.file) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            try:
                file.size = os.fstat(file.fileno()).st_size
                if not (self._is_mended and (file.size == 0 or _ends_a_line(file))):
                    _cut_torn(file)
                    self._is_mended = True
                yield ChannelWriter(file, self.traffic, self._place, syncs=self.syncs)
                self._read = self._stamp()
            finally:  # closing alone would leave it locked as long as a copy of the descriptor is open
                fcntl.flock(file.fileno(), fcntl.LOCK_UN)

    def note(self, did: Did, now: datetime, **facts: str) -> None:
        """Write one line."""
        with self.writing() as writer:
            writer.note(did, now, **facts)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = _status(self._base / self.file)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class _Place:
    """How far a log is read: `last`, the last line that was, begins at `start`.

    A line has its moment, so another file, or one that was cut and written again, does not have it there.
    """

    inode: int = 0
    start: int = 0
    last: bytes = b""

    def mark_read(self, end: int, whole: bytes) -> None:
        """Note that all is read up to `end`, before which these lines stand."""
        if whole:
            self.last = whole[whole.rfind(b"\n", 0, -1) + 1 :]
            self.start = end - len(self.last)


class ChannelWriter:
    """The log, held: what it says, and a place for more."""

    def __init__(self, file: fs.AppendFile, traffic: Traffic, place: _Place, *, syncs: bool) -> None:
        self._file, self.traffic, self._place, self._syncs = file, traffic, place, syncs

    def note(self, did: Did, now: datetime, **facts: str) -> None:
        """Write one line; with `syncs` it survives power loss."""
        line = redact_json({"at": timestamp(now), "did": did, **facts})
        if isinstance(line.get("why"), str):
            line["why"] = excerpt(line["why"], 400)
        raw = compact(line) + b"\n"
        self._file.append(raw)
        self.traffic.add(line)
        self._place.inode = os.fstat(self._file.fileno()).st_ino
        self._place.mark_read(self._file.size, raw)
        if self._syncs:
            self._file.sync()


@looking
def _status(path: Path) -> os.stat_result:
    return os.stat(path)


def _cut_torn(file: fs.AppendFile) -> None:
    """Take off a last line that was torn, or of which power loss left a part."""
    raw = file.read_tail(_PIECE_BYTES, 2)
    start = file.size - len(raw)
    whole = raw[: raw.rfind(b"\n") + 1]
    last = whole[whole.rfind(b"\n", 0, -1) + 1 :]
    # A power cut may leave a whole line with a hole in it.
    with contextlib.suppress(JsonProblem):
        parse(last)
        last = b""
    if (size := len(whole) - len(last)) < len(raw):
        file.truncate(start + size)


def _ends_a_line(file: fs.AppendFile) -> bool:
    return os.pread(file.fileno(), 1, file.size - 1) == b"\n"


def _moment(text: object) -> datetime:
    try:
        return parse_timestamp(str(text))
    except ValueError:
        return parse_timestamp("1970-01-01T00:00:00Z")


class ChannelLogs:
    """The logs of one organisation's channels: `org.own(ChannelLogs)`."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._logs = org, dict[str, ChannelLog]()

    def of(self, agent: str) -> ChannelLog:
        """Return the log of an agent's channel."""
        return self._logs.setdefault(agent, ChannelLog(self._org, agent))
