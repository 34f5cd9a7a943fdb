"""Nodes of a provenance tree: entries, memories, files and results, recognised by their paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lemming.journal_tools.provenance.write_log import TurnPosition, WriteLog
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.payload_text import get_payload_text
from lemming.kernel.files import fs
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, decode_memory
from lemming.kernel.org.organisation import OrgPath

NodeKind = Literal["entry", "memory", "file", "result"]
AuthorKind = Literal["turn", "person", "unknown"]

FILE_LIMIT_BYTES = 16 << 20
PERSON = "written by a person"
CHANGED = "changed since by hand"


@dataclass
class ProvenanceNode:
    """A written item: an entry, a memory, a file, or the result of a tool call.

    `by`: the kind of author, as far as the journals record the author. `remark`: further information. `turn`: the turn
    that wrote the item, if included in the tree; else `cut` is the reason for omission. `is_new`: False for an entry
    the reading turn already knew. `key`: the key of the turn that wrote the item, or empty.
    """

    what: NodeKind
    name: str
    text: str = ""
    path: str = ""
    author: str = ""
    by: AuthorKind = "person"
    remark: str = ""
    position: TurnPosition | None = None
    turn: ProvenanceTurn | None = None
    cut: str = ""
    is_new: bool = True
    key: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the node, and the tree behind the node, as JSON values."""
        plain = {key: getattr(self, key) for key in ("what", "name", "path", "author", "text", "by", "remark")}
        origin = {"tick": self.position[0], "agent": self.author} if self.position else None
        return {
            **plain,
            "written_in": origin,
            "turn": self.turn.as_json() if self.turn else None,
            "cut": self.cut,
            "is_new": self.is_new,
        }


@dataclass
class ProvenanceTurn:
    """A turn in the tree: visible content in prompt order, then tool results. `cut_short`: reason for an early end."""

    tick: int
    agent: str
    at: str
    status: str
    saw: list[ProvenanceNode] = field(default_factory=list)
    cut_short: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the turn as JSON values."""
        fields = {key: getattr(self, key) for key in ("tick", "agent", "at", "status")}
        fields |= {"cut_short": self.cut_short} if self.cut_short else {}
        return {**fields, "saw": [node.as_json() for node in self.saw]}


def make_node(path: str, content: bytes) -> ProvenanceNode:
    """Return the node for a path, with its kind recognised by the path alone."""
    folder, _, file = path.rpartition("/")
    parts = folder.split("/")
    is_agent_file = len(parts) == 3 and parts[0] == "agents"
    if is_agent_file and parts[2] == "outbox" and (match := paths.ENTRY_FILE.match(file)):
        return ProvenanceNode("entry", match[2], extract_entry_text(content), path, parts[1])
    if is_agent_file and parts[2] == "memory" and file.endswith(".json"):
        name = f"{parts[1]}/memory/{file.removesuffix('.json')}"
        return ProvenanceNode("memory", name, extract_memory_text(content, path), path, parts[1])
    return ProvenanceNode("file", path, content.decode("utf-8", "replace"), path)


def resolve_unknown_author(write_log: WriteLog, node: ProvenanceNode) -> ProvenanceNode:
    """Set the author of a node without any recorded write: a person, unless another cause is possible."""
    other_causes = []
    parts = node.path.split("/")
    if parts[0] == "agents" and parts[2:3] == ["workspace"] and (tools := write_log.find_external_tools(parts[1], 0)):
        other_causes.append(f"by {parts[1]} with {', '.join(tools)}")
    if lost_ticks_text := write_log.list_lost_ticks():
        other_causes.append(describe_lost_ticks(lost_ticks_text))
    node.by = "unknown" if other_causes else "person"
    node.remark = ", or ".join([PERSON, *other_causes])
    return node


def describe_lost_ticks(ticks_text: str) -> str:
    """Return a description of a write with a possibly lost record."""
    return f"in tick {ticks_text}, whose journals are missing or unreadable"


def load_file(base: OrgPath, path: str) -> bytes | None:
    """Return the bytes of a file, or None if it is missing. Raises `UsageError` for anything but a regular file."""
    try:
        return fs.read_bytes(base / path, FILE_LIMIT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def extract_entry_text(content: bytes) -> str:
    """Return the readable text of an entry file, or the whole content if the file is not an entry."""
    try:
        plain = parse(content)
    except JsonProblem:
        return content.decode("utf-8", "replace")
    payload = plain.get("payload") if isinstance(plain, dict) else None
    return get_payload_text(payload) if isinstance(payload, dict) else content.decode("utf-8", "replace")


def extract_memory_text(content: bytes, path: str) -> str:
    """Return the value in a memory file: a text unchanged, any other value as JSON."""
    try:
        value = decode_memory(content[: MEMORY_LIMIT_BYTES + 1], path)
    except CorruptState:
        return content.decode("utf-8", "replace")
    return value if isinstance(value, str) else dump_compact(value).decode()
