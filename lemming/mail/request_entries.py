"""The entries that requests are made of, out of all outboxes: read once, and later only what is new.

Most entries are none of them, which their bytes tell before they are taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from lemming.base import paths
from lemming.base.errors import ConfigError
from lemming.files import fs
from lemming.mail.index import EntryIndex, Names
from lemming.mail.request_rules import concerns_requests, may_matter
from lemming.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry
from lemming.org.organisation import Organisation, OrgPath


class RequestEntries:
    """What outboxes say of requests, for one thread at a time: `org.own(RequestEntries)`."""

    def __init__(self, org: Organisation) -> None:
        self._index = org.own(EntryIndex)
        self._outboxes: dict[str, _Read] = {}
        self._all: dict[EntryName, OutboxEntry] = {}

    def look(self, authors: Iterable[str]) -> dict[EntryName, OutboxEntry]:
        """Return what these authors have written about requests: the very same value when nothing is new."""
        before, is_new = self._outboxes, False
        self._outboxes = {}
        for author in filter(paths.AGENT_NAME.match, authors):
            names, known = self._index.outbox(author), before.get(author)
            if known is None or known.names is not names or known.unusable:
                read = self._read(author, names, known)
                is_new = is_new or known is None or read.entries != known.entries
                known = read
            self._outboxes[author] = known
        if is_new or before.keys() != self._outboxes.keys():
            self._all = {name: it for read in self._outboxes.values() for name, it in read.entries.items()}
        return self._all

    def _read(self, author: str, names: Names, known: _Read | None) -> _Read:
        """Read what is new in an outbox. Where its names are the same, something stands under one anew."""
        shown = frozenset(known.names.all) if known and known.names.all != names.all else frozenset()
        kept = known.entries if known else {}
        read = _Read(names)
        for name in names.all:
            if name in shown and known and name not in known.unusable:
                if name in kept:
                    read.entries[name] = kept[name]
                continue
            try:
                if entry := self._look_at(name):
                    read.entries[name] = entry
            except (OSError, ConfigError):  # gone since, or no entry: the outbox's owner is told elsewhere
                read.unusable.add(name)
        return read

    def _look_at(self, name: EntryName) -> OutboxEntry | None:
        at_hand = self._index.entries.get(name)
        if at_hand is None:
            return _about_requests(name, self._index.bytes_of(name))
        return at_hand if concerns_requests(at_hand) else None


def entry_about_requests(base: OrgPath, name: EntryName) -> OutboxEntry | None:
    """Return an entry that opens a request, moves one or ends one; None for any other, or none at all."""
    try:
        return _about_requests(name, fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES))
    except (OSError, ConfigError):
        return None


def _about_requests(name: EntryName, raw: bytes) -> OutboxEntry | None:
    if not may_matter(raw):
        return None
    entry = decode_entry(name, raw)
    return entry if concerns_requests(entry) else None


class _Read:
    """What was read of an outbox that held these names. `unusable` are tried again: they may be mended."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.entries: dict[EntryName, OutboxEntry] = {}
        self.unusable: set[EntryName] = set()
