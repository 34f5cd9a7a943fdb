"""What the outboxes of an organisation hold: which entries there are, and those that have been read.

An entry never changes (docs/formats.md), so one that was read, or written by the engine, is not looked at
again. An outbox is listed again when its folder's stamp tells that somebody else changed it; of its entries
those are then read again whose own stamps do not tell that they stand as they were read. All of this follows
from the files and may be dropped at any moment.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import Around
from lemming.kernel.files.documents import unreadable
from lemming.kernel.files.stamps import (
    ABSENT,
    Identity,
    Listing,
    Look,
    has_rested,
    identity_in,
    list_again,
    looks_at,
    opened,
    status_of,
)
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, decode_entry, names_in
from lemming.kernel.org.organisation import Organisation

KEPT_BYTES = 32 << 20
KEPT_BYTES_EACH = 64 << 10  # for every outbox that is read, where that is more: what an inbox shows of one
ENTRY_BYTES = 2048  # what Python adds to a small entry

Found = OutboxEntry | ConfigError | None
"""An entry, what is wrong with its file, or None: there is no such file."""


class Names:
    """The names of entries of one outbox, or of all, in order. It never changes: a change makes another.

    `by_hand`: those whose ids the engine did not give.
    """

    __slots__ = ("all", "by_hand")

    def __init__(self, names: list[EntryName], by_hand: list[EntryName]) -> None:
        self.all, self.by_hand = names, by_hand

    def after(self, tick: int) -> int:
        """Return where in `all` the entries begin that come after a tick."""
        if not self.all or self.all[-1].tick <= tick:  # as nearly always
            return len(self.all)
        return bisect_left(self.all, (tick + 1,))

    def until(self, tick: int) -> Names:
        """Return those up to a tick; the very same value when that is all."""
        if not self.all or self.all[-1].tick <= tick:
            return self
        return Names(self.all[: self.after(tick)], [name for name in self.by_hand if name.tick <= tick])

    def copy(self) -> Names:
        """Return the same names as another value."""
        return Names(self.all, self.by_hand)

    def __contains__(self, name: EntryName) -> bool:
        """Return whether an entry is in this outbox."""
        place = bisect_left(self.all, name)
        return self.all[place : place + 1] == [name]


NONE = Names([], [])


@dataclass(slots=True)  # made for every entry, and a frozen one takes three times as long
class _Outbox:
    """An outbox as it was looked at last. `strays` are files in it whose names are no entry's."""

    path: str
    listing: Listing
    names: Names
    strays: Sequence[str]


class EntryIndex:
    """The entries of one organisation, for one thread at a time: `org.own(EntryIndex)`."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._outboxes: dict[str, _Outbox] = {}
        self.entries: OrderedDict[EntryName, OutboxEntry] = OrderedDict()  # the oldest first
        self.kept_bytes = 0
        self._order: Sequence[str] = ()
        self._in_order = NONE
        self._changed: set[EntryName] = set()  # what came or went since they were put in order
        self._listed: set[str] = set()
        self._moments: dict[EntryName, str] = {}  # for which entries by hand wait; empty: for none
        self._stood: dict[EntryName, Identity] = {}  # what files were when they were read and had rested
        self._shown: dict[str, tuple[Names, frozenset[EntryName], Names]] = {}

    def moment_of(self, name: EntryName) -> str:
        """Return the moment before which nobody is shown an entry; empty when it names none."""
        if name.is_derived:
            return ""
        if name not in self._moments:
            moment = self._moment_in(name)
            if moment is None:
                return ""
            self._moments[name] = moment
        return self._moments[name]

    def shown(self, author: str, names: Names, at: str) -> tuple[Names, frozenset[EntryName]]:
        """Return those of an author's entries ("*": all) that may be shown at a moment, and the others.

        The very same names as before when nothing has come or gone and no moment has passed.
        """
        hidden = frozenset([name for name in names.by_hand if self.moment_of(name) > at])
        if not hidden:
            return names, hidden
        before = self._shown.get(author)
        if before is None or before[0] is not names or before[1] != hidden:
            kept = [name for name in names.all if name not in hidden]
            by_hand = [name for name in names.by_hand if name not in hidden]
            before = self._shown[author] = names, hidden, Names(kept, by_hand)
        return before[2], hidden

    def next_moment(self, at: str) -> str:
        """Return the first moment after `at` for which an entry waits that was looked at; empty: none."""
        return min((moment for moment in self._moments.values() if moment > at), default="")

    def outbox(self, author: str) -> Names:
        """Return what is in an outbox now: the very same value as before when nothing is new.

        One that is no folder (a link is none), or that may not be read, has no entries.
        """
        known = self._outboxes.get(author)
        path = known.path if known else f"{self._base}/{paths.outbox_folder(author)}"
        try:
            listing = list_again(path, known.listing if known else None)
        except OSError:
            listing = ABSENT  # the folder's own trouble; the disk's is a `DiskError`
        if known and listing is known.listing:
            return known.names
        return self._list(author, path, listing, known)

    def take_listed(self) -> Set[str]:
        """Return the authors whose outboxes were listed anew since this was asked last."""
        listed, self._listed = self._listed, set()
        return listed

    def all_in_order(self, order: Sequence[str]) -> Names:
        """Return what the outboxes of these authors held when each was looked at last, in a tick's order."""
        if order == self._order and not self._changed:
            return self._in_order
        outboxes = {author: known.names for author in order if (known := self._outboxes.get(author))}
        key = partial(in_tick_order, {author: place for place, author in enumerate(order)})
        if order == self._order:
            added = [name for name in self._changed if name in outboxes.get(name.author, NONE)]
            kept = _without(self._in_order.all, self._changed.difference(added))
            names = kept + sorted(added, key=key)
            if kept and added and key(kept[-1]) > key(names[len(kept)]):  # most often what is new is newer
                names.sort(key=key)
        else:
            names = sorted(chain.from_iterable(each.all for each in outboxes.values()), key=key)
        by_hand = chain.from_iterable(each.by_hand for each in outboxes.values())
        self._order, self._in_order = order, Names(names, sorted(by_hand, key=key))
        self._changed.clear()
        return self._in_order

    def strays(self, author: str) -> Sequence[str]:
        """Return the files in an outbox, as it was when looked at last, whose names are no entry's."""
        return self._outboxes[author].strays if author in self._outboxes else ()

    def look(self, author: str, names: Names, root: int) -> Look | None:
        """Return what tells whether `names` is still what is there; None when that is in doubt.

        `root` is the organisation's folder, opened.
        """
        path = paths.outbox_folder(author)
        if known := self._outboxes.get(author):
            is_certain = known.names is names and known.listing.is_settled
            return (path, known.listing.identity) if is_certain else None
        looks = looks_at([path], root)
        return looks[0] if looks and looks[0][0] != path else None  # what stands there is no folder

    def read(self, name: EntryName) -> Found:
        """Return an entry, or what is wrong with its file, or None when there is none."""
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        try:
            entry = decode_entry(name, self.bytes_of(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            return unreadable(name.file, error)
        except ConfigError as error:
            return error.with_traceback(None)
        self._keep(name, entry)
        return entry

    def bytes_of(self, name: EntryName) -> bytes:
        """Return what an entry's file holds, and take note of what tells of a change. Raises `OSError`."""
        now = time.time_ns()
        raw, status = fs.read_with_status(f"{self._base}/{name.file}", ENTRY_LIMIT_BYTES)
        if has_rested(identity := identity_in(status), now):
            self._stood[name] = identity
        return raw

    def _moment_in(self, name: EntryName) -> str | None:
        """Return the moment that an entry waits for (mostly none); None: its file cannot be read."""
        try:
            raw = self.bytes_of(name)
            if b"not_before" in raw:
                return decode_entry(name, raw).not_before
            is_whole = raw.rstrip().endswith(b"}") and b"\0" not in raw  # power loss leaves less
            return "" if is_whole else None
        except (OSError, ConfigError):
            return None

    def written(self, name: EntryName, entry: OutboxEntry, around: Around) -> None:
        """Take note that the engine has written an entry; `around` is what its folder was then."""
        self._forget([name])
        self._keep(name, entry)
        self._change_here(name, around, is_there=True)

    def remove(self, file: str) -> None:
        """Remove an entry's file and take note of it; nothing happens when it is not there."""
        _, author, _, file_name = file.split("/")
        if around := fs.remove(self._base, file):
            for name in names_in(author, [file_name]):
                self._forget([name])
                self._change_here(name, around, is_there=False)

    def _change_here(self, name: EntryName, around: Around, *, is_there: bool) -> None:
        known = self._outboxes.get(name.author)
        if known is None or not (listing := known.listing.after_change(around)):
            return
        names = known.names
        if is_there and (not names.all or names.all[-1] < name):  # as nearly always
            by_hand = names.by_hand if name.is_derived else [*names.by_hand, name]
            names = Names([*names.all, name], by_hand)
            self._changed ^= {name}  # what came and went again has not changed
        elif (name in names) is not is_there:
            names = Names(_toggled(names.all, name), names.by_hand)
            if not name.is_derived:
                names.by_hand = _toggled(known.names.by_hand, name)
            self._changed ^= {name}
        self._outboxes[name.author] = _Outbox(known.path, listing, names, known.strays)

    def _list(self, author: str, path: str, listing: Listing, known: _Outbox | None) -> Names:
        """Take note of what an outbox holds; forget what may be another where somebody else changed it."""
        self._listed.add(author)
        before = known.names if known else NONE
        names = self._with_changes(before, author, listing.names)
        if known:
            is_changed = known.listing.identity != listing.identity
            if is_changed or not (known.listing.is_settled or known.listing.is_changed_here):
                in_doubt = self._in_doubt(path, before)
                if is_changed and in_doubt and names is before:  # something else may stand under a name
                    names, self._in_order = before.copy(), self._in_order.copy()
                self._forget(in_doubt)
        if listing is ABSENT:
            self._outboxes.pop(author, None)
            return NONE
        strays: list[str] = []
        if len(listing.names) > len(names.all):
            strays = [file_name for file_name in listing.names if not paths.ENTRY_FILE.match(file_name)]
        # The listing's names are let go: `names` has them, and an outbox may hold very many.
        self._outboxes[author] = _Outbox(path, replace(listing, names=[]), names, strays)
        return names

    def _in_doubt(self, path: str, names: Names) -> list[EntryName]:
        """Return the entries of an outbox that are gone, or that may have changed since they were read."""
        try:
            with opened(path) as folder:
                return [name for name in names.all if not self._stands(name, folder)]
        except OSError:
            return names.all

    def _stands(self, name: EntryName, folder: int) -> bool:
        """Return whether an entry of an open outbox is certainly as it was read."""
        stood = self._stood.get(name)
        try:
            return stood is not None and identity_in(status_of(name.file_name, folder)) == stood
        except OSError:
            return False

    def _with_changes(self, before: Names, author: str, file_names: Iterable[str]) -> Names:
        """Return the names of the entries among these files; those from before are not taken apart again."""
        there = {name.file_name: name for name in before.all}
        new = names_in(author, [file_name for file_name in file_names if file_name not in there])
        gone = set(before.all).difference(map(there.get, file_names)) if there else set()
        if not (new or gone):
            return before
        self._changed ^= gone.union(new)
        kept = _without(before.all, gone)
        names = kept + new if not (kept and new) or kept[-1] < new[0] else sorted(kept + new)
        return Names(names, [name for name in names if not name.is_derived])

    def _keep(self, name: EntryName, entry: OutboxEntry) -> None:
        self.entries[name] = entry
        self.kept_bytes += _size(entry)
        while self.kept_bytes > KEPT_BYTES and self.kept_bytes > KEPT_BYTES_EACH * len(self._outboxes):
            self.kept_bytes -= _size(self.entries.popitem(last=False)[1])

    def _forget(self, names: Iterable[EntryName]) -> None:
        for name in names:
            self._moments.pop(name, None)
            self._stood.pop(name, None)
            if entry := self.entries.pop(name, None):
                self.kept_bytes -= _size(entry)


def in_tick_order(rank: dict[str, int], name: EntryName) -> tuple[int, int, int, str]:
    """Return the key by which entries are sorted: tick, the author's place in it, number, id."""
    return name.tick, rank.get(name.author, -1), name.number, name.id


def _size(entry: OutboxEntry) -> int:
    return entry.payload_chars + ENTRY_BYTES


def _without(names: list[EntryName], gone: set[EntryName]) -> list[EntryName]:
    if gone.issuperset(names[: len(gone)]):  # as when they expire
        return names[len(gone) :] if gone else names
    return [name for name in names if name not in gone]


def _toggled(names: list[EntryName], name: EntryName) -> list[EntryName]:
    """Return sorted names without one of them, or with one more."""
    toggled, place = names.copy(), bisect_left(names, name)
    if names[place : place + 1] == [name]:
        del toggled[place]
    else:
        toggled.insert(place, name)
    return toggled
