"""Values shared by several agents, one JSON file per key below `shared/store/`.

Format: docs/formats.md, section Store. The format of memories, with the tick of the last write. A version is
a digest of the file's bytes, so that an edit by hand makes a new version, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem, ToolError
from lemming.kernel.files import fs
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, decode_record, encode_record
from lemming.kernel.org.organisation import OrgPath


class StoredValue(NamedTuple):
    """A value with the last author, the tick of the write (-1: unknown), and the version."""

    value: Any
    agent: str
    tick: int
    version: str


def encode_stored_value(key: str, value: Any, time: str, agent: str, tick: int) -> bytes:
    """Return the file content of a value. Raises `ToolError` for an invalid value."""
    record = {"key": key, "value": value, "timestamp": time, "agent": agent, "tick": tick}
    return encode_record(f'store "{key}"', record)


def parse_stored_value(raw: bytes, file: str) -> StoredValue:
    """Return the value in a store file. Raises `CorruptState` with file and line."""
    record = decode_record(raw, file)
    tick, agent = record.get("tick"), record.get("agent")
    return StoredValue(
        record["value"],
        agent if isinstance(agent, str) else "",
        tick if isinstance(tick, int) else -1,
        sha256(raw).hexdigest()[:16],
    )


def get_store_path(key: str) -> str:
    """Return the file of a key. Raises `ToolError` for an invalid key."""
    if not paths.MEMORY_KEY.match(key) or key.endswith("."):
        raise ToolError(f"{key[:80]!r}: {paths.MEMORY_KEY_RULE}")
    return f"{paths.STORE}/{key}.json"


def is_store_file(file: str) -> bool:
    """Return True if a file of the organisation is a store file."""
    folder, _, name = file.rpartition("/")
    return folder == paths.STORE and name.endswith(".json")


def validate_store(base: OrgPath) -> Iterator[Problem]:
    """Yield problems of the store's files."""
    try:
        names = fs.list_names(f"{base}/{paths.STORE}")
    except OSError:
        return
    for file in (f"{paths.STORE}/{name}" for name in sorted(names) if name.endswith(".json")):
        try:
            get_store_path(file.rpartition("/")[2].removesuffix(".json"))
            parse_stored_value(fs.read_bytes(f"{base}/{file}", MEMORY_LIMIT_BYTES), file)
        except ToolError as error:
            yield Problem(
                f"the name of the file must be a key: {error}", file, hint="rename it", code=CorruptState.code
            )
        except CorruptState as error:
            hint = "repair or remove it; agents do not overwrite it"
            yield Problem(error.message, error.where, hint=hint, code=error.code)
        except OSError as error:
            yield Problem(f"cannot be read: {error.strerror}", file, code=CorruptState.code)
