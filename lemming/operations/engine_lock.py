"""Holder of an organisation: one engine at a time, described in the lock file for readers, and its unfinished tick."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError, LemmingError, OrgBusy
from lemming.kernel.base.integers import LAST_TICK, bounded_int
from lemming.kernel.base.jsontext import dump_pretty_flat
from lemming.kernel.files.folder_lock import FolderLock, load_lock_holder
from lemming.kernel.journal.journal_file import last_record
from lemming.kernel.journal.journal_records import TickCommitted
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.lenient_json import parse_object_or_empty

BEGINNINGS_WAITED_FOR = 25


def load_holder(base: OrgPath) -> dict[str, Any] | None:
    """Return the engine that holds the organisation (pid, host, since, command), or None."""
    raw = load_lock_holder(Path(base), paths.LOCK_FILE)
    holder = {} if raw is None else parse_object_or_empty(raw)
    return holder if "pid" in holder else None


def find_running_engine(base: OrgPath) -> dict[str, Any] | None:
    """Return the lock holder as `load_holder` does, or None for a folder that nobody can lock."""
    try:
        return load_holder(base)
    except DiskError:  # a read-only folder
        return None


def describe_engine(holder: dict[str, Any]) -> str:
    """Describe the running engine in a line."""
    return f"{holder.get('command') or 'an engine'}, {_describe_process(holder)}"


def _describe_process(holder: dict[str, Any]) -> str:
    return f"pid {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"


def is_tick_incomplete(base: OrgPath, tick: int) -> bool:
    """Return True if a tick has begun and not ended."""
    record = last_record(base, tick)
    return record is not None and not isinstance(record, TickCommitted)


def acquire_lock(base: Path) -> FolderLock:
    """Acquire and return the lock of an organisation. Raises `OrgBusy` if another engine holds the lock."""
    for _ in range(BEGINNINGS_WAITED_FOR):
        try:
            return FolderLock(base, paths.LOCK_FILE)
        except OrgBusy:
            # An engine that was killed while it started a program: the child holds the lock until it is that program.
            if (holder := load_holder(base)) and not _has_died(holder):
                command = f" ({holder['command']})" if holder.get("command") else ""
                hint = "wait for it or stop it; reading (`lemming status`, `ls`, `jq`) is always safe"
                message = f"another engine is running here: {_describe_process(holder)}{command}"
                raise OrgBusy(message, where=str(base), hint=hint) from None
        time.sleep(0.02)  # an engine that starts and has not written its description, or exits
    lock_path = str(base / paths.LOCK_FILE)
    hint = f"find its process with `fuser -v {lock_path}` and end it, or remove the file while no engine runs"
    raise OrgBusy("an unknown process holds the lock", where=lock_path, hint=hint)


def _has_died(holder: dict[str, Any]) -> bool:
    """Return True if the holder was a process of this machine that is gone."""
    if holder.get("host") != platform.node() or (pid := bounded_int(holder["pid"], ge=1)) is None:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def parse_tick(raw: bytes) -> int | None:
    """Return the tick in the text written by the last lock holder at its exit."""
    holder = parse_object_or_empty(raw)
    return None if "pid" in holder else bounded_int(holder.get("tick"), le=LAST_TICK)


def format_holder(*, since: str, command: str, epoch: int) -> bytes:
    """Return the content of the lock file while this process holds the lock."""
    process: dict[str, str | int] = {"pid": os.getpid(), "host": platform.node()}
    return dump_pretty_flat({**process, "since": since, "command": command, "epoch": epoch})


def format_release(base: OrgPath, epoch: int) -> bytes:
    """Return the text an engine writes into the lock file at its exit: epoch and next tick."""
    release: dict[str, str | int] = {"epoch": epoch}
    with contextlib.suppress(LemmingError):  # unreadable counter: the next run reports it
        release["tick"] = load_tick(base)
    return dump_pretty_flat(release)
