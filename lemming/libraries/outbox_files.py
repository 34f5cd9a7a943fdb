"""Entries read from outboxes and written into them one at a time, outside a turn."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import unreadable_error
from lemming.kernel.messages import (
    DECISIONS_FROM,
    ENTRIES_PER_TURN,
    ENTRY_LIMIT_BYTES,
    WAITING_FROM,
    EntryName,
    OutboxEntry,
    decode_entry,
    entry_id,
    list_outbox,
    parse_file_names,
)
from lemming.kernel.org.organisation import OrgPath, require_known_format

DECISIONS_PER_TICK = 10_000


def write_person_entry(
    base_path: str | os.PathLike[str],
    agent_name: str,
    *,
    tick: int,
    kind: MessageKind,
    payload: dict[str, Any],
    tags: list[str],
    created_at: str,
    sync: bool = False,
    is_decision: bool = False,
) -> OutboxEntry:
    """Write a person's entry under the next free id of this tick, and return the entry.

    `is_decision`: the entry decides an approval request, and does not count towards the person's entries.
    Raises `ConfigError`, also for a format of a newer version.
    """
    base = paths.as_base(base_path)
    require_known_format(base)
    first = WAITING_FROM if normalize_moment(payload.get("not_before")) else 0
    first, max_entries = (DECISIONS_FROM, DECISIONS_PER_TICK) if is_decision else (first, ENTRIES_PER_TURN)
    for index in range(max_entries):
        identity = entry_id(tick, agent_name, first + index)
        entry = OutboxEntry(identity, tick, agent_name, kind, payload, tags, created_at)
        if created := create_entry(base, entry, sync=sync):
            return created
    raise ConfigError(
        f"{agent_name} has already sent {max_entries} entries for tick {tick}",
        where=paths.outbox_folder(agent_name),
        hint="run the tick first",
    )


def create_entry(base: Path, entry: OutboxEntry, *, sync: bool = False) -> OutboxEntry | None:
    """Write an entry without secrets and return the entry, or None if its file exists."""
    entry = redact_entry(entry)
    return entry if fs.create(base, entry.file, entry.content, sync=sync) else None


def read_outbox_entries(
    base_path: str | os.PathLike[str], agent_name: str, limit: int | None = None
) -> list[OutboxEntry]:
    """Return the newest `limit` entries of an outbox (all without a limit), oldest first.

    Invalid entries are left out; `validate_outbox` returns the reasons.
    """
    base = paths.as_base(base_path)
    names = list_outbox(base, agent_name)
    return list(islice(iter_readable(base, reversed(names)), limit))[::-1]


def read_entry(base: OrgPath, name: EntryName) -> OutboxEntry:
    """Load an entry. Raises `FileNotFoundError`, and `ConfigError` if content and name or folder differ."""
    try:
        raw = fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable_error(name.file, error) from error
    return decode_entry(name, raw)


def iter_readable(base: OrgPath, names: Iterable[EntryName]) -> Iterator[OutboxEntry]:
    """Yield the readable entries among names; the others were reported elsewhere."""
    for name in names:
        try:
            yield read_entry(base, name)
        except (ConfigError, FileNotFoundError):
            continue


def redact_entry(entry: OutboxEntry) -> OutboxEntry:
    """Return an entry without secrets in payload and tags."""
    return replace(entry, payload=redact_json(entry.payload), tags=redact_json(entry.tags))


def restore_author(path: str, content: bytes, author: str) -> bytes | None:
    """Return the content of an entry's file under an earlier name of its author, or None for no valid entry."""
    _, current_author, _, file = path.split("/")
    for name in parse_file_names(current_author, [file]):
        with contextlib.suppress(ConfigError):
            return replace(decode_entry(name, content), agent=author).content
    return None
