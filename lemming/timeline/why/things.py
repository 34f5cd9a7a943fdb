"""What `lemming why` tells of: an entry, a memory, a file, a result, and how it is told from its path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.payload_text import text_of_payload
from lemming.kernel.files import fs
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, decode_memory
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.why.writings import Moment, Writings

What = Literal["entry", "memory", "file", "result"]
By = Literal["turn", "person", "unknown"]

FILE_LIMIT_BYTES = 16 << 20
PERSON = "written by a person"
CHANGED = "changed since by hand"


@dataclass
class Thing:
    """Something that was written: an entry, a memory, a file, the result of a tool call.

    `by` says who wrote it, as far as the journals tell; `remark` what else is known of it. `turn` is the
    turn that wrote it, where the tree tells it; `cut` why it does not. `is_new`: it is none of the
    entries that the turn which saw it knew already. `key`: of the turn that wrote it, if one did.
    """

    what: What
    name: str
    text: str = ""
    path: str = ""
    author: str = ""
    by: By = "person"
    remark: str = ""
    moment: Moment | None = None
    turn: TracedTurn | None = None
    cut: str = ""
    is_new: bool = True
    key: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the thing, and the tree behind it, as JSON values."""
        plain = {
            key: getattr(self, key) for key in ("what", "name", "path", "author", "text", "by", "remark")
        }
        written = {"tick": self.moment[0], "agent": self.author} if self.moment else None
        return {
            **plain,
            "written_in": written,
            "turn": self.turn.as_json() if self.turn else None,
            "cut": self.cut,
            "is_new": self.is_new,
        }


@dataclass
class TracedTurn:
    """A turn of the tree: what it could see, in the order of its prompt, then what its tools gave.

    `cut_short`: why it was over before it was done; empty where it was not.
    """

    tick: int
    agent: str
    at: str
    status: str
    saw: list[Thing] = field(default_factory=list)
    cut_short: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the turn as JSON values."""
        facts = {key: getattr(self, key) for key in ("tick", "agent", "at", "status")}
        facts |= {"cut_short": self.cut_short} if self.cut_short else {}
        return {**facts, "saw": [thing.as_json() for thing in self.saw]}


def thing_at(path: str, content: bytes) -> Thing:
    """Return what stands at a path, told by the path alone."""
    folder, _, file = path.rpartition("/")
    parts = folder.split("/")
    is_agents = len(parts) == 3 and parts[0] == "agents"
    if is_agents and parts[2] == "outbox" and (match := paths.ENTRY_FILE.match(file)):
        return Thing("entry", match[2], entry_text(content), path, parts[1])
    if is_agents and parts[2] == "memory" and file.endswith(".json"):
        name = f"{parts[1]}/memory/{file.removesuffix('.json')}"
        return Thing("memory", name, memory_text(content, path), path, parts[1])
    return Thing("file", path, content.decode("utf-8", "replace"), path)


def unwritten(writings: Writings, thing: Thing) -> Thing:
    """Say who wrote what no turn's record tells of: a person, as long as nobody else can have."""
    others = []
    parts = thing.path.split("/")
    if (
        parts[0] == "agents"
        and parts[2:3] == ["workspace"]
        and (tools := writings.outside_tools_since(parts[1], 0))
    ):
        others.append(f"by {parts[1]} with {', '.join(tools)}")
    if lost := writings.lost():
        others.append(lost_ticks(lost))
    thing.by = "unknown" if others else "person"
    thing.remark = ", or ".join([PERSON, *others])
    return thing


def lost_ticks(lost: str) -> str:
    """Return the words for a write whose record may be lost."""
    return f"in tick {lost}, of which there is no readable journal"


def read_file(base: OrgPath, path: str) -> bytes | None:
    """Return a file's bytes; None when there is none. Raises `UsageError` for what is no regular file."""
    try:
        return fs.read_bytes(base / path, FILE_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def entry_text(content: bytes) -> str:
    """Return what a person wants to read of an entry's file; of one that is none, all of it."""
    try:
        plain = parse(content)
    except JsonProblem:
        return content.decode("utf-8", "replace")
    payload = plain.get("payload") if isinstance(plain, dict) else None
    return text_of_payload(payload) if isinstance(payload, dict) else content.decode("utf-8", "replace")


def memory_text(content: bytes, path: str) -> str:
    """Return the value in a memory's file: a text as it is, anything else as JSON."""
    try:
        value = decode_memory(content[: MEMORY_LIMIT_BYTES + 1], path)
    except CorruptState:
        return content.decode("utf-8", "replace")
    return value if isinstance(value, str) else compact(value).decode()
