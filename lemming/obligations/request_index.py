"""Index the entries about requests in all outboxes; later reads cover only new entries.

Most entries are irrelevant, and their bytes show this before parsing. The relevant file names are cached in the
read model. A cached outbox is valid only if each file still has the same identity: an in-place edit invalidates
the cache, and so does a copy of the folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import has_stable_mtime, open_folder, to_identity
from lemming.kernel.inboxes.entry_index import NO_NAMES, EntryIndex, EntryNames
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry, parse_file_names
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.obligations.request_outcome import concerns_requests, may_concern_requests
from lemming.read_model.read_model import ReadModel


class RequestEntryIndex:
    """The entries about requests in all outboxes, for one thread at a time: `org.own(RequestEntryIndex)`."""

    def __init__(self, org: Organisation) -> None:
        self._base, self._index, self._model = org.base, org.get_cache(EntryIndex), org.get_cache(ReadModel)
        self._outboxes: dict[str, _OutboxScan] = {}
        self._all: dict[EntryName, OutboxEntry] = {}

    def refresh(self, authors: Iterable[str], *, decides: bool = False) -> Mapping[EntryName, OutboxEntry]:
        """Return the authors' entries about requests; the same object if nothing is new.

        `decides`: a turn depends on the result, which makes this method read each entry and ignore the cache.
        """
        valid_authors = [*filter(paths.AGENT_NAME.match, authors)]
        if not self._outboxes and valid_authors and not decides:
            self._scan_all_outboxes(valid_authors)
            return self._all
        old_scans, is_new = self._outboxes, False
        self._outboxes = {}
        for author in valid_authors:
            names, scan = self._index.list_outbox(author), old_scans.get(author)
            if scan and scan.is_cached and decides:
                scan = None
            if scan and scan.stamp:  # its names were not looked at yet
                is_same = outbox_stamp(self._base, author) == scan.stamp
                scan = scan.with_file_names(names) if is_same else None
            if scan is None or scan.names is not names or scan.unusable:
                new_scan = self._read_outbox(author, names, scan)
                is_new = is_new or scan is None or new_scan.entries != scan.entries
                scan = new_scan
            self._outboxes[author] = scan
        if is_new or old_scans.keys() != self._outboxes.keys():
            self._merge_outboxes()
        return self._all

    def _merge_outboxes(self) -> None:
        self._all = {name: entry for scan in self._outboxes.values() for name, entry in scan.entries.items()}

    def _scan_all_outboxes(self, authors: Sequence[str]) -> None:
        """Read all outboxes and cache the relevant files. Of unchanged outboxes, read only the cached files."""
        # the time before the scan: later changes must count as doubtful
        started_ns, cache, rescanned = time.time_ns(), self._model.load_outboxes(), list[str]()
        for author in authors:
            digest = outbox_stamp(self._base, author) if author in cache else ""
            if digest and cache[author][0] == digest:
                self._outboxes[author] = self._add_entries(
                    parse_file_names(author, cache[author][1]), _OutboxScan(NO_NAMES, digest)
                )
            else:
                self._outboxes[author] = self._read_outbox(author, self._index.list_outbox(author), None)
                rescanned.append(author)
        self._merge_outboxes()
        if sum(len(self._outboxes[author].names.all) for author in rescanned) >= MIN_ENTRIES_TO_CACHE:
            stamps = {author: outbox_stamp(self._base, author, since_ns=started_ns) for author in rescanned}
            fresh = {name: (digest, self._outboxes[name].relevant_files) for name, digest in stamps.items() if digest}
            self._model.save_outboxes(
                {name: cached for name, cached in cache.items() if name in self._outboxes} | fresh
            )

    def _read_outbox(self, author: str, names: EntryNames, previous: _OutboxScan | None) -> _OutboxScan:
        """Read the new entries of an outbox. If the names are unchanged, an entry was replaced under its name."""
        previous_names = frozenset(previous.names.all) if previous and previous.names.all != names.all else frozenset()
        previous_entries = previous.entries if previous else {}
        scan, to_read = _OutboxScan(names), list[EntryName]()
        scan.is_cached = previous is not None and previous.is_cached
        for name in names.all:
            if not (name in previous_names and previous and name not in previous.unusable):
                to_read.append(name)
            elif name in previous_entries:
                scan.entries[name] = previous_entries[name]
        return self._add_entries(to_read, scan)

    def _add_entries(self, names: Iterable[EntryName], scan: _OutboxScan) -> _OutboxScan:
        """Add the entries with these names to a scan."""
        for name in names:
            try:
                if entry := self._load_entry(name):
                    scan.entries[name] = entry
            except (OSError, ConfigError):  # removed since, or not an entry, which is reported elsewhere
                scan.unusable.add(name)
        return scan

    def _load_entry(self, name: EntryName) -> OutboxEntry | None:
        cached = self._index.entries.get(name)
        if cached is None:
            return _decode_entry(name, self._index.load_raw(name))
        return cached if concerns_requests(cached) else None


def load_request_entry(base: OrgPath, name: EntryName) -> OutboxEntry | None:
    """Return an entry that opens, affects or ends a request; None for any other entry or a missing file."""
    try:
        return _decode_entry(name, fs.read_bytes(f"{base}/{name.file}", ENTRY_LIMIT_BYTES))
    except (OSError, ConfigError):
        return None


def _decode_entry(name: EntryName, raw: bytes) -> OutboxEntry | None:
    if not may_concern_requests(raw):
        return None
    entry = decode_entry(name, raw)
    return entry if concerns_requests(entry) else None


class _OutboxScan:
    """The scan of an outbox with these names.

    Each scan retries `unusable` entries, because their files may be repaired. `stamp`: a digest of the outbox's files,
    if the names were not listed. `is_kept`: the relevant entries came from the cache, not from a scan.
    """

    def __init__(self, names: EntryNames, stamp: str = "") -> None:
        self.names, self.stamp, self.is_cached = names, stamp, bool(stamp)
        self.entries: dict[EntryName, OutboxEntry] = {}
        self.unusable: set[EntryName] = set()

    @property
    def relevant_files(self) -> list[str]:
        """The files that are relevant, or may be."""
        return [name.file_name for name in (*self.entries, *self.unusable)]

    def with_file_names(self, names: EntryNames) -> _OutboxScan:
        """Return the same scan with the names listed now."""
        scan = _OutboxScan(names)
        scan.is_cached = self.is_cached
        scan.entries, scan.unusable = self.entries, self.unusable
        return scan


# --- which entries matter, kept -------------------------------------------------------------------

MIN_ENTRIES_TO_CACHE = 1000
"""Number of entries that are faster to read than to check for changes."""


def outbox_stamp(base: Path, author: str, *, since_ns: int | None = None) -> str:
    """Return a digest of an outbox's files, "" if unreliable: with `since_ns`, if a file may have changed since."""
    try:
        with open_folder(base / paths.outbox_folder(author)) as folder:
            files = sorted(os.listdir(folder))
            lstat = os.lstat  # not `status_of`: there may be a hundred thousand
            identities = [to_identity(lstat(file, dir_fd=folder)) for file in files]
    except OSError:
        return ""
    if since_ns is not None and not all(has_stable_mtime(identity, since_ns) for identity in identities):
        return ""
    return sha256(repr((files, identities)).encode("utf-8", "surrogateescape")).hexdigest()
