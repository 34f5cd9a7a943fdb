"""Index of an organisation's outboxes: the existing entries, and cached contents.

An entry never changes (docs/formats.md), so an entry is not read twice once it was read or written by the
engine. An outbox is listed again if the folder's mtime shows a change by another process. Of its entries,
those without a stable file identity are then read again. The whole index follows from the files and may be
dropped at any moment.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import StatusPair
from lemming.kernel.files.folder_listings import ABSENT, Listing, refresh_listing
from lemming.kernel.files.json_documents import unreadable_error
from lemming.kernel.files.stat_cache import (
    Identity,
    PathState,
    capture_states,
    has_stable_mtime,
    lstat,
    open_folder,
    to_identity,
)
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry, parse_file_names
from lemming.kernel.org.organisation import Organisation

CACHE_LIMIT_BYTES = 32 << 20
OUTBOX_CACHE_BYTES = 64 << 10  # minimum for each outbox that is read: the part an inbox shows of one
ENTRY_OVERHEAD_BYTES = 2048  # Python's overhead for a small entry

EntryResult = OutboxEntry | ConfigError | None
"""An entry, the error in its file, or None without a file."""


class EntryNames:
    """Names of entries of an outbox, or of all, in order. Immutable: a change creates a new value.

    `by_hand`: names whose ids the engine did not generate.
    """

    __slots__ = ("all", "by_hand")

    def __init__(self, names: list[EntryName], by_hand: list[EntryName]) -> None:
        self.all, self.by_hand = names, by_hand

    def next_index(self, tick: int) -> int:
        """Return the index in `all` of the first entry after a tick."""
        if not self.all or self.all[-1].tick <= tick:  # as nearly always
            return len(self.all)
        return bisect_left(self.all, (tick + 1,))

    def up_to_tick(self, tick: int) -> EntryNames:
        """Return the names up to a tick; the same value if all names qualify."""
        if not self.all or self.all[-1].tick <= tick:
            return self
        return EntryNames(self.all[: self.next_index(tick)], [name for name in self.by_hand if name.tick <= tick])

    def copy(self) -> EntryNames:
        """Return the same names as another value."""
        return EntryNames(self.all, self.by_hand)

    def __contains__(self, name: EntryName) -> bool:
        """Return True if an entry is in this outbox."""
        position = bisect_left(self.all, name)
        return self.all[position : position + 1] == [name]


NO_NAMES = EntryNames([], [])


@dataclass(slots=True)  # made for every entry, and a frozen one takes three times as long
class _OutboxListing:
    """An outbox as last listed. `stray_files`: files in it without an entry's name."""

    path: str
    listing: Listing
    names: EntryNames
    stray_files: Sequence[str]


class EntryIndex:
    """The entries of an organisation, for a thread at a time: `org.get_cache(EntryIndex)`."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._outboxes: dict[str, _OutboxListing] = {}
        self.entries: OrderedDict[EntryName, OutboxEntry] = OrderedDict()  # the oldest first
        self.cached_bytes = 0
        self._order: Sequence[str] = ()
        self._merged_names = NO_NAMES
        self._changed: set[EntryName] = set()  # names added or removed since the sort
        self._listed_authors: set[str] = set()
        self._reveal_times: dict[EntryName, str] = {}  # for which entries by hand wait; empty: for none
        self._stable_identities: dict[EntryName, Identity] = {}  # states of files at a read with a stable mtime
        self._visible_names: dict[str, tuple[EntryNames, frozenset[EntryName], EntryNames]] = {}

    def reveal_time(self, name: EntryName) -> str:
        """Return the time before which an entry is hidden; an empty string if there is none."""
        if name.has_engine_id:
            return ""
        if name not in self._reveal_times:
            with suppress(OSError, ConfigError):
                raw = self.load_raw(name)
                if b"not_before" in raw:
                    self._reveal_times[name] = decode_entry(name, raw).not_before
                elif raw.rstrip().endswith(b"}") and b"\0" not in raw:  # power loss leaves less
                    self._reveal_times[name] = ""
        return self._reveal_times.get(name, "")

    def split_visible(self, author: str, names: EntryNames, at: str) -> tuple[EntryNames, frozenset[EntryName]]:
        """Split an author's names ("*": all) into visible and hidden ones: the same values while nothing changes."""
        hidden = frozenset([name for name in names.by_hand if self.reveal_time(name) > at])
        if not hidden:
            return names, hidden
        cached = self._visible_names.get(author)
        if cached is None or cached[0] is not names or cached[1] != hidden:
            visible = [name for name in names.all if name not in hidden]
            by_hand = [name for name in names.by_hand if name not in hidden]
            cached = self._visible_names[author] = names, hidden, EntryNames(visible, by_hand)
        return cached[2], hidden

    def next_reveal_time(self, at: str) -> str:
        """Return the first reveal time after `at` among the entries read so far, or an empty string."""
        return min((reveal_time for reveal_time in self._reveal_times.values() if reveal_time > at), default="")

    def list_outbox(self, author: str) -> EntryNames:
        """Return the current names in an outbox: the same value while nothing changes, none without a readable folder."""
        outbox = self._outboxes.get(author)
        path = outbox.path if outbox else f"{self._base}/{paths.outbox_folder(author)}"
        try:
            listing = refresh_listing(path, outbox.listing if outbox else None)
        except OSError:
            listing = ABSENT  # the folder's own trouble; the disk's is a `DiskError`
        if outbox and listing is outbox.listing:
            return outbox.names
        return self._list(author, path, listing, outbox)

    def pop_changed_authors(self) -> Set[str]:
        """Return the authors whose outboxes were listed again since the last call."""
        listed, self._listed_authors = self._listed_authors, set()
        return listed

    def merge_outboxes(self, order: Sequence[str]) -> EntryNames:
        """Return the names in these authors' outboxes, as last listed, merged in the order of a tick."""
        if order == self._order and not self._changed:
            return self._merged_names
        outboxes = {author: outbox.names for author in order if (outbox := self._outboxes.get(author))}
        key = partial(tick_order_key, {author: rank for rank, author in enumerate(order)})
        if order == self._order:
            added = [name for name in self._changed if name in outboxes.get(name.author, NO_NAMES)]
            remaining = _remove_names(self._merged_names.all, self._changed.difference(added))
            names = remaining + sorted(added, key=key)
            if remaining and added and key(remaining[-1]) > key(names[len(remaining)]):  # new names usually sort last
                names.sort(key=key)
        else:
            names = sorted(chain.from_iterable(outbox_names.all for outbox_names in outboxes.values()), key=key)
        by_hand = chain.from_iterable(outbox_names.by_hand for outbox_names in outboxes.values())
        self._order, self._merged_names = order, EntryNames(names, sorted(by_hand, key=key))
        self._changed.clear()
        return self._merged_names

    def stray_files(self, author: str) -> Sequence[str]:
        """Return the files without an entry's name in an outbox, as last listed."""
        return self._outboxes[author].stray_files if author in self._outboxes else ()

    def capture_state(self, author: str, names: EntryNames, root: int) -> PathState | None:
        """Return a path state that proves `names` to be current, or None if in doubt. `root`: the open organisation."""
        path = paths.outbox_folder(author)
        if outbox := self._outboxes.get(author):
            is_certain = outbox.names is names and outbox.listing.is_settled
            return (path, outbox.listing.identity) if is_certain else None
        states = capture_states([path], root)
        return states[0] if states and states[0][0] != path else None  # not a folder

    def read(self, name: EntryName) -> EntryResult:
        """Return an entry, the error in the file, or None if there is no such file."""
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        try:
            entry = decode_entry(name, self.load_raw(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            return unreadable_error(name.file, error)
        except ConfigError as error:
            return error.with_traceback(None)
        self._cache(name, entry)
        return entry

    def load_raw(self, name: EntryName) -> bytes:
        """Return the bytes of an entry's file, and remember the identity to detect changes. Raises `OSError`."""
        current_ns = time.time_ns()
        raw, status = fs.read_with_status(f"{self._base}/{name.file}", ENTRY_LIMIT_BYTES)
        if has_stable_mtime(identity := to_identity(status), current_ns):
            self._stable_identities[name] = identity
        return raw

    def record_written(self, name: EntryName, entry: OutboxEntry, statuses: StatusPair) -> None:
        """Record an entry written by the engine. `statuses`: the status of the folder before and after."""
        self._forget([name])
        self._cache(name, entry)
        self._record_change(name, statuses, exists=True)

    def remove(self, file: str) -> None:
        """Remove an entry's file and update the index. A missing file is ignored."""
        _, author, _, file_name = file.split("/")
        if statuses := fs.remove(self._base, file):
            for name in parse_file_names(author, [file_name]):
                self._forget([name])
                self._record_change(name, statuses, exists=False)

    def _record_change(self, name: EntryName, statuses: StatusPair, *, exists: bool) -> None:
        outbox = self._outboxes.get(name.author)
        if outbox is None or not (listing := outbox.listing.after_change(statuses)):
            return
        names = outbox.names
        if exists and (not names.all or names.all[-1] < name):  # as nearly always
            by_hand = names.by_hand if name.has_engine_id else [*names.by_hand, name]
            names = EntryNames([*names.all, name], by_hand)
            self._changed ^= {name}  # a name added and removed again is no change
        elif (name in names) is not exists:
            names = EntryNames(_toggle_name(names.all, name), names.by_hand)
            if not name.has_engine_id:
                names.by_hand = _toggle_name(outbox.names.by_hand, name)
            self._changed ^= {name}
        self._outboxes[name.author] = _OutboxListing(outbox.path, listing, names, outbox.stray_files)

    def _list(self, author: str, path: str, listing: Listing, outbox: _OutboxListing | None) -> EntryNames:
        """Update the index from an outbox's listing. Forget entries another process may have changed."""
        self._listed_authors.add(author)
        old_names = outbox.names if outbox else NO_NAMES
        names = self._merge_listing(old_names, author, listing.names)
        if outbox:
            is_changed = outbox.listing.identity != listing.identity
            if is_changed or not (outbox.listing.is_settled or outbox.listing.is_changed_here):
                uncertain = self._find_uncertain(path, old_names)
                if is_changed and uncertain and names is old_names:  # another file may have the name now
                    names, self._merged_names = old_names.copy(), self._merged_names.copy()
                self._forget(uncertain)
        if listing is ABSENT:
            self._outboxes.pop(author, None)
            return NO_NAMES
        stray_files: list[str] = []
        if len(listing.names) > len(names.all):
            stray_files = [file_name for file_name in listing.names if not paths.ENTRY_FILE.match(file_name)]
        # The listing's names are let go: `names` has them, and an outbox may hold very many.
        self._outboxes[author] = _OutboxListing(path, replace(listing, names=[]), names, stray_files)
        return names

    def _find_uncertain(self, path: str, names: EntryNames) -> list[EntryName]:
        """Return the entries of an outbox that are gone, or may have changed since they were read."""
        certain = set[EntryName]()
        with suppress(OSError), open_folder(path) as folder:
            for name in names.all:
                if identity := self._stable_identities.get(name):
                    with suppress(OSError):
                        certain |= {name} if to_identity(lstat(name.file_name, folder)) == identity else set()
        return [name for name in names.all if name not in certain]

    def _merge_listing(self, old_names: EntryNames, author: str, file_names: Iterable[str]) -> EntryNames:
        """Return the names of the entries among the listed files. Names already parsed are reused."""
        names_by_file = {name.file_name: name for name in old_names.all}
        new_names = parse_file_names(author, [file_name for file_name in file_names if file_name not in names_by_file])
        removed = set(old_names.all).difference(map(names_by_file.get, file_names)) if names_by_file else set()
        if not (new_names or removed):
            return old_names
        self._changed ^= removed.union(new_names)
        remaining = _remove_names(old_names.all, removed)
        names = (
            remaining + new_names
            if not (remaining and new_names) or remaining[-1] < new_names[0]
            else sorted(remaining + new_names)
        )
        return EntryNames(names, [name for name in names if not name.has_engine_id])

    def _cache(self, name: EntryName, entry: OutboxEntry) -> None:
        self.entries[name] = entry
        self.cached_bytes += _size(entry)
        while self.cached_bytes > CACHE_LIMIT_BYTES and self.cached_bytes > OUTBOX_CACHE_BYTES * len(self._outboxes):
            self.cached_bytes -= _size(self.entries.popitem(last=False)[1])

    def _forget(self, names: Iterable[EntryName]) -> None:
        for name in names:
            self._reveal_times.pop(name, None)
            self._stable_identities.pop(name, None)
            if entry := self.entries.pop(name, None):
                self.cached_bytes -= _size(entry)


def tick_order_key(rank: dict[str, int], name: EntryName) -> tuple[int, int, int, str]:
    """Return the sort key of an entry: tick, the author's rank in the tick, number, id."""
    return name.tick, rank.get(name.author, -1), name.number, name.id


def _size(entry: OutboxEntry) -> int:
    return entry.payload_chars + ENTRY_OVERHEAD_BYTES


def _remove_names(names: list[EntryName], removed: set[EntryName]) -> list[EntryName]:
    if removed.issuperset(names[: len(removed)]):  # as when they expire
        return names[len(removed) :] if removed else names
    return [name for name in names if name not in removed]


def _toggle_name(names: list[EntryName], name: EntryName) -> list[EntryName]:
    """Return sorted names with one name removed, if present, or added."""
    toggled, position = names.copy(), bisect_left(names, name)
    if names[position : position + 1] == [name]:
        del toggled[position]
    else:
        toggled.insert(position, name)
    return toggled
