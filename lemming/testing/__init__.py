"""Test helpers for organisations: a folder, a scripted model, a frozen clock, a crash.

Ships with the package, so plugins and organisations can be tested without a model or a network.

>>> import tempfile
>>> from pathlib import Path
>>> from lemming.engine import run_once
>>> base = make_org(Path(tempfile.mkdtemp()), resume("ada"), script=[dict(agent="ada", reply=say("hello"))])
>>> run_once(base, clock=FrozenClock()).turns[0].status
'done'
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_segments import load_sealed_journal

__all__ = [
    "Crash",
    "FrozenClock",
    "SkippingClock",
    "crash_at",
    "journal_lines",
    "make_org",
    "resume",
    "say",
    "tree",
    "write_script",
]

SCRIPT_FILE = "config/answers.jsonl"


class Crash(BaseException):
    """A simulated death of the process. Not an `Exception`, so no handler catches it by accident."""


def resume(name: str, **blocks: Any) -> dict[str, Any]:
    """Return a complete resume for a turn; `blocks` replace or add keys."""
    default_blocks = {
        "name": name,
        "title": name.title(),
        "model": {"key": "scripted"},
        "permissions": {"read_outboxes": ["*"], "tools": []},
        "schedule": {"run_every_n_ticks": 1, "phase_offset": 0},
        "instructions": f"You are {name}.",
    }
    return {**default_blocks, **blocks}


def say(text: str, *, kind: str = "message", **other_keys: Any) -> dict[str, Any]:
    """Return a reply with an entry; further keywords set other keys of the contract."""
    entry = {"kind": kind, "payload": {"text": text}, "tags": []}
    empty: dict[str, Any] = {"tool_calls": [], "memory_updates": [], "notes": ""}
    return {"outbox_entries": [entry], **empty, **other_keys}


def make_org(
    base: Path,
    *resumes: dict[str, Any],
    script: list[dict[str, Any]] | None = None,
    org: dict[str, Any] | None = None,
    models: dict[str, Any] | None = None,
) -> Path:
    """Create an organisation with scripted agents in a folder, and return the folder.

    The script is in the format of the `scripted` provider: the first matching line answers a call.
    """
    fs.make_root(base)
    entry = {"provider": "scripted", "options": {"file": SCRIPT_FILE}}
    fs.write_atomic(base, "config/models.json", dump_pretty({"scripted": entry, **(models or {})}))
    if org is not None:
        fs.write_atomic(base, "config/org.json", dump_pretty(org))
    write_script(base, script if script is not None else [{"reply": say("hello")}])
    for raw_resume in resumes:
        fs.write_atomic(base, f"agents/{raw_resume['name']}/resume.json", dump_pretty(raw_resume))
    return base


def write_script(base: Path, lines: list[dict[str, Any]]) -> None:
    """Replace the script of the scripted model."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    fs.write_atomic(base, SCRIPT_FILE, text.encode())


@contextlib.contextmanager
def crash_at(number: int) -> Iterator[list[str]]:
    """Raise `Crash` at the disk change with this number (from 1), and at every later change.

    Yields the list of changes so far, as "operation path".
    """
    changes: list[str] = []

    def observe(operation: str, path: str) -> None:
        if len(changes) + 1 >= number:
            raise Crash(f"{operation} {path}")
        changes.append(f"{operation} {path}")

    with fs.observe_changes(observe):
        yield changes


def journal_lines(base: Path, tick: int) -> list[dict[str, Any]]:
    """Return the complete lines of a tick's journal, without checksums and with references resolved."""
    file = base / paths.journal_file(tick)
    raw = file.read_bytes() if file.exists() else load_sealed_journal(base, tick) or b""
    lines = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    if any("situation" in line for line in lines):
        records = read_journal(base, tick)  # a file under write may have grown meanwhile
        lines = [
            {"type": line["type"], "epoch": line["epoch"], **record.as_json()}
            for line, record in zip(lines, records, strict=False)
        ]
    return [{key: value for key, value in line.items() if key != "check"} for line in lines]


def tree(base: Path, *, without: tuple[str, ...] = (".lemming", "logs")) -> dict[str, bytes]:
    """Return every file below a folder by path; `without` names folders to leave out, at any depth."""
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not set(path.relative_to(base).parts[:-1]) & set(without)
    }


class FrozenClock:
    """A clock that advances only on request; for tests and replays."""

    def __init__(self, start: datetime | None = None, *, boot_id: str = "") -> None:
        self.time = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.boot_id = boot_id

    def now(self) -> datetime:
        """Return the clock's current time."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Advance the clock; a negative number sets the clock back."""
        self.time += timedelta(seconds=seconds)


class SkippingClock(FrozenClock):
    """A frozen clock that skips the waits of model calls.

    The `delay_s` of a scripted answer and the pauses between attempts advance `monotonic` without taking
    time. Work in real time counts as well, so a hanging tool still times out. The time of day stands still.

    >>> import tempfile
    >>> from lemming.engine import run_once
    >>> slow = dict(reply=say("at last"), delay_s=600)
    >>> base = make_org(Path(tempfile.mkdtemp()), resume("ada", turn={"deadline_s": 60}), script=[slow])
    >>> run_once(base, clock=SkippingClock()).turns[0].reason
    "the turn's time, 60 s, is over"
    """

    def __init__(self, start: datetime | None = None, *, boot_id: str = "") -> None:
        super().__init__(start, boot_id=boot_id)
        self._real, self._skipped_s, self._lock = Deadline(), 0.0, threading.Lock()

    def monotonic(self) -> float:
        """Return the seconds since the creation of the clock, including skipped seconds."""
        return self._real.elapsed() + self._skipped_s

    def pause(self, seconds: float) -> None:
        """Skip the given seconds."""
        with self._lock:
            self._skipped_s += seconds
