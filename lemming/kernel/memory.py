"""An agent's memory: a JSON file per key below `agents/<name>/memory/`.

Format: docs/formats.md, "Memory". The file's name is the key. A damaged file is reported with its line and is
never replaced; a person repairs or removes the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem, ToolError
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import StatusPair
from lemming.kernel.files.disk_errors import suggest_repair
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.folder_listings import Listing, refresh_listing
from lemming.kernel.org.organisation import Organisation

MEMORY_LIMIT_BYTES = 256 << 10
_READ_LIMIT_BYTES = MEMORY_LIMIT_BYTES + 64  # besides the value, the engine stores its trust label


class Memories(NamedTuple):
    """An agent's memories: values by key, sorted, and the problems of damaged files.

    `digests` holds the SHA-256, in hex, of every readable file, damaged or not. `trust`: the recorded trust
    labels, by key.
    """

    values: dict[str, Any]
    problems: tuple[Problem, ...]
    digests: dict[str, str]
    trust: Mapping[str, str] = {}


class MemoryFolders:
    """Cached listings of agents' memory folders, as `org.own(MemoryFolders)`."""

    def __init__(self, org: Organisation) -> None:
        self._base = str(org.base)
        self._listings: dict[str, tuple[Listing, list[str]]] = {}

    def list_keys(self, agent_name: str) -> Sequence[str]:
        """Return the sorted file names of an agent's memory, without suffix; not all are keys. Raises `OSError`."""
        cached = self._listings.get(agent_name)
        listing = refresh_listing(f"{self._base}/{paths.memory_folder(agent_name)}", cached[0] if cached else None)
        if cached and cached[0] is listing:
            return cached[1]
        keys = sorted([name.removesuffix(".json") for name in listing.names if name.endswith(".json")])
        self._listings[agent_name] = listing, keys
        return keys

    def record_written(self, agent_name: str, key: str, around: StatusPair) -> None:
        """Record a memory written by the engine; `around` holds the folder's status before and after."""
        cached = self._listings.get(agent_name)
        if cached and key in cached[1] and (listing := cached[0].after_change(around)):
            self._listings[agent_name] = listing, cached[1]


def make_memory_effect(agent_name: str, key: str, value: Any, at: str, *, is_from_reply: bool = False) -> FileEffect:
    """Return the file effect that stores `value` under `key` with timestamp `at`. Writes nothing.

    Raises `ToolError` for an invalid key or value. `is_from_reply`: `parse_reply` returned the value and no
    code changes the value any more, so only its size needs a check.
    """
    path = _memory_path(agent_name, key)
    record = {"key": key, "value": value, "timestamp": at, "agent": agent_name}
    content = encode_record(f'memory "{key}"', record, is_plain=is_from_reply)
    return FileEffect(path, content, memory_value=record if is_from_reply else None)


def encode_record(label: str, record: dict[str, Any], *, is_plain: bool = False) -> bytes:
    """Return the bytes of a file with a record and its `value`; `label` names the record in the `ToolError`.

    `is_plain`: the value came from JSON, so only its size needs a check.
    """
    try:
        content = dump_pretty(record)
        if is_plain and len(content) <= MEMORY_LIMIT_BYTES:
            return content
        restored = parse(content, limit_bytes=MEMORY_LIMIT_BYTES)["value"]
    except (ValueError, RecursionError) as error:  # JsonProblem and the serializer's errors are ValueErrors
        is_refused = isinstance(error, JsonProblem)
        reason = f"the value cannot be kept: {error}" if is_refused else f"the value is not JSON: {str(error)[:200]}"
        raise ToolError(f"{label}: {reason}") from error
    if restored != record["value"]:
        raise ToolError(f"{label}: the value is not plain JSON and would come back changed")
    return content


def load_memory(base_path: str | os.PathLike[str], agent_name: str, key: str, default: Any = None) -> Any:
    """Return the value under `key`, or `default`. Raises `CorruptState`, with file and line, for a damaged file."""
    record = load_record(paths.as_base(base_path), agent_name, key)
    return default if record is None else record["value"]


def decode_memory(raw: bytes, file: str) -> Any:
    """Return the value in a memory file's bytes; `file` names the file in a `CorruptState`."""
    return decode_record(raw, file)["value"]


def decode_record(raw: bytes, file: str) -> dict[str, Any]:
    """Return the whole record in a memory file's bytes. Raises as `decode_memory` does."""
    record = _parse_record(file, raw)
    if isinstance(record, Problem):
        raise _to_corrupt_state(record)
    return record


def list_memories(base_path: str | os.PathLike[str], agent_name: str) -> list[str]:
    """Return the keys of an agent's memory, sorted. Raises `CorruptState` if the memory is not a folder."""
    try:
        keys = Organisation.from_path(base_path).get_cache(MemoryFolders).list_keys(agent_name)
    except OSError as error:
        raise _to_corrupt_state(_folder_problem(agent_name, error)) from error
    return [key for key in keys if paths.MEMORY_KEY.match(key) and not key.endswith(".")]


def load_memories(base_path: str | os.PathLike[str], agent_name: str) -> Memories:
    """Return all memories of an agent; an unreadable file becomes a problem instead of an exception.

    The values are shared between callers and must not be modified.
    """
    org = Organisation.from_path(base_path)
    try:
        keys = org.get_cache(MemoryFolders).list_keys(agent_name)
    except OSError as error:
        return Memories({}, (_folder_problem(agent_name, error),), {})
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    digests: dict[str, str] = {}
    trust: dict[str, str] = {}
    for key in keys:
        try:
            file = _memory_path(agent_name, key)
            reading = org.files.get_reading(file, partial(_parse_record, file), limit_bytes=_READ_LIMIT_BYTES)
        except FileNotFoundError:  # removed while we looked
            continue
        except OSError as error:
            problems.append(_make_problem(f"cannot be read: {error.strerror}", file))
        except ToolError as error:
            misnamed = f"{paths.memory_folder(agent_name)}/{key}.json"
            message = f"the file's name must be a memory key: {error.message}"
            problems.append(Problem(message, misnamed, hint="rename it"))
        else:
            digests[key] = reading.digest
            record = reading.outcome
            if isinstance(record, dict):
                values[key] = record["value"]
                if "trust" in record:
                    trust[key] = get_trust_label(record)
            elif isinstance(record, Problem):
                problems.append(record)
    return Memories(values, tuple(problems), digests, trust)


def _memory_path(agent_name: str, key: str) -> str:
    try:
        return paths.memory_file(agent_name, key)
    except (ValueError, TypeError) as error:
        raise ToolError(str(error) if isinstance(key, str) else paths.MEMORY_KEY_RULE) from error


def load_record(base: Path, agent_name: str, key: str) -> dict[str, Any] | None:
    """Return the record of a memory, or None without one. Raises `CorruptState` for a damaged file."""
    file = _memory_path(agent_name, key)
    try:
        return decode_record(fs.read_bytes(f"{base}/{file}", _READ_LIMIT_BYTES), file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _to_corrupt_state(_make_problem(f"cannot be read: {error.strerror}", file)) from error


def get_trust_label(record: dict[str, Any]) -> str:
    """Return the trust label recorded in a memory record, or an empty text."""
    return str(record.get("trust", ""))


def _parse_record(file: str, raw: bytes) -> dict[str, Any] | Problem:
    """Return the record in a memory file's bytes, or the problem of a damaged file."""
    try:
        record = parse(raw, limit_bytes=_READ_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        return _make_problem(error.message, file, error.line, error.column)
    if not isinstance(record, dict) or "value" not in record:
        return _make_problem('expected an object with a "value"', file, 1, 1)
    return record


def _folder_problem(agent_name: str, error: OSError) -> Problem:
    problem = _make_problem(f"must be a real folder: {error.strerror}", paths.memory_folder(agent_name))
    return replace(problem, hint=suggest_repair(error, problem.hint))


def _make_problem(message: str, file: str, line: int = 0, column: int = 0) -> Problem:
    hint = "repair the file by hand or remove it; the engine does not replace it"
    return Problem(message, file, line, column, hint=hint, code=CorruptState.code)


def _to_corrupt_state(problem: Problem) -> CorruptState:
    return CorruptState(problem.message, where=problem.where, hint=problem.hint)
