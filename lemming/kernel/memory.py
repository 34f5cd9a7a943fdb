"""An agent's memory: one JSON file per key below `agents/<name>/memory/`.

Format: docs/formats.md, "Memory". The file's name is the key. A file that a person broke is reported
with its line and is never replaced; it is for the person to repair or remove.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, cast

from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, SystemClock, parse_timestamp, timestamp
from lemming.kernel.base.errors import CorruptState, Problem, ToolError
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import Around
from lemming.kernel.files.effects import FileEffect, apply_effect
from lemming.kernel.files.stamps import Listing, is_there, list_again
from lemming.kernel.org.organisation import Organisation

MEMORY_LIMIT_BYTES = 256 << 10
_READ_LIMIT_BYTES = MEMORY_LIMIT_BYTES + 64  # beside its value, the engine says how far it is trusted


class Memories(NamedTuple):
    """What an agent remembers: values by key, sorted, and what is wrong with the files that have none.

    `digests` holds the SHA-256, in hex, of every file that could be read, broken or not. `trust`: how far
    those are trusted that say so.
    """

    values: dict[str, Any]
    problems: tuple[Problem, ...]
    digests: dict[str, str]
    trust: Mapping[str, str] = {}


class MemoryFolders:
    """The names in agents' memories, as they were listed last: `org.own(MemoryFolders)`."""

    def __init__(self, org: Organisation) -> None:
        self._base = str(org.base)
        self._known: dict[str, tuple[Listing, list[str]]] = {}

    def keys_of(self, agent_name: str) -> Sequence[str]:
        """Return the names of an agent's memories without their ending, sorted; some may be no keys.

        Raises `OSError` for what is no folder.
        """
        known = self._known.get(agent_name)
        listing = list_again(f"{self._base}/{paths.memory_folder(agent_name)}", known[0] if known else None)
        if known and known[0] is listing:
            return known[1]
        keys = sorted([name.removesuffix(".json") for name in listing.names if name.endswith(".json")])
        self._known[agent_name] = listing, keys
        return keys

    def written(self, agent_name: str, key: str, around: Around) -> None:
        """Take note that the engine has written a memory; `around` is what its folder was then."""
        known = self._known.get(agent_name)
        if known and key in known[1] and (listing := known[0].after_change(around)):
            self._known[agent_name] = listing, known[1]


# --- what would change -------------------------------------------------------------------------


def memory_effect(
    agent_name: str, key: str, value: Any, now: str, *, is_from_reply: bool = False
) -> FileEffect:
    """Return the file that remembers `value` under `key`; `now` is its timestamp. Nothing is written.

    Raises `ToolError` for a key or a value that cannot be kept. A value `is_from_reply` if `parse_reply` gave
    it and nobody changes it any more: then it can only be too large.
    """
    path = _file(agent_name, key)
    record = {"key": key, "value": value, "timestamp": now, "agent": agent_name}
    content = content_of(f'memory "{key}"', record, is_plain=is_from_reply)
    return FileEffect(path, content, says=record if is_from_reply else None)


def content_of(what: str, record: dict[str, Any], *, is_plain: bool = False) -> bytes:
    """Return the bytes of a file that keeps a record with a `value`; `what` names it in the `ToolError`.

    `is_plain`: the value came from JSON, so that it can only be too large.
    """
    try:
        content = pretty(record)
        if is_plain and len(content) <= MEMORY_LIMIT_BYTES:
            return content
        kept = parse(content, limit_bytes=MEMORY_LIMIT_BYTES)["value"]
    except (
        ValueError,
        RecursionError,
    ) as error:  # JsonProblem and what the serializer raises are ValueErrors
        raise ToolError(f"{what}: {_why_not_kept(error)}") from error
    if kept != record["value"]:
        raise ToolError(f"{what}: the value is not plain JSON and would come back changed")
    return content


def require_intact(base: Path, agent_name: str, key: str) -> None:
    """Raise `CorruptState` if a file stands at `key` that cannot be read, so that nobody writes over it."""
    _load(base, agent_name, key)


# --- reading -----------------------------------------------------------------------------------


def load_memory(base_path: str | os.PathLike[str], agent_name: str, key: str, default: Any = None) -> Any:
    """Return the value kept under `key`, or `default` when there is none.

    Raises `CorruptState`, with file and line, when the file is damaged.
    """
    record = _load(paths.as_base(base_path), agent_name, key)
    return default if record is None else record["value"]


def decode_memory(raw: bytes, file: str) -> Any:
    """Return the value in a memory file's bytes; `file` names them in the `CorruptState` it may raise."""
    try:
        return _decode(raw, file)["value"]
    except _Damage as error:
        raise _corrupt(error) from error


def decode_record(raw: bytes, file: str) -> dict[str, Any]:
    """Return all that a file in the memory's format holds; raises as `decode_memory`."""
    try:
        return _decode(raw, file)
    except _Damage as error:
        raise _corrupt(error) from error


def list_memories(base_path: str | os.PathLike[str], agent_name: str) -> list[str]:
    """Return the keys of an agent's memory, sorted. Raises `CorruptState` if the folder is not one."""
    try:
        return [key for key in _keys(paths.as_base(base_path), agent_name) if _is_key(key)]
    except _Damage as error:
        raise _corrupt(error) from error


def read_memories(base_path: str | os.PathLike[str], agent_name: str) -> Memories:
    """Return all an agent remembers; a file that cannot be read becomes a problem, not an exception.

    The values are not to be changed: whoever asks next is given the same ones.
    """
    org = Organisation.at(base_path)
    try:
        keys = org.own(MemoryFolders).keys_of(agent_name)
    except OSError as error:
        return Memories({}, (_no_folder(agent_name, error).problem,), {})
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    digests: dict[str, str] = {}
    trust: dict[str, str] = {}
    for key in keys:
        try:
            file = _file(agent_name, key)
            found = org.files.reading(file, partial(_record_in, file), limit_bytes=_READ_LIMIT_BYTES)
        except FileNotFoundError:  # removed while we looked
            continue
        except OSError as error:
            problems.append(_unreadable(file, error).problem)
        except ToolError as error:
            misnamed = f"{paths.memory_folder(agent_name)}/{key}.json"
            problems.append(
                Problem(f"the file's name is no key: {error.message}", misnamed, hint="rename it")
            )
        else:
            digests[key] = found.digest
            if isinstance(found.outcome, _Damage):
                problems.append(found.outcome.problem)
            else:
                record = cast("dict[str, Any]", found.outcome)
                values[key] = record["value"]
                if "trust" in record:
                    trust[key] = trust_in(record)
    return Memories(values, tuple(problems), digests, trust)


def trust_in(record: dict[str, Any]) -> str:
    """Return how far a file in the memory's format says that it is trusted; empty where it does not."""
    return str(record.get("trust", ""))


# --- writing -----------------------------------------------------------------------------------


def save_memory(
    base_path: str | os.PathLike[str], agent_name: str, key: str, value: Any, *, clock: Clock | None = None
) -> None:
    """Remember `value` under `key`. Raises `ToolError` for a bad key or value, `CorruptState` before
    it would replace a damaged file.
    """
    base = paths.as_base(base_path)
    memory_effect(agent_name, key, value, now := _now(clock))  # refuses what is no value
    effect = memory_effect(agent_name, key, redact_json(value), now)
    require_intact(base, agent_name, key)
    apply_effect(base, effect)


def delete_memory(base_path: str | os.PathLike[str], agent_name: str, key: str) -> bool:
    """Forget a key; return whether there was anything to forget."""
    base, file = paths.as_base(base_path), _file(agent_name, key)
    was_there = is_there(f"{base}/{file}")
    fs.remove(base, file)
    return was_there


def compact_memory_list(
    base_path: str | os.PathLike[str],
    agent_name: str,
    key: str,
    max_entries: int = 100,
    *,
    clock: Clock | None = None,
) -> int:
    """Keep the last `max_entries` of a list; return how many were removed. Nothing kept: nothing removed."""
    entries = _load_list(base_path, agent_name, key)
    kept = _last(entries, max_entries)
    if len(kept) < len(entries):
        _save_list(base_path, agent_name, key, kept, _now(clock))
    return len(entries) - len(kept)


def append_memory_event(
    base_path: str | os.PathLike[str],
    agent_name: str,
    key: str,
    event: Any,
    max_entries: int = 100,
    *,
    clock: Clock | None = None,
) -> None:
    """Add `{"timestamp", "event"}` to the list under `key` and keep the last `max_entries` of it."""
    now = _now(clock)
    entries = [*_load_list(base_path, agent_name, key), {"timestamp": now, "event": event}]
    _save_list(base_path, agent_name, key, _last(entries, max_entries), now)


def archive_old_memories(
    base_path: str | os.PathLike[str], agent_name: str, days_old: float = 30, *, clock: Clock | None = None
) -> list[str]:
    """Move memories last written more than `days_old` days ago to `memory/archive/`; return their keys.

    What the archive already holds stays: a second file of a key gets its time as a suffix. Damaged
    files, and those without a timestamp, stay where they are.
    """
    base, folder = paths.as_base(base_path), paths.memory_folder(agent_name)
    oldest = (clock or SystemClock()).now() - timedelta(days=days_old)
    moved = []
    for key in list_memories(base, agent_name):
        try:
            record = _load(base, agent_name, key)
            written = parse_timestamp(record["timestamp"]) if record else oldest
        except (CorruptState, KeyError, TypeError, ValueError):
            continue
        if written < oldest:
            fs.move(base, f"{folder}/{key}.json", _free_place(base, agent_name, key, timestamp(written)))
            moved.append(key)
    return moved


# --- the pieces --------------------------------------------------------------------------------


class _Damage(Exception):
    """A memory file, or the folder, that cannot be read; carries the `Problem`."""

    def __init__(self, message: str, file: str, line: int = 0, column: int = 0) -> None:
        hint = "repair it by hand or remove it; it is not replaced"
        self.problem = Problem(message, file, line, column, hint=hint, code=CorruptState.code)
        super().__init__(message)


def _file(agent_name: str, key: str) -> str:
    try:
        return paths.memory_file(agent_name, key)
    except (ValueError, TypeError) as error:
        raise ToolError(str(error) if isinstance(key, str) else paths.MEMORY_KEY_RULE) from error


def _is_key(key: str) -> bool:
    return bool(paths.MEMORY_KEY.match(key)) and not key.endswith(".")


def _now(clock: Clock | None) -> str:
    return timestamp((clock or SystemClock()).now())


def _why_not_kept(error: Exception) -> str:
    if isinstance(error, JsonProblem):
        return f"the value cannot be kept: {error}"
    return f"the value is not JSON: {str(error)[:200]}"


def _keys(base: Path, agent_name: str) -> list[str]:
    """Return the names of the files in the memory without their ending, sorted; some may be no keys."""
    try:
        names = fs.list_names(f"{base}/{paths.memory_folder(agent_name)}")
    except OSError as error:
        raise _no_folder(agent_name, error) from error
    return sorted([name.removesuffix(".json") for name in names if name.endswith(".json")])


def _no_folder(agent_name: str, error: OSError) -> _Damage:
    return _Damage(f"not a plain folder: {error.strerror}", paths.memory_folder(agent_name))


def _load(base: Path, agent_name: str, key: str) -> dict[str, Any] | None:
    file = _file(agent_name, key)
    try:
        return _decode(_read(base, file), file)
    except FileNotFoundError:
        return None
    except _Damage as error:
        raise _corrupt(error) from error


def _load_list(base_path: str | os.PathLike[str], agent_name: str, key: str) -> list[Any]:
    value = load_memory(base_path, agent_name, key, [])
    if not isinstance(value, list):
        raise ToolError(f'memory "{key}" is not a list')
    return value


def _save_list(
    base_path: str | os.PathLike[str], agent_name: str, key: str, entries: list[Any], now: str
) -> None:
    """Save a list that holds what was there before: it says of itself how far it is trusted, as it did."""
    base = paths.as_base(base_path)
    memory_effect(agent_name, key, entries, now)  # refuses what is no value
    effect = memory_effect(agent_name, key, redact_json(entries), now)
    before = _load(base, agent_name, key) or {}
    if "trust" in before:
        effect = replace(effect, content=pretty({**parse(effect.content), "trust": before["trust"]}))
    apply_effect(base, effect)


def _read(base: Path, file: str) -> bytes:
    try:
        return fs.read_bytes(f"{base}/{file}", _READ_LIMIT_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: str, error: OSError) -> _Damage:
    return _Damage(f"cannot be read: {error.strerror}", file)


def _record_in(file: str, raw: bytes) -> Any:
    """Return what a memory file's bytes hold, or the `_Damage` that they have."""
    try:
        return _decode(raw, file)
    except _Damage as damage:
        return damage.with_traceback(None)


def _decode(raw: bytes, file: str) -> dict[str, Any]:
    try:
        record = parse(raw, limit_bytes=_READ_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        raise _Damage(error.message, file, error.line, error.column) from error
    if not isinstance(record, dict) or "value" not in record:
        raise _Damage('expected an object with a "value"', file, 1, 1)
    return record


def _corrupt(damage: _Damage) -> CorruptState:
    problem = damage.problem
    return CorruptState(problem.message, where=problem.where, hint=problem.hint)


def _last(entries: list[Any], count: int) -> list[Any]:
    if count < 0:
        raise ToolError(f"max_entries must be at least 0, found {count}")
    return entries[-count:] if count else []


def _free_place(base: Path, agent_name: str, key: str, written: str) -> str:
    """Return a place in the archive that no file has: plain, then with the time, then numbered."""
    folder = f"{paths.memory_folder(agent_name)}/archive"
    suffix = "".join(character for character in written if character.isalnum())
    numbered = (f"{key}.{suffix}-{number}" for number in count(2))
    places = (f"{folder}/{name}.json" for name in chain((key, f"{key}.{suffix}"), numbered))
    return next(place for place in places if not is_there(f"{base}/{place}"))
