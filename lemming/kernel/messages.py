"""Outbox entries: the only way agents talk. One immutable file each, in the author's own outbox.

Format: architecture guide, "Outbox Entry Format". The file's name and folder are the identity: an entry
that claims another is ignored, with a reason. `id`, `tick`, `agent` and `created_at` are the engine's to set.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.entry_ids import (
    BY_HAND,
    find_entry_numbers,
    list_possible_turns,
)
from lemming.kernel.base.entry_ids import (
    DECISIONS_FROM as DECISIONS_FROM,
)
from lemming.kernel.base.entry_ids import (
    ENTRIES_PER_TURN as ENTRIES_PER_TURN,
)
from lemming.kernel.base.entry_ids import (
    REMINDERS_FROM as REMINDERS_FROM,
)
from lemming.kernel.base.entry_ids import (
    WAITING_FROM as WAITING_FROM,
)
from lemming.kernel.base.entry_ids import (
    entry_id as entry_id,
)
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import pretty, to_line
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.once import once
from lemming.kernel.base.payload_text import cut_line, quote_payload
from lemming.kernel.base.quoting import digest_of, quoted
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.base.times.spoken import moment_of
from lemming.kernel.files import fs
from lemming.kernel.files.documents import read_text, unreadable
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import load_config
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import AgentPermissions

ENTRY_LIMIT_BYTES = 256 << 10
DECISIONS_PER_TICK = 10_000
_USUAL_KINDS = ("message", "request", "response")
EVERYBODY = frozenset({"*", "all"})
NOBODY_IN_PARTICULAR: frozenset[str] = frozenset()


@dataclass  # made for every turn, and a frozen one takes three times as long
class OutboxEntry:
    """One message, as it stands in its author's outbox. Nobody changes it."""

    id: str = field(metadata=about("12 hex digits; also in the file's name."))
    tick: int = field(metadata=about("The tick in which it was written.", ge=0))
    agent: str = field(metadata=about("The author: the name of the folder."))
    kind: MessageKind
    payload: dict[str, Any] = field(metadata=about('Free form; "text" is what prompts show first.'))
    tags: list[str] = field(default_factory=list)
    created_at: str = field(default="", metadata=about("UTC time, for people: no tick goes by it."))

    @once
    def file(self) -> str:
        """The entry's path in the organisation."""
        return paths.entry_file(self.agent, self.tick, self.id)

    @property
    def identity(self) -> str:
        """What tells the entry from all others: author/tick_id."""
        return f"{self.agent}/{self.tick:08}_{self.id}"

    def as_json(self) -> dict[str, Any]:
        """Return the seven keys of the format, in its order."""
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
        """The bytes of its file."""
        return pretty(self.as_json())

    @once
    def line(self) -> str:
        """The entry on one line, as prompts show it; worked out once for all its readers.

        A line longer than any entry of the engine's is cut; one made by hand may be.
        """
        told = f'"id": "{self.id}", "from": "{self.agent}", "tick": {self.tick}, "kind": "{self.kind}"'
        tags = f', "tags": {to_line(self.tags)}' if self.tags else ""
        line = quoted(f'{{{told}, "payload": {to_line(self.payload)}{tags}}}')  # the others are plain words
        return cut_line(line)

    @once
    def told(self) -> str:
        """The entry in few words: its author, its kind where that says something, its text."""
        kind = "" if self.kind in _USUAL_KINDS else f" ({self.kind})"
        asks = self.kind in ("request", "response")
        return cut_line(f"{self.agent}{kind}:{quote_payload(self.payload, self.tags, is_request=asks)}")

    @once
    def line_digest(self) -> bytes:
        """What stands for the line in the mark of a prompt; worked out once for all its readers."""
        return digest_of(self.line)

    @once
    def payload_chars(self) -> int:
        """How many characters the payload has, about: what it takes of a prompt's room."""
        return len(str(self.payload))

    @once
    def targets(self) -> frozenset[str]:
        """Whom `payload.target` names, in lower case: one name or a list; empty when it is for everybody."""
        return targets_in(self.payload)

    @property
    def not_before(self) -> str:
        """The moment before which nobody is shown the entry, as a timestamp; empty where it names none."""
        return moment_of(self.payload["not_before"]) if "not_before" in self.payload else ""

    def is_new_to(self, reader: str, agents: frozenset[str]) -> bool:
        """Return whether an agent that has not been shown the entry is to be told of it as something new.

        An entry whose target names one of the `agents` besides its author is new to those it names only.
        """
        if not self.targets or reader in self.targets:
            return True
        return agents.isdisjoint(self.targets - {self.agent})


class EntryName(NamedTuple):
    """What a file's name alone says about an entry. Sorts by (tick, number, id).

    `number` is the entry's place among those its author wrote in that tick, from 0; those of its turn k
    in it are numbered from 64 k. Entries whose id does not follow from it were put there by hand
    (`is_derived` is false) and come last.
    """

    tick: int
    number: int
    id: str
    author: str

    @property
    def is_derived(self) -> bool:
        """Whether the engine or `lemming send` gave the entry its id."""
        return self.number < BY_HAND

    @property
    def identity(self) -> str:
        """What tells the entry from all others: an id that a person gave may come twice."""
        return f"{self.author}/{self.tick:08}_{self.id}"

    @property
    def file_name(self) -> str:
        """The name of the entry's file."""
        return f"{self.tick:08}_{self.id}.json"

    @property
    def file(self) -> str:
        """The entry's path in the organisation."""
        return paths.entry_file(self.author, self.tick, self.id)


def targets_in(payload: Mapping[str, Any]) -> frozenset[str]:
    """Return whom a payload's `target` names, as `OutboxEntry.targets`."""
    target = payload.get("target")
    if target is None:
        return NOBODY_IN_PARTICULAR
    listed = target if isinstance(target, list) else [target]
    names = frozenset(name.strip().lower() for name in listed if isinstance(name, str))
    return names if names.isdisjoint(EVERYBODY) else NOBODY_IN_PARTICULAR


def may_be_of_a_turn(name: EntryName) -> bool:
    """Return whether an entry has an id that the engine gives to what turns write, for now or for later."""
    later = range(WAITING_FROM, REMINDERS_FROM + ENTRIES_PER_TURN)
    return name.is_derived or any(
        name.id == entry_id(name.tick, name.author, it, turn)
        for turn in list_possible_turns(name.id)
        for it in later
    )


def name_of_entry(entry: OutboxEntry, number: int, turn: int = 0) -> EntryName:
    """Return the name of an entry that its author wrote as number `number` of a turn."""
    is_derived = not entry.not_before or entry.id == entry_id(entry.tick, entry.agent, number, turn)
    number += turn * ENTRIES_PER_TURN
    return EntryName(entry.tick, number if is_derived else BY_HAND, entry.id, entry.agent)


def entry_effect(entry: OutboxEntry) -> FileEffect:
    """Return the file that holds an entry."""
    return FileEffect(entry.file, entry.content)


def write_outbox_entry(base_path: str | os.PathLike[str], agent_name: str, entry: OutboxEntry) -> Path:
    """Write an entry into its author's outbox and return its path; the same entry twice is one file.

    Raises `ValueError` when the entry names another author than `agent_name`.
    """
    if entry.agent != agent_name:
        raise ValueError(f"entry {entry.id} is by {entry.agent!r}; agents write only to their own outbox")
    base = paths.as_base(base_path)
    effect = entry_effect(_without_secrets(entry))
    fs.publish(base, effect.path, effect.content)
    return base / effect.path


def send(
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
    """Write a person's entry under the next free id of this tick, and return it.

    `is_decision`: it decides what an agent asked to be approved, and has no part in what a person may send.
    Raises `ConfigError`, also for a format that only a newer version knows.
    """
    base = paths.as_base(base_path)
    require_known_format(base)
    first = WAITING_FROM if moment_of(payload.get("not_before")) else 0
    first, most = (DECISIONS_FROM, DECISIONS_PER_TICK) if is_decision else (first, ENTRIES_PER_TURN)
    for index in range(most):
        identity = entry_id(tick, agent_name, first + index)
        entry = OutboxEntry(identity, tick, agent_name, kind, payload, tags, created_at)
        if created := create_entry(base, entry, sync=sync):
            return created
    raise ConfigError(
        f"{agent_name} has already sent {most} entries for tick {tick}",
        where=paths.outbox_folder(agent_name),
        hint="run the tick first",
    )


def create_entry(base: Path, entry: OutboxEntry, *, sync: bool = False) -> OutboxEntry | None:
    """Write an entry without secrets and return it; None, and nothing, when its file is there already."""
    entry = _without_secrets(entry)
    return entry if fs.create(base, entry.file, entry.content, sync=sync) else None


def list_outbox(base: OrgPath, agent_name: str) -> list[EntryName]:
    """Return what the file names of an outbox say, sorted; files that are not entries are left out.

    An outbox that is no folder (a link is none), or that may not be read, has no entries;
    `outbox_problems` says so.
    """
    try:
        file_names = fs.list_names(f"{base}/{paths.outbox_folder(agent_name)}")
    except OSError:
        return []
    return names_in(agent_name, file_names)


def names_in(agent_name: str, file_names: Iterable[str]) -> list[EntryName]:
    """Return what file names of an outbox say, sorted; those that are not entries' are left out."""
    by_tick: dict[str, list[str]] = {}
    for match in filter(None, map(paths.ENTRY_FILE.match, file_names)):
        by_tick.setdefault(match[1], []).append(match[2])
    found = []
    for digits, ids in by_tick.items():
        tick = int(digits)
        numbers = find_entry_numbers(tick, agent_name, ids)
        found += [EntryName(tick, numbers.get(this, BY_HAND), this, agent_name) for this in ids]
    found.sort()
    return found


def names_of(identities: Collection[str]) -> frozenset[EntryName]:
    """Return the entries that have these identities; what is none is left out."""
    return frozenset(filter(None, map(_named, identities))) if identities else frozenset()


@lru_cache(maxsize=1 << 14)
def _named(identity: str) -> EntryName | None:
    author, _, rest = identity.partition("/")
    return next(iter(names_in(author, [f"{rest}.json"])), None)


def read_entry(base: OrgPath, name: EntryName) -> OutboxEntry:
    """Return one entry; raise `ConfigError` that says why the file is not the entry its place says.

    Raises `FileNotFoundError` when there is no such file.
    """
    try:
        raw = fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(name.file, error) from error
    return decode_entry(name, raw)


def decode_entry(name: EntryName, raw: bytes) -> OutboxEntry:
    """Return the bytes of an entry's file as that entry; raise `ConfigError` as `read_entry` does."""
    document = read_text(raw, name.file, OutboxEntry, limit_bytes=ENTRY_LIMIT_BYTES, any_integer=True)
    entry = document.value
    claimed, actual = (entry.tick, entry.id, entry.agent), (name.tick, name.id, name.author)
    for key, claim, truth in zip(("tick", "id", "agent"), claimed, actual, strict=True):
        if claim != truth:
            message = f"claims {key} {str(claim)[:80]!r}, but its place says {truth!r}"
            raise _unusable(name.file, message, "the folder and the file's name are the identity", f"/{key}")
    unknown = [warning for warning in document.warnings if warning.pointer]  # a byte order mark is none
    if unknown:
        first = unknown[0]
        raise _unusable(name.file, first.message, "an entry has exactly seven keys", first.pointer)
    return entry


def read_outbox_entries(
    base_path: str | os.PathLike[str], agent_name: str, limit: int | None = None
) -> list[OutboxEntry]:
    """Return the newest `limit` entries of one outbox (all without a limit), oldest first.

    Files that are not valid entries are left out; `outbox_problems` says why.
    """
    base = paths.as_base(base_path)
    names = list_outbox(base, agent_name)
    newest: list[OutboxEntry] = []
    for name in reversed(names):
        if limit is not None and len(newest) >= limit:
            break
        try:
            newest.append(read_entry(base, name))
        except (ConfigError, FileNotFoundError):
            continue
    return newest[::-1]


def collect_readable_outboxes(
    base_path: str | os.PathLike[str],
    agent_name: str,
    permissions: AgentPermissions,
    limit: int | None = None,
) -> list[OutboxEntry]:
    """Return every entry an agent with these permissions may read, oldest first.

    This is the whole readable past; what a turn is shown of it is decided in `lemming.kernel.mail.inbox`.
    """
    base = paths.as_base(base_path)
    readable = permissions.read_outboxes
    authors = filter(paths.AGENT_NAME.match, agent_folders(base) if "*" in readable else readable)
    names = sorted(name for author in authors if author != agent_name for name in list_outbox(base, author))
    return list(_readable(base, names[-limit:] if limit else names))


def cleanup_old_outbox_entries(
    base_path: str | os.PathLike[str], current_tick: int, retention_ticks: int | None = None
) -> list[str]:
    """Remove entries older than the retention (default: `config/org.json`) and return their paths."""
    base = paths.as_base(base_path)
    kept_ticks = load_config(base).org.retention_ticks if retention_ticks is None else retention_ticks
    authors = filter(paths.AGENT_NAME.match, agent_folders(base)) if kept_ticks else ()
    oldest = current_tick - kept_ticks
    expired = [name.file for author in authors for name in list_outbox(base, author) if name.tick < oldest]
    for path in expired:
        fs.remove(base, path)
    return expired


def _without_secrets(entry: OutboxEntry) -> OutboxEntry:
    return replace(entry, payload=redact_json(entry.payload), tags=redact_json(entry.tags))


def _readable(base: OrgPath, names: list[EntryName]) -> Iterator[OutboxEntry]:
    for name in names:
        try:
            yield read_entry(base, name)
        except (ConfigError, FileNotFoundError):
            continue


def _unusable(file: str, message: str, hint: str, pointer: str) -> ConfigError:
    problem = Problem(f"entry ignored: {message}", file=file, pointer=pointer, hint=hint, code="LMG-305")
    return ConfigError(str(problem), problems=(problem,))
