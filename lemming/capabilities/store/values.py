"""Values that several agents keep together, one JSON file per key below `shared/store/`.

Format: docs/formats.md, "Store". It is the memory's, with the tick of the last write. A version is made of
the file's bytes, so that whoever edits one by hand gives it a new version too.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem, ToolError
from lemming.kernel.files import fs
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, content_of, decode_record
from lemming.kernel.org.organisation import OrgPath


class Stored(NamedTuple):
    """A value, who wrote it last, in which tick (-1: nothing tells), and the version that this is."""

    value: Any
    agent: str
    tick: int
    version: str


def stored_content(key: str, value: Any, now: str, agent: str, tick: int) -> bytes:
    """Return the bytes of the file that keeps a value. Raises `ToolError` for one that cannot be kept."""
    record = {"key": key, "value": value, "timestamp": now, "agent": agent, "tick": tick}
    return content_of(f'store "{key}"', record)


def stored(raw: bytes, file: str) -> Stored:
    """Return what a file of the store holds. Raises `CorruptState` with file and line."""
    record = decode_record(raw, file)
    tick, agent = record.get("tick"), record.get("agent")
    return Stored(
        record["value"],
        agent if isinstance(agent, str) else "",
        tick if isinstance(tick, int) else -1,
        sha256(raw).hexdigest()[:16],
    )


def store_file(key: str) -> str:
    """Return the file of a key; raise `ToolError` for what is none."""
    try:
        return paths.store_file(key)
    except ValueError as error:
        raise ToolError(str(error)) from error


def is_store_file(file: str) -> bool:
    """Return whether a file of the organisation keeps a value of the store."""
    above, _, name = file.rpartition("/")
    return above == paths.STORE and name.endswith(".json")


def store_problems(base: OrgPath) -> Iterator[Problem]:
    """Yield what is wrong with the files of the store."""
    try:
        names = fs.list_names(f"{base}/{paths.STORE}")
    except OSError:
        return
    for file in (f"{paths.STORE}/{name}" for name in sorted(names) if name.endswith(".json")):
        try:
            paths.store_file(file.rpartition("/")[2].removesuffix(".json"))
            stored(fs.read_bytes(f"{base}/{file}", MEMORY_LIMIT_BYTES), file)
        except ValueError as error:
            yield Problem(
                f"the file's name is no key: {error}", file, hint="rename it", code=CorruptState.code
            )
        except CorruptState as error:
            hint = "repair it by hand or remove it; no agent writes over it"
            yield Problem(error.message, error.where, hint=hint, code=error.code)
        except OSError as error:
            yield Problem(f"cannot be read: {error.strerror}", file, code=CorruptState.code)
