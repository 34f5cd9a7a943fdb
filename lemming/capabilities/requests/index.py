"""The entries that requests are made of, out of all outboxes: read once, and later only what is new.

Most entries are none of them, which their bytes tell before they are taken apart. Which ones are is kept in
`.lemming/requests.json`, which may be deleted at any moment. An outbox is as it was then if every file in it
has the identity that it had: so an edit in place shows, and in a copy nothing is believed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from lemming.capabilities.requests.all_requests import concerns_requests, may_matter
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.jsontext import compact, parse
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES
from lemming.kernel.files.stamps import has_rested, identity_in, opened
from lemming.kernel.mail.index import NONE, EntryIndex, Names
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry, names_in
from lemming.kernel.org.organisation import Organisation, OrgPath


class RequestEntries:
    """What outboxes say of requests, for one thread at a time: `org.own(RequestEntries)`."""

    def __init__(self, org: Organisation) -> None:
        self._base, self._index = org.base, org.own(EntryIndex)
        self._outboxes: dict[str, _ReadOutbox] = {}
        self._all: dict[EntryName, OutboxEntry] = {}

    def look(self, authors: Iterable[str], *, decides: bool = False) -> Mapping[EntryName, OutboxEntry]:
        """Return what these authors have written about requests: the very same value when nothing is new.

        `decides`: a turn goes by it, so that each entry is read, whatever was kept of which of them matter.
        """
        wanted = [*filter(paths.AGENT_NAME.match, authors)]
        if not self._outboxes and wanted and not decides:
            self._first_look(wanted)
            return self._all
        before, is_new = self._outboxes, False
        self._outboxes = {}
        for author in wanted:
            names, known = self._index.outbox(author), before.get(author)
            if known and known.is_kept and decides:
                known = None
            if known and known.stamp:  # its names were not looked at yet
                is_same = stamp_of(self._base, author) == known.stamp
                known = known.with_names(names) if is_same else None
            if known is None or known.names is not names or known.unusable:
                read = self._read(author, names, known)
                is_new = is_new or known is None or read.entries != known.entries
                known = read
            self._outboxes[author] = known
        if is_new or before.keys() != self._outboxes.keys():
            self._put_together()
        return self._all

    def _put_together(self) -> None:
        self._all = {name: it for read in self._outboxes.values() for name, it in read.entries.items()}

    def _first_look(self, authors: Sequence[str]) -> None:
        """Read all outboxes, and keep which entries mattered; of those that stand as then, only these."""
        # the time before anything is looked at: what changes meanwhile must be in doubt
        began, kept, anew = time.time_ns(), read_kept(self._base), list[str]()
        for author in authors:
            digest = stamp_of(self._base, author) if author in kept else ""
            if digest and kept[author][0] == digest:
                self._outboxes[author] = self._of(
                    names_in(author, kept[author][1]), _ReadOutbox(NONE, digest)
                )
            else:
                self._outboxes[author] = self._read(author, self._index.outbox(author), None)
                anew.append(author)
        self._put_together()
        if sum(len(self._outboxes[author].names.all) for author in anew) >= WORTH_KEEPING:
            stand = {author: stamp_of(self._base, author, since_ns=began) for author in anew}
            fresh = {it: (digest, self._outboxes[it].files) for it, digest in stand.items() if digest}
            keep(self._base, {it: known for it, known in kept.items() if it in self._outboxes} | fresh)

    def _read(self, author: str, names: Names, known: _ReadOutbox | None) -> _ReadOutbox:
        """Read what is new in an outbox. Where its names are the same, something stands under one anew."""
        shown = frozenset(known.names.all) if known and known.names.all != names.all else frozenset()
        kept = known.entries if known else {}
        read, to_read = _ReadOutbox(names), list[EntryName]()
        read.is_kept = known is not None and known.is_kept
        for name in names.all:
            if not (name in shown and known and name not in known.unusable):
                to_read.append(name)
            elif name in kept:
                read.entries[name] = kept[name]
        return self._of(to_read, read)

    def _of(self, names: Iterable[EntryName], read: _ReadOutbox) -> _ReadOutbox:
        """Add what these entries say to what was read."""
        for name in names:
            try:
                if entry := self._look_at(name):
                    read.entries[name] = entry
            except (OSError, ConfigError):  # gone since, or no entry: the outbox's owner is told elsewhere
                read.unusable.add(name)
        return read

    def _look_at(self, name: EntryName) -> OutboxEntry | None:
        at_hand = self._index.entries.get(name)
        if at_hand is None:
            return _request_entry_in(name, self._index.bytes_of(name))
        return at_hand if concerns_requests(at_hand) else None


def read_request_entry(base: OrgPath, name: EntryName) -> OutboxEntry | None:
    """Return an entry that opens a request, moves one or ends one; None for any other, or none at all."""
    try:
        return _request_entry_in(name, fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES))
    except (OSError, ConfigError):
        return None


def _request_entry_in(name: EntryName, raw: bytes) -> OutboxEntry | None:
    if not may_matter(raw):
        return None
    entry = decode_entry(name, raw)
    return entry if concerns_requests(entry) else None


class _ReadOutbox:
    """What was read of an outbox that held these names. `unusable` are tried again: they may be mended.

    `stamp`: what tells that the outbox stands as it did, where its names were not looked at. `is_kept`: which
    of its entries matter was kept, and not found out.
    """

    def __init__(self, names: Names, stamp: str = "") -> None:
        self.names, self.stamp, self.is_kept = names, stamp, bool(stamp)
        self.entries: dict[EntryName, OutboxEntry] = {}
        self.unusable: set[EntryName] = set()

    @property
    def files(self) -> list[str]:
        """The files that matter, or may do."""
        return [name.file_name for name in (*self.entries, *self.unusable)]

    def with_names(self, names: Names) -> _ReadOutbox:
        """Return the same of the names that were looked at now."""
        read = _ReadOutbox(names)
        read.is_kept = self.is_kept
        read.entries, read.unusable = self.entries, self.unusable
        return read


# --- which entries matter, kept -------------------------------------------------------------------

WORTH_KEEPING = 1000
"""So many entries are read in less time than it takes to look whether they have changed."""

FORM = b"1"
"""What is kept in another form, by another version, is not believed: count it up."""


def stamp_of(base: Path, author: str, *, since_ns: int | None = None) -> str:
    """Return what tells that an outbox still holds the same files; empty: that is in doubt.

    With `since_ns`, it is where one may have changed since then.
    """
    try:
        with opened(base / paths.outbox_folder(author)) as folder:
            files = sorted(os.listdir(folder))
            lstat = os.lstat  # not `status_of`: there may be a hundred thousand
            identities = [identity_in(lstat(file, dir_fd=folder)) for file in files]
    except OSError:
        return ""
    if since_ns is not None and not all(has_rested(it, since_ns) for it in identities):
        return ""
    return sha256(repr((files, identities)).encode("utf-8", "surrogateescape")).hexdigest()


def read_kept(base: Path) -> dict[str, tuple[str, list[str]]]:
    """Return, by author, how an outbox stood and the files in it that matter; empty where nothing is kept."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, DiskError):
        raw = fs.read_bytes(base / paths.REQUESTS_FILE, LONGEST_LINE_BYTES)
        check, _, whole = raw.partition(b"\n")
        if check == _check(whole):  # torn or edited, it is not believed
            found = parse(whole, limit_bytes=LONGEST_LINE_BYTES)
            return {author: (str(digest), [*map(str, files)]) for author, (digest, files) in found.items()}
    return {}


def keep(base: Path, kept: Mapping[str, tuple[str, list[str]]]) -> None:
    """Keep that; where nothing can be written, nothing is."""
    whole = compact(kept)
    with contextlib.suppress(OSError, DiskError):
        fs.publish(base, paths.REQUESTS_FILE, b"%b\n%b" % (_check(whole), whole))


def _check(whole: bytes) -> bytes:
    return sha256(FORM + whole).hexdigest().encode()
