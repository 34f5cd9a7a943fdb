"""Who holds an organisation: one engine at a time. What its lock's file says of it is for others to read."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, OrgBusy
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty_words
from lemming.kernel.files import fs
from lemming.kernel.files.lock import FolderLock, description
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick

BEGINNINGS_WAITED_FOR = 25
_DESCRIPTION_BYTES = 4096


def holder_of(base: OrgPath) -> dict[str, Any] | None:
    """Return who holds the organisation now: pid, host, since, command; None when nobody does."""
    found = description(Path(base), paths.LOCK_FILE)
    holder = {} if found is None else _describe(found)
    return holder if "pid" in holder else None


def locked(base: Path) -> FolderLock:
    """Return an organisation's lock, which is this engine's now; raise `OrgBusy` where another has it."""
    for _ in range(BEGINNINGS_WAITED_FOR):
        try:
            return FolderLock(base, paths.LOCK_FILE)
        except OrgBusy:
            if holder := holder_of(base):
                raise _busy(base, holder) from None
        time.sleep(0.02)  # an engine that begins, and has not yet said who it is, or one that ends
    where = str(base / paths.LOCK_FILE)
    hint = f"`fuser -v {where}` names it; end it, or remove the file while no engine runs"
    raise OrgBusy("something holds the lock and does not say who it is", where=where, hint=hint)


def tick_left(base: OrgPath) -> int | None:
    """Return the tick that the last engine left as the next one.

    Returns None while one runs, after one that was killed, and where nobody knows.
    """
    try:
        raw = fs.read_bytes(f"{base}/{paths.LOCK_FILE}", _DESCRIPTION_BYTES)
    except OSError:
        return None
    return parse_tick(raw)


def parse_tick(raw: bytes) -> int | None:
    """Return the tick that stands in what the last holder of a lock wrote as it left."""
    holder = _describe(raw)
    return None if "pid" in holder else bounded_int(holder.get("tick"), le=LAST_TICK)


def leaving(base: OrgPath, epoch: int) -> bytes:
    """Return the text that an engine leaves in its lock's file: its number, and the next tick."""
    left: dict[str, str | int] = {"epoch": epoch}
    with contextlib.suppress(LemmingError):  # the counter cannot be read, which the next run says
        left["tick"] = load_tick(base)
    return pretty_words(left)


def _busy(base: Path, holder: dict[str, Any]) -> OrgBusy:
    who = f"pid {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"
    command = f" ({holder['command']})" if holder.get("command") else ""
    hint = "wait for it or stop it; looking (`lemming status`, `ls`, `jq`) is always safe"
    return OrgBusy(f"another engine is running here: {who}{command}", where=str(base), hint=hint)


def next_epoch(lock: FolderLock) -> int:
    """Return the number of this start of an engine."""
    epoch = _describe(lock.read()).get("epoch", 0)
    return epoch + 1 if isinstance(epoch, int) else 1


def _describe(raw: bytes) -> dict[str, Any]:
    """Return what a holder wrote about itself; the file is throw-away, so anything else counts as nothing."""
    try:
        holder = parse(raw)
    except JsonProblem:
        return {}
    return holder if isinstance(holder, dict) else {}
