"""Memory of an agent, a file for each key: everything in `lemming.kernel.memory`, and functions for programs."""

import os
from dataclasses import replace
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.base.clock import Clock, SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.memory import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.memory import list_memories, load_memory, load_record, make_memory_effect
from lemming.libraries.memory_files import delete_memory as delete_memory
from lemming.libraries.memory_files import save_memory as save_memory

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)


def compact_memory_list(
    base_path: str | os.PathLike[str], agent_name: str, key: str, max_entries: int = 100, *, clock: Clock | None = None
) -> int:
    """Keep the last `max_entries` of a list, and return the number of removed entries."""
    entries = _load_list(base_path, agent_name, key)
    remaining = _keep_last(entries, max_entries)
    if len(remaining) < len(entries):
        _save_list(base_path, agent_name, key, remaining, timestamp((clock or SystemClock()).now()))
    return len(entries) - len(remaining)


def append_memory_event(
    base_path: str | os.PathLike[str],
    agent_name: str,
    key: str,
    event: Any,
    max_entries: int = 100,
    *,
    clock: Clock | None = None,
) -> None:
    """Append `{"timestamp", "event"}` to the list under `key` and keep its last `max_entries`."""
    current_time = timestamp((clock or SystemClock()).now())
    entries = [*_load_list(base_path, agent_name, key), {"timestamp": current_time, "event": event}]
    _save_list(base_path, agent_name, key, _keep_last(entries, max_entries), current_time)


def archive_old_memories(
    base_path: str | os.PathLike[str], agent_name: str, days_old: float = 30, *, clock: Clock | None = None
) -> list[str]:
    """Move memories last written more than `days_old` days ago to `memory/archive/`; return their keys.

    Archived files are never overwritten: a second file of a key gets its time as a suffix. Damaged files and
    files without a timestamp are not moved.
    """
    base, folder = paths.as_base(base_path), paths.memory_folder(agent_name)
    oldest = (clock or SystemClock()).now() - timedelta(days=days_old)
    moved = []
    for key in list_memories(base, agent_name):
        try:
            record = load_record(base, agent_name, key)
            written_at = parse_timestamp(record["timestamp"]) if record else oldest
        except (CorruptState, KeyError, TypeError, ValueError):
            continue
        if written_at < oldest:
            fs.move(base, f"{folder}/{key}.json", _free_archive_path(base, agent_name, key, timestamp(written_at)))
            moved.append(key)
    return moved


def _load_list(base_path: str | os.PathLike[str], agent_name: str, key: str) -> list[Any]:
    value = load_memory(base_path, agent_name, key, [])
    if not isinstance(value, list):
        raise ToolError(f'memory "{key}" is not a list')
    return value


def _save_list(base_path: str | os.PathLike[str], agent_name: str, key: str, entries: list[Any], at: str) -> None:
    """Save a list with its previous entries and its previous trust label."""
    base = paths.as_base(base_path)
    make_memory_effect(agent_name, key, entries, at)  # rejects an invalid value
    effect = make_memory_effect(agent_name, key, redact_json(entries), at)
    old_record = load_record(base, agent_name, key) or {}
    if "trust" in old_record:
        effect = replace(effect, content=dump_pretty({**parse(effect.content), "trust": old_record["trust"]}))
    apply_effect(base, effect)


def _keep_last(entries: list[Any], count: int) -> list[Any]:
    if count < 0:
        raise ToolError(f"max_entries must be at least 0, got {count}")
    return entries[-count:] if count else []


def _free_archive_path(base: Path, agent_name: str, key: str, written: str) -> str:
    """Return an unused path in the archive: the plain name, then with the time, then numbered."""
    folder = f"{paths.memory_folder(agent_name)}/archive"
    suffix = "".join(character for character in written if character.isalnum())
    numbered = (f"{key}.{suffix}-{number}" for number in count(2))
    candidates = (f"{folder}/{name}.json" for name in chain((key, f"{key}.{suffix}"), numbered))
    return next(path for path in candidates if not path_exists(f"{base}/{path}"))
