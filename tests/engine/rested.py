"""Entries in folders that nobody has touched for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lemming.kernel.files.stat_cache import file_identity, has_stable_mtime, open_folder
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import OutboxEntry
from lemming.messages import write_outbox_entry

CHANGED = {"wake": "changed"}
LONG_AGO = 1_600_000_000


def write(base: Path, author: str, tick: int, identity: str, text: str = "x") -> Path:
    entry = OutboxEntry(identity, tick, author, "message", {"text": text}, [], "")
    return write_outbox_entry(base, author, entry)


def wait_for_rest(folder: Path) -> None:
    """Wait until nothing below a folder has changed a moment ago, by the file system's clock."""
    while not all(has_stable_mtime(file_identity(str(path)), time.time_ns()) for path in folder.rglob("*")):
        os.sched_yield()


def told_by(index: EntryIndex, base: Path, author: str) -> str | None:
    with open_folder(base) as root:
        look = index.capture_state(author, index.list_outbox(author), root)
    return look[0] if look else None
