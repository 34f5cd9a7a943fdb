"""A history made from the journals: a commit for each tick that they tell of, as if it had been on.

What turns wrote is in the journals, and is as it was then. What no turn wrote (resumes, settings, what
people put there) is as it is now. Each commit has the trailer `Rebuilt`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from lemming import paths
from lemming.agents import agent_folders
from lemming.clock import parse_timestamp
from lemming.errors import CorruptState
from lemming.files import fs
from lemming.files.jsontext import JsonProblem, parse
from lemming.history.git import BRANCH, Repository
from lemming.history.recorder import BY_HAND, ENGINE, message_of, tick_message
from lemming.journal.file import journal_ticks, prompts_in
from lemming.messages import list_outbox
from lemming.organisation import OrgPath
from lemming.tick.counter import counter
from lemming.timeline.record import RecordedTick, read_tick

_FILE_LIMIT_BYTES = 64 << 20
_TICKS_AT_ONCE = 100


def rebuild(base: OrgPath, repository: Repository) -> int:
    """Fill an empty history with a commit for each tick that the journals tell of; return how many.

    For the holder of the organisation's lock. Ticks whose journals cannot be read are left out. After one
    that was cut off the history goes on from where it got. Raises `GitFailed`.
    """
    ticks = list(_readable(base))
    if not ticks:
        return 0
    commits = _commits(_Past(base, repository, ticks))
    while at_once := b"".join(islice(commits, _TICKS_AT_ONCE)):
        repository.run("fast-import", "--quiet", "--date-format=raw", feed=at_once)
    repository.run("read-tree", BRANCH)
    return len(ticks)


def _readable(base: OrgPath) -> Iterator[int]:
    """Yield the ticks that are over and that changed something, ascending."""
    prompts = prompts_in(base)
    for tick in journal_ticks(base):
        try:
            record = read_tick(base, tick, prompts)
        except CorruptState:
            continue
        if record.end and any(turn.calls for turn in record.turns):
            yield tick


class _Past:
    """What is now, and which of it the journals tell."""

    def __init__(self, base: OrgPath, repository: Repository, ticks: list[int]) -> None:
        self.base, self.ticks, self.prompts = base, ticks, prompts_in(base)
        self.names = [name for name in agent_folders(base) if paths.AGENT_NAME.match(name)]
        self.ledgers = {name: _ledger(base, name) for name in self.names}
        records = (read_tick(base, tick, self.prompts) for tick in ticks)
        told = {place for record in records for turn in record.turns for place in turn.writes}
        told |= {paths.ledger_file(name) for name in self.names} | {paths.TICK_FILE}
        late = {
            entry.file for name in self.names for entry in list_outbox(base, name) if entry.tick >= ticks[0]
        }
        self.untold = [file for file in repository.changes() if file not in told | late]


def _commits(past: _Past) -> Iterator[bytes]:
    """Yield the commits as `git fast-import` takes them."""
    first = past.ticks[0]
    files = {file: _bytes(past.base, file) for file in past.untold}
    files |= {paths.ledger_file(name): _lines_before(past.ledgers[name], first) for name in past.names}
    subject, trailers = f"before tick {first}: the history begins", {"Before-Tick": first, "Rebuilt": "yes"}
    files[paths.TICK_FILE] = counter(first)
    at_s = _seconds(read_tick(past.base, first).begin.at)
    yield _commit(message_of(subject, trailers), BY_HAND, at_s, files, [])
    for number, tick in enumerate(past.ticks, 1):
        record = read_tick(past.base, tick, past.prompts)
        reports = [turn.report for turn in record.turns if turn.report]
        message = tick_message(tick, reports, Rebuilt="yes")
        parent = f"{BRANCH}^0" if number % _TICKS_AT_ONCE == 0 else ""  # git has forgotten it
        files = _files_after(past, record)
        yield _commit(message, ENGINE, _seconds(record.begin.at), files, record.expired, parent)


def _files_after(past: _Past, record: RecordedTick) -> dict[str, bytes | None]:
    """Return what a tick changed: the files its turns wrote, their ledgers and the counter. None: no file."""
    files: dict[str, bytes | None] = {paths.TICK_FILE: counter(record.tick + 1)}
    for turn in record.turns:
        name = turn.agent
        files |= {place: effect.content for place, effect in turn.writes.items() if not effect.root}
        removed = turn.report.removed if turn.report else []
        files |= dict.fromkeys(place for place in removed if not place.startswith("/"))
        if name in past.ledgers:
            files[paths.ledger_file(name)] = _lines_before(past.ledgers[name], record.tick + 1)
    return files


def _commit(
    message: str,
    author: str,
    at_s: int,
    files: dict[str, bytes | None],
    removed: list[str],
    parent: str = "",
) -> bytes:
    who = f"{author} <lemming@localhost> {at_s} +0000"
    parts = [
        f"commit {BRANCH}\nauthor {who}\ncommitter LeMMing <lemming@localhost> {at_s} +0000\n".encode(),
        _data(message.encode()),
    ]
    parts += [f"from {parent}\n".encode()] if parent else []
    parts += [b"D %b\n" % _quoted(file) for file in removed]
    for file, content in sorted(files.items()):
        if content is None:
            parts.append(b"D %b\n" % _quoted(file))
        else:
            parts += [b"M 100644 inline %b\n" % _quoted(file), _data(content)]
    return b"".join([*parts, b"\n"])


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _quoted(file: str) -> bytes:
    """Return a path in the quotes of C, as git takes any name."""
    raw = os.fsencode(file).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % raw


def _bytes(base: OrgPath, file: str) -> bytes | None:
    """Return a file's bytes; None for one that is not there or no file."""
    try:
        return fs.read_bytes(base / file, _FILE_LIMIT_BYTES)
    except OSError:
        return None


def _ledger(base: OrgPath, name: str) -> list[tuple[int, bytes]]:
    """Return the whole lines of a ledger, each with its tick."""
    lines = (_bytes(base, paths.ledger_file(name)) or b"").splitlines(keepends=True)
    found = []
    for line in lines:
        try:
            found.append((int(parse(line, limit_bytes=_FILE_LIMIT_BYTES)["tick"]), line))
        except (JsonProblem, KeyError, TypeError, ValueError):
            continue
    return found


def _lines_before(ledger: list[tuple[int, bytes]], tick: int) -> bytes | None:
    return b"".join(line for at, line in ledger if at < tick) or None


def _seconds(at: str) -> int:
    try:
        return max(0, int(parse_timestamp(at).timestamp()))
    except ValueError:
        return 0
