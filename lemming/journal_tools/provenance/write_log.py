"""The turns that wrote each file, from the read model; contents come from the journals.

Also the nodes of a provenance tree (entries, memories, files and results, recognised by their paths), and the steps
that lost trust.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import chain, islice, pairwise
from typing import Any, Literal

from lemming.journal_tools.recorded_tick import RecordedTick, RecordedTurn, load_tick_record
from lemming.journal_tools.tick_ranges import find_lost_ticks
from lemming.kernel.agents import list_agent_folders, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, UsageError
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.turn_numbers import split_key
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import make_prompt_reader
from lemming.kernel.memory import MEMORY_LIMIT_BYTES, decode_memory
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.libraries.lenient_json import parse_object_or_empty
from lemming.libraries.outbox_files import restore_author
from lemming.read_model.read_model import ReadModel
from lemming.read_model.tick_queries import load_tick_list, load_ticks

TurnPosition = tuple[int, int]
"""A tick, and a position in its order. A turn sees everything written before."""

MAX_TICKS_CACHED = 64
MAX_LOST_TICKS_NAMED = 5


@dataclass(frozen=True)
class FileWrite:
    """A write of a file with this content (SHA-256) in a turn."""

    position: TurnPosition
    agent: str
    path: str
    digest: str
    key: str
    """Key that distinguishes the turn from others of its tick."""


class WriteLog:
    """The file writes in the turns of an organisation, as the journals are now.

    `damaged`: ticks whose journals cannot be read, of those that mattered so far.
    """

    def __init__(self, base: OrgPath) -> None:
        self.base = base
        self._model = Organisation.from_path(base).get_cache(ReadModel)
        self._ticks = load_tick_list(base)
        self._unreadable = {tick.tick for tick in self._ticks if not tick.is_whole}
        self.damaged: set[int] = set()
        self._prompts = make_prompt_reader(base)
        self.tick = lru_cache(MAX_TICKS_CACHED)(self._load_tick)

    def find_turn(self, tick: int, key: str) -> RecordedTurn | None:
        """Return a turn, or None if no readable journal contains it."""
        record = self.tick(tick)
        try:
            return record.find_turn(key) if record else None
        except CorruptState:  # the prompt is no longer stored
            self.damaged.add(tick)
            return None

    def find_last_write(self, path: str, *, position: TurnPosition | None = None) -> FileWrite | None:
        """Return the newest write of a file, optionally before a position, or None if no turn wrote the file."""
        sql = "SELECT * FROM file_write WHERE path = ? AND tick <= ? ORDER BY tick DESC, rank DESC"
        writes = self._iter_writes(self._query(sql, path, position[0] if position else LAST_TICK))
        return next((write for write in writes if position is None or write.position < position), None)

    def find_write(self, tick: int, path: str) -> FileWrite | None:
        """Return the first write of a file in a tick, or None."""
        sql = "SELECT * FROM file_write WHERE path = ? AND tick = ? ORDER BY rank"
        return next(self._iter_writes(self._query(sql, path, tick)), None)

    def find_renamed_entry(self, path: str, content: bytes | None) -> FileWrite | None:
        """Return the write of an entry under an earlier name of its author, with the present digest, or None."""
        match = paths.ENTRY_FILE.match(path.rpartition("/")[2])
        if content is None or match is None or not path.startswith("agents/"):
            return None
        sql = "SELECT * FROM file_write WHERE tick = ? AND path LIKE ? ORDER BY rank"
        for write in self._iter_writes(self._query(sql, int(match[1]), f"agents/%/outbox/{match[0]}")):
            former_content = restore_author(path, content, write.path.split("/")[1])
            if former_content is not None and sha256(former_content).hexdigest() == write.digest:
                return replace(write, digest=sha256(content).hexdigest())
        return None

    def _iter_writes(self, rows: Iterable[tuple[str, int, int, str, str]]) -> Iterator[FileWrite]:
        """Yield the writes in rows; of a turn that wrote ahead, only the replayed turn tells what it wrote."""
        for path, tick, rank, key, digest in rows:
            if tick in self._unreadable:
                self.damaged.add(tick)
                continue
            turn = None if digest else self.find_turn(tick, key)
            if turn and path in turn.writes:
                digest = turn.writes[path].digest
            if digest:
                yield FileWrite((tick, rank), split_key(key)[0], path, digest, key)

    def load_content(self, write: FileWrite) -> bytes:
        """Return the written content. Raises: CorruptState for a turn that cannot be replayed to it."""
        tick, turn = write.position[0], self.find_turn(write.position[0], write.key)
        if turn is None or (effect := turn.writes.get(write.path)) is None:
            message = f"the content of {write.path} cannot be restored from the turn {write.key} of tick {tick}"
            raise CorruptState(message, where=paths.journal_file(tick), hint="run `lemming verify`")
        return effect.content

    def find_external_tools(self, agent: str, tick: int) -> list[str]:
        """Return the tools with side effects used by an agent since a tick, inclusive."""
        rows = self._query("SELECT DISTINCT tool FROM tool WHERE agent = ? AND tick >= ? ORDER BY tool", agent, tick)
        return [tool for (tool,) in rows]

    def find_removal(self, path: str, since_tick: int) -> tuple[str, int] | None:
        """Return the agent that removed a file since a tick (empty: retention did), and the tick, or None."""
        sql = "SELECT agent, tick FROM removal WHERE path = ? AND tick >= ? ORDER BY agent, tick"
        return next(iter(self._query(sql, path, since_tick)), None)

    def _query(self, sql: str, *parameters: object) -> Sequence[Any]:
        return self._model.query(sql, parameters)

    def list_lost_ticks(self, *, after_tick: int = 0, before_tick: int | None = None) -> str:
        """Return the ticks with missing or unreadable journals as text, or an empty string.

        `after_tick` and `before_tick` are excluded. Without `before_tick`, the range ends with the newest journal.
        """
        newest = self._ticks[-1].tick if self._ticks else -1
        end = newest + 1 if before_tick is None else before_tick
        lost_ticks = (tick for tick in self._iter_lost_ticks(after_tick, end) if after_tick < tick < end)
        *named, last = islice(chain(map(str, lost_ticks), ("",)), MAX_LOST_TICKS_NAMED + 1)
        return ", ".join(named) + (" and others" if last else "")

    def _iter_lost_ticks(self, after_tick: int, end: int) -> Iterator[int]:
        """Yield the ticks in and around a range with missing or unreadable journals, without quiet ticks."""
        for previous, tick in pairwise((None, *self._ticks)):
            assert tick is not None
            if tick.tick > after_tick and (previous is None or previous.tick < end):
                if previous is None or previous.tick + 1 < tick.tick:
                    yield from find_lost_ticks(previous.tick if previous else None, tick.after)
                if tick.tick in self._unreadable | self.damaged:
                    self.damaged.add(tick.tick)
                    yield tick.tick

    def is_person(self, agent: str, tick: int) -> bool:
        """Return True if the tick's plan assigns the agent to a person."""
        return any(agent in facts.people for facts in load_ticks(self.base, tick, tick))

    @cached_property
    def channels(self) -> frozenset[str]:
        """The agents that are channels at present."""
        try:
            return frozenset(survey_agents(self.base).find_channels(load_config(self.base)))
        except ConfigError:
            return frozenset()

    def find_entry_path(self, identity: str) -> str | None:
        """Return the path of an entry, present or written in a turn, or None for an unknown id."""
        if identity in self._entry_paths:
            return self._entry_paths[identity]
        if not identity.isalnum():
            return None
        pattern = f"agents/*/outbox/*_{identity}.json"
        rows = self._query("SELECT path FROM file_write WHERE path GLOB ? ORDER BY tick DESC LIMIT 1", pattern)
        return rows[0][0] if rows else None

    @cached_property
    def _entry_paths(self) -> dict[str, str]:
        """The paths of existing entries, by id; for a duplicate id, the first path."""
        paths_by_id: dict[str, str] = {}
        for author in filter(paths.AGENT_NAME.match, list_agent_folders(self.base)):
            folder = paths.outbox_folder(author)
            with contextlib.suppress(OSError):
                for file in fs.list_names(f"{self.base}/{folder}"):
                    if match := paths.ENTRY_FILE.match(file):
                        paths_by_id.setdefault(match[2], f"{folder}/{file}")
        return paths_by_id

    def _load_tick(self, tick: int) -> RecordedTick | None:
        try:
            return load_tick_record(self.base, tick, self._prompts)
        except UsageError:  # no journal
            return None
        except CorruptState:
            self.damaged.add(tick)
            return None


@dataclass(frozen=True, kw_only=True)
class TrustStep:
    """A step of a trust trace: an item with trust label `trust`, because its turn read `because`.

    Without a tick no turn wrote the item, which is then the origin. `vouched`: the entries of people who
    endorsed the item.
    """

    what: str
    trust: str
    tick: int | None = None
    agent: str = ""
    because: str = ""
    vouched: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return {**asdict(self), "vouched": [*self.vouched]}


def load_trust_steps(write_log: WriteLog, path: str) -> list[TrustStep]:
    """Return the trust trace of a file, a memory or an entry, beginning with the item.

    The trace is empty if no turn lowered the trust, and if the capability of trust is not installed.
    """
    trace_trust = find_fact("trust.trace")
    steps: list[TrustStep] = trace_trust(write_log, path) if trace_trust else []
    return steps


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

    def set_writer(self, write: FileWrite) -> None:
        """Name the turn of a write as the author."""
        self.by, self.position, self.author, self.key = "turn", write.position, write.agent, write.key

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
    if parts[0] != "agents" and (channels := sorted(write_log.channels)):
        other_causes.append(f"by the channel {' or '.join(channels)}")
    if lost_ticks_text := write_log.list_lost_ticks():
        other_causes.append(describe_lost_ticks(lost_ticks_text))
    node.by = "unknown" if other_causes else "person"
    node.remark = ", or ".join([describe_origin(write_log, node.author), *other_causes])
    return node


def describe_origin(write_log: WriteLog, author: str) -> str:
    """Return the origin of what no turn wrote."""
    return "received by a channel" if author in write_log.channels else PERSON


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
    payload = parse_object_or_empty(content).get("payload")
    return get_payload_text(payload) if isinstance(payload, dict) else content.decode("utf-8", "replace")


def extract_memory_text(content: bytes, path: str) -> str:
    """Return the value in a memory file: a text unchanged, any other value as JSON."""
    try:
        value = decode_memory(content[: MEMORY_LIMIT_BYTES + 1], path)
    except CorruptState:
        return content.decode("utf-8", "replace")
    return value if isinstance(value, str) else dump_compact(value).decode()


def get_payload_text(payload: dict[str, Any]) -> str:
    """Return the text of a payload, or the whole payload as JSON."""
    text = payload.get("text")
    return text if isinstance(text, str) else dump_compact(payload).decode()
