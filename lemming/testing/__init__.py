"""What a test of an organisation needs: a folder, a scripted model, a clock that stands still, a crash.

Ships with the package, so that plugins and organisations can be tested without a model or a network.

>>> import tempfile
>>> from pathlib import Path
>>> from lemming.engine import run_once
>>> base = make_org(Path(tempfile.mkdtemp()), resume("ada"), script=[{"agent": "ada", "reply": say("hello")}])
>>> run_once(base, clock=FrozenClock()).turns[0].status
'done'
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import FrozenClock
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.file import read_journal
from lemming.kernel.journal.sealing import read_sealed
from lemming.testing.skipping import SkippingClock

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
    """The process dies here. Not an `Exception`, so that nothing on the way can catch it by accident."""


def resume(name: str, **blocks: Any) -> dict[str, Any]:
    """Return a resume with everything a turn needs; `blocks` replace or add to it."""
    plain = {
        "name": name,
        "title": name.title(),
        "model": {"key": "scripted"},
        "permissions": {"read_outboxes": ["*"], "tools": []},
        "schedule": {"run_every_n_ticks": 1, "phase_offset": 0},
        "instructions": f"You are {name}.",
    }
    return {**plain, **blocks}


def say(text: str, *, kind: str = "message", **more: Any) -> dict[str, Any]:
    """Return a reply with one entry; `more` sets other keys of the contract."""
    entry = {"kind": kind, "payload": {"text": text}, "tags": []}
    empty: dict[str, Any] = {"tool_calls": [], "memory_updates": [], "notes": ""}
    return {"outbox_entries": [entry], **empty, **more}


def make_org(
    base: Path,
    *resumes: dict[str, Any],
    script: list[dict[str, Any]] | None = None,
    org: dict[str, Any] | None = None,
    models: dict[str, Any] | None = None,
) -> Path:
    """Make an organisation in a folder, its agents answered for by a script, and return the folder.

    The script is that of the `scripted` provider: the first line that fits a call answers it.
    """
    fs.make_root(base)
    entry = {"provider": "scripted", "options": {"file": SCRIPT_FILE}}
    fs.publish(base, "config/models.json", pretty({"scripted": entry, **(models or {})}))
    if org is not None:
        fs.publish(base, "config/org.json", pretty(org))
    write_script(base, script if script is not None else [{"reply": say("hello")}])
    for plain in resumes:
        fs.publish(base, f"agents/{plain['name']}/resume.json", pretty(plain))
    return base


def write_script(base: Path, lines: list[dict[str, Any]]) -> None:
    """Replace what the scripted model answers."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    fs.publish(base, SCRIPT_FILE, text.encode())


@contextlib.contextmanager
def crash_at(number: int) -> Iterator[list[str]]:
    """Raise `Crash` at the change of the disk with this number (from 1), and at every later one.

    Yields the list of changes so far, as "operation path".
    """
    changes: list[str] = []

    def observe(operation: str, path: str) -> None:
        if len(changes) + 1 >= number:
            raise Crash(f"{operation} {path}")
        changes.append(f"{operation} {path}")

    with fs.observed(observe):
        yield changes


def journal_lines(base: Path, tick: int) -> list[dict[str, Any]]:
    """Return the whole lines of a tick's journal, without their checksums, and with what they refer to."""
    file = base / paths.journal_file(tick)
    raw = file.read_bytes() if file.exists() else read_sealed(base, tick) or b""
    lines = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    if any("situation" in line for line in lines):
        records = read_journal(base, tick)  # one that is written to may have more by now
        lines = [
            {"type": line["type"], "epoch": line["epoch"], **record.as_json()}
            for line, record in zip(lines, records, strict=False)
        ]
    return [{key: value for key, value in line.items() if key != "check"} for line in lines]


def tree(base: Path, *, without: tuple[str, ...] = (".lemming", "logs")) -> dict[str, bytes]:
    """Return every file below a folder by its path; `without` names folders to leave out, at any depth."""
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not set(path.relative_to(base).parts[:-1]) & set(without)
    }
