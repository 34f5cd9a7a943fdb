"""Outbox entries: the only way agents communicate. One immutable file each, in the author's own outbox.

Format: architecture guide, "Outbox Entry Format". File name and folder are the identity: an entry with other
claims is ignored, with a reason. Only the engine sets `id`, `tick`, `agent` and `created_at`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import dump_pretty, to_line
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.base.turn_numbers import BY_HAND, find_entry_numbers, list_possible_turns
from lemming.kernel.base.turn_numbers import DECISIONS_FROM as DECISIONS_FROM
from lemming.kernel.base.turn_numbers import ENTRIES_PER_TURN as ENTRIES_PER_TURN
from lemming.kernel.base.turn_numbers import REMINDERS_FROM as REMINDERS_FROM
from lemming.kernel.base.turn_numbers import WAITING_FROM as WAITING_FROM
from lemming.kernel.base.turn_numbers import entry_id as entry_id
from lemming.kernel.base.untrusted_quoting import cut_line, escape_markers, marker_digest, quote_payload
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import describe_field, make_field
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.json_documents import parse_document
from lemming.kernel.org.organisation import OrgPath

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 - used like a decorator
    """A property computed on first access and then stored."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work, self._name, self.__doc__ = work, work.__name__, work.__doc__

    def __get__(self, instance: Any, _: type[Any] | None = None) -> T:
        value = instance.__dict__[self._name] = self._work(instance)
        return value


ENTRY_LIMIT_BYTES = 256 << 10
_USUAL_KINDS = ("message", "request", "response")
EVERYBODY = frozenset({"*", "all"})
NOBODY_IN_PARTICULAR: frozenset[str] = frozenset()


@accept_old_names
@dataclass  # made for every turn, and a frozen one takes three times as long
class OutboxEntry:
    """A message in its author's outbox. Immutable by convention."""

    id: str = field(metadata=describe_field("12 hex digits; also in the file's name."))
    tick: int = field(metadata=describe_field("The tick in which it was written.", ge=0))
    agent: str = field(metadata=describe_field("The author: the name of the folder."))
    kind: MessageKind
    payload: dict[str, Any] = field(metadata=describe_field('Free form; prompts show "text" first.'))
    tags: list[str] = field(default_factory=list)
    created_at: str = make_field("", "UTC time, for people; the engine does not use it.")

    @lazy_property
    def file(self) -> str:
        """The entry's path in the organisation."""
        return paths.entry_file(self.agent, self.tick, self.id)

    @property
    def identity(self) -> str:
        """Unique identity of the entry: author/tick_id."""
        return f"{self.agent}/{self.tick:08}_{self.id}"

    def as_json(self) -> dict[str, Any]:
        """Return the seven keys of the format, in order."""
        return {
            "id": self.id,
            "tick": self.tick,
            "agent": self.agent,
            "kind": self.kind,
            "payload": self.payload,
            "tags": self.tags,
            "created_at": self.created_at,
        }

    @property
    def content(self) -> bytes:
        """The bytes of the entry's file."""
        return dump_pretty(self.as_json())

    @lazy_property
    def prompt_line(self) -> str:
        """The entry on one line, as in prompts; computed once for all readers.

        Only a hand-written entry can be longer than the engine's entries; its line is truncated.
        """
        head = f'"id": "{self.id}", "from": "{self.agent}", "tick": {self.tick}, "kind": "{self.kind}"'
        tags = f', "tags": {to_line(self.tags)}' if self.tags else ""
        line = escape_markers(f'{{{head}, "payload": {to_line(self.payload)}{tags}}}')  # the others are plain words
        return cut_line(line)

    @lazy_property
    def summary_line(self) -> str:
        """Short text of the entry: author, kind if unusual, payload text."""
        kind = "" if self.kind in _USUAL_KINDS else f" ({self.kind})"
        asks = self.kind in ("request", "response")
        return cut_line(f"{self.agent}{kind}:{quote_payload(self.payload, self.tags, is_request=asks)}")

    @lazy_property
    def line_digest(self) -> bytes:
        """Digest of the line, used in the digest of a prompt; computed once for all readers."""
        return marker_digest(self.prompt_line)

    @lazy_property
    def payload_chars(self) -> int:
        """Approximate number of characters of the payload in a prompt."""
        return len(str(self.payload))

    @lazy_property
    def targets(self) -> frozenset[str]:
        """Names in `payload.target`, in lower case; empty for an entry to everybody."""
        return parse_targets(self.payload)

    @property
    def not_before(self) -> str:
        """Timestamp before which the entry is shown to no reader, or an empty text."""
        return normalize_moment(self.payload["not_before"]) if "not_before" in self.payload else ""

    def is_news_to_reader(self, reader: str, agents: frozenset[str]) -> bool:
        """Return True if an agent not yet shown the entry is to be told of it as news.

        An entry with a target among the `agents`, besides its author, is news to its targets only.
        """
        if not self.targets or reader in self.targets:
            return True
        return agents.isdisjoint(self.targets - {self.agent})


@accept_old_names
class EntryName(NamedTuple):
    """Facts about an entry from its file name alone. Sorts by (tick, number, id).

    `number` is the index of the entry among its author's entries in the tick, from 0; entries of turn k are
    numbered from 64 k. Entries with an id not derived from the number were written by hand (`has_engine_id`
    is False) and sort last.
    """

    tick: int
    number: int
    id: str
    author: str

    @property
    def has_engine_id(self) -> bool:
        """True if the engine or `lemming send` assigned the entry's id."""
        return self.number < BY_HAND

    @property
    def identity(self) -> str:
        """Unique identity of the entry: author/tick_id; an id chosen by a person may occur twice."""
        return f"{self.author}/{self.tick:08}_{self.id}"

    @property
    def file_name(self) -> str:
        """The name of the entry's file."""
        return f"{self.tick:08}_{self.id}.json"

    @property
    def file(self) -> str:
        """The entry's path in the organisation."""
        return paths.entry_file(self.author, self.tick, self.id)


def parse_targets(payload: Mapping[str, Any]) -> frozenset[str]:
    """Return the names in a payload's `target`, as `OutboxEntry.targets` does."""
    target = payload.get("target")
    if target is None:
        return NOBODY_IN_PARTICULAR
    listed = target if isinstance(target, list) else [target]
    names = frozenset(name.strip().lower() for name in listed if isinstance(name, str))
    return names if names.isdisjoint(EVERYBODY) else NOBODY_IN_PARTICULAR


def may_be_from_turn(name: EntryName) -> bool:
    """Return True if the entry's id is an engine id of a turn's entries, immediate or scheduled."""
    later = range(WAITING_FROM, REMINDERS_FROM + ENTRIES_PER_TURN)
    return name.has_engine_id or any(
        name.id == entry_id(name.tick, name.author, number, turn)
        for turn in list_possible_turns(name.id)
        for number in later
    )


def make_entry_name(entry: OutboxEntry, number: int, turn: int = 0) -> EntryName:
    """Return the name of an entry, written by its author as number `number` of a turn."""
    is_derived = not entry.not_before or entry.id == entry_id(entry.tick, entry.agent, number, turn)
    number += turn * ENTRIES_PER_TURN
    return EntryName(entry.tick, number if is_derived else BY_HAND, entry.id, entry.agent)


def to_file_effect(entry: OutboxEntry) -> FileEffect:
    """Return the file effect that writes an entry."""
    return FileEffect(entry.file, entry.content)


def list_outbox(base: OrgPath, agent_name: str) -> list[EntryName]:
    """Return the entry names in an outbox, sorted; other files are ignored.

    An outbox that is a link, another non-folder or unreadable has no entries; `validate_outbox` reports the
    problem.
    """
    try:
        file_names = fs.list_names(f"{base}/{paths.outbox_folder(agent_name)}")
    except OSError:
        return []
    return parse_file_names(agent_name, file_names)


def parse_file_names(agent_name: str, file_names: Iterable[str]) -> list[EntryName]:
    """Return the entry names among file names of an outbox, sorted; other names are ignored."""
    by_tick: dict[str, list[str]] = {}
    for match in filter(None, map(paths.ENTRY_FILE.match, file_names)):
        by_tick.setdefault(match[1], []).append(match[2])
    entry_names = []
    for digits, ids in by_tick.items():
        tick = int(digits)
        numbers = find_entry_numbers(tick, agent_name, ids)
        entry_names += [EntryName(tick, numbers.get(text, BY_HAND), text, agent_name) for text in ids]
    entry_names.sort()
    return entry_names


def parse_identities(identities: Collection[str]) -> frozenset[EntryName]:
    """Return the entry names of the identities; invalid identities are ignored."""
    return frozenset(filter(None, map(_parse_identity, identities))) if identities else frozenset()


@lru_cache(maxsize=1 << 14)
def _parse_identity(identity: str) -> EntryName | None:
    author, _, stem = identity.partition("/")
    return next(iter(parse_file_names(author, [f"{stem}.json"])), None)


def decode_entry(name: EntryName, raw: bytes) -> OutboxEntry:
    """Parse the bytes of an entry's file. Raises `ConfigError` as `read_entry` does."""
    document = parse_document(raw, name.file, OutboxEntry, limit_bytes=ENTRY_LIMIT_BYTES, any_integer=True)
    entry = document.value
    claimed, actual = (entry.tick, entry.id, entry.agent), (name.tick, name.id, name.author)
    for key, claim, truth in zip(("tick", "id", "agent"), claimed, actual, strict=True):
        if claim != truth:
            message = f"{key} must be {truth!r} as in the path, got {str(claim)[:80]!r}"
            hint = "use the folder and the file's name"
            if key == "agent":
                hint += "; if the whole folder was copied, remove its outbox and turns.jsonl; "
                hint += "if it was moved, move it back and use `lemming agents rename`"
            raise _entry_error(name.file, message, hint, f"/{key}")
    if unknown := [warning for warning in document.warnings if warning.pointer]:  # a byte order mark has none
        first = unknown[0]
        raise _entry_error(name.file, first.message, "an entry must have exactly seven keys", first.pointer)
    return entry


def _entry_error(file: str, message: str, hint: str, pointer: str) -> ConfigError:
    problem = Problem(f"entry ignored: {message}", file=file, pointer=pointer, hint=hint, code="LMG-305")
    return ConfigError(str(problem), problems=(problem,))
