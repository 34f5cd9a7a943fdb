"""What the outboxes of an organisation hold, kept in this process from one tick to the next.

Names and entries are derived from the files and checked against them at every look
(rules: `lemming.files.stamps`), so what is kept may be dropped at any moment. Entries are kept up to a
number of bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from pathlib import Path

from lemming import paths
from lemming.agents import agent_folders
from lemming.errors import ConfigError
from lemming.files import fs
from lemming.files.descriptors import Around
from lemming.files.documents import unreadable
from lemming.files.listings import ABSENT, Listing, list_again
from lemming.files.stamps import (
    Look,
    Reading,
    identity_in,
    is_current,
    is_exact,
    look,
    looks_at,
)
from lemming.messages import (
    ENTRIES_PER_TURN,
    ENTRY_LIMIT_BYTES,
    EntryName,
    OutboxEntry,
    decode_entry,
    names_in,
)

KEPT_BYTES = 32 << 20
KEPT_BYTES_EACH = 64 << 10  # for every outbox that is read, where that is more: what an inbox shows of one

Found = OutboxEntry | ConfigError | None
"""An entry, what is wrong with its file, or None: there is no such file."""

_tick = attrgetter("tick")


class Shelf:
    """Sorted names of entries: `derived`, whose ids the engine gave, and those that came `by_hand`."""

    derived: Sequence[EntryName]
    by_hand: Sequence[EntryName]

    @property
    def last_tick(self) -> int:
        """The tick of the newest entry; -1 when there is none."""
        return max(names[-1].tick if names else -1 for names in (self.derived, self.by_hand))

    def between(self, after: int, until: int) -> tuple[int, int]:
        """Return where in `derived` the ticks begin that come after one, and where those after `until`."""
        first = bisect_left(self.derived, (after + 1,))
        return first, bisect_left(self.derived, (until + 1,), first)

    def named(self, ids: frozenset[str], after: int) -> list[EntryName]:
        """Return the derived names with these ids, of the ticks that come after one."""
        newer = self.derived[bisect_right(self.derived, after, key=_tick) :]
        return [name for name in newer if name.id in ids]


class Outbox(Shelf):
    """The names in one outbox at one moment. It never changes: a change of the folder makes another."""

    def __init__(self, names: Sequence[EntryName]) -> None:
        by_hand = [name for name in names if name.number >= ENTRIES_PER_TURN]
        self.names, self.by_hand = names, by_hand
        self.derived = [name for name in names if name.is_derived] if by_hand else names

    @property
    def last_tick(self) -> int:
        """The tick of the newest entry; -1 when there is none."""
        return self.names[-1].tick if self.names else -1

    def followed_by(self, new: Sequence[EntryName]) -> Outbox:
        """Return the outbox with names that come after all that it has."""
        outbox = Outbox(new)
        outbox.by_hand = [*self.by_hand, *outbox.by_hand]
        outbox.names = [*self.names, *new]
        outbox.derived = [*self.derived, *outbox.derived] if outbox.by_hand else outbox.names
        return outbox

    def without(self, name: EntryName) -> Outbox:
        """Return the outbox without one of its names."""
        outbox = Outbox(())
        outbox.names = _without(self.names, name)
        outbox.by_hand = _without(self.by_hand, name)
        outbox.derived = _without(self.derived, name) if outbox.by_hand else outbox.names
        return outbox

    def older_than(self, tick: int) -> Sequence[EntryName]:
        """Return the names of the entries of earlier ticks."""
        return self.names[: bisect_left(self.names, tick, key=_tick)]


EMPTY = Outbox(())


class Pile(Shelf):
    """The names in all outboxes at one moment, in the order of a tick. It never changes either."""

    def __init__(self, authors: Sequence[str]) -> None:
        self.authors = authors
        self.outboxes = dict.fromkeys(authors, EMPTY)
        self.derived: list[EntryName] = []
        self.by_hand: list[EntryName] = []
        self._order = partial(in_tick_order, {author: place for place, author in enumerate(authors)})

    def named(self, ids: frozenset[str], after: int) -> list[EntryName]:
        """Return the derived names with these ids, of the ticks that come after one."""
        found = map(self._by_id.get, ids)
        return [name for name in found if name and name.tick > after]

    def with_changes(self, outboxes: Mapping[str, Outbox]) -> Pile:
        """Return the pile with these in the place of what their authors had; the same when nothing is new."""
        changed = {author: new for author, new in outboxes.items() if new is not self.outboxes[author]}
        if not changed:
            return self
        added: list[EntryName] = []
        removed: set[EntryName] = set()
        for author, outbox in changed.items():
            gone, new = _difference(self.outboxes[author].derived, outbox.derived)
            removed.update(gone)
            added += new
        pile = Pile(self.authors)
        pile.outboxes = {**self.outboxes, **changed}
        pile.derived = self._without(removed)
        pile._add(sorted(added, key=self._order))
        by_hand = [name for name in self.by_hand if name.author not in changed]
        new_by_hand = (name for outbox in changed.values() for name in outbox.by_hand)
        pile.by_hand = sorted([*by_hand, *new_by_hand], key=self._order)
        return pile

    @cached_property
    def _by_id(self) -> dict[str, EntryName]:
        return {name.id: name for name in self.derived}

    def _without(self, removed: set[EntryName]) -> list[EntryName]:
        oldest = self.derived[: len(removed)]
        if removed.issuperset(oldest):  # as when they expire
            return self.derived[len(removed) :]
        return [name for name in self.derived if name not in removed]

    def _add(self, added: list[EntryName]) -> None:
        is_newer = not (added and self.derived) or self._order(self.derived[-1]) < self._order(added[0])
        self.derived += added
        if not is_newer:
            self.derived.sort(key=self._order)


def _difference(
    before: Sequence[EntryName], after: Sequence[EntryName]
) -> tuple[Iterable[EntryName], Iterable[EntryName]]:
    """Return what is gone and what is new; quick when the oldest are gone and the newest are new."""
    first = bisect_left(before, after[0]) if after else len(before)
    kept = len(before) - first
    if before[first:] == after[:kept]:
        return before[:first], after[kept:]
    return set(before).difference(after), set(after).difference(before)


@dataclass(slots=True)
class _Listed:
    """An outbox, the listing it was made of, and its entries by the names of their files."""

    path: str
    listing: Listing
    files: dict[str, EntryName]
    outbox: Outbox


class Visit:
    """One tick's look at the entries. `written`: those of its turns, whose files may not be there yet."""

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.written: dict[EntryName, OutboxEntry] = {}


@dataclass(slots=True)
class _Kept:
    """An entry as it was read last, and in which visit it was looked at last."""

    path: str
    reading: Reading[OutboxEntry]
    visit: Visit | None = None


class Outboxes:
    """The outboxes of one organisation, for one thread at a time."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._listed: dict[str, _Listed] = {}
        self._entries: OrderedDict[EntryName, _Kept] = OrderedDict()
        self.kept_bytes = 0
        self._pile: Pile | None = None

    def outbox(self, author: str) -> Outbox:
        """Return what is in an outbox now: the very same value as before when nothing is new.

        One that is no folder (a link is none), or that may not be read, has no entries.
        """
        kept = self._listed.get(author)
        path = kept.path if kept else f"{self._base}/{paths.outbox_folder(author)}"
        try:
            listing = list_again(path, kept.listing if kept else None)
        except OSError:
            listing = ABSENT
        if kept and listing is kept.listing:
            return kept.outbox
        if listing is ABSENT:
            self._listed.pop(author, None)
            return EMPTY
        files = kept.files if kept else {}
        outbox = _outbox_in(author, listing.names, files, kept.outbox if kept else EMPTY)
        self._listed[author] = _Listed(path, listing, files, outbox)
        return outbox

    def strays(self, author: str) -> list[str]:
        """Return the files in an outbox, as it was when looked at last, whose names are no entry's."""
        kept = self._listed.get(author)
        if kept is None or len(kept.listing.names) == len(kept.files):
            return []
        return [name for name in kept.listing.names if name not in kept.files]

    def look(self, author: str, outbox: Outbox, root: int) -> Look | None:
        """Return what tells whether `outbox` is still what is there; None when that is in doubt.

        `root` is the organisation's folder, opened.
        """
        path = paths.outbox_folder(author)
        if kept := self._listed.get(author):
            is_certain = kept.outbox is outbox and kept.listing.is_settled
            return (path, kept.listing.identity) if is_certain else None
        looks = looks_at([path], root)
        return looks[0] if looks and looks[0][0] != path else None  # what stands there is no folder

    def looks_of(self, names: Iterable[EntryName]) -> list[Look] | None:
        """Return what tells whether these entries are as they were read; None when that is in doubt."""
        looks = []
        for name in names:
            kept = self._entries.get(name)
            if kept is None or not kept.reading.is_settled:
                return None
            looks.append((name.file, kept.reading.identity))
        return looks

    def pile(self, order: Sequence[str], outboxes: Mapping[str, Outbox]) -> Pile:
        """Return the entries of these outboxes, which were just looked at, in the order of a tick."""
        authors = tuple(order)
        if self._pile is None or self._pile.authors != authors:
            self._pile = Pile(authors)
        self._pile = self._pile.with_changes(outboxes)
        return self._pile

    def read(self, names: Iterable[EntryName], visit: Visit) -> Iterator[tuple[EntryName, Found]]:
        """Yield each name with its entry, or what is wrong with its file, or None when there is none.

        In one visit a file is looked at once.
        """
        tick, kept_of = visit.tick, self._entries.get
        for name in names:
            if name.tick == tick and name in visit.written:
                yield name, visit.written[name]
                continue
            kept = kept_of(name)
            if kept and (kept.visit is visit or is_current(kept.reading, kept.path)):
                kept.visit = visit
                yield name, kept.reading.outcome
            else:
                yield name, self._read_again(name, kept, visit)

    def written(
        self,
        name: EntryName,
        entry: OutboxEntry,
        digest: str,
        file: os.stat_result | None,
        around: Around,
    ) -> None:
        """Take note of what a turn wrote: its file need not be parsed, nor even read where stamps tell."""
        identity = identity_in(file or around[1])
        is_settled = file is not None and is_exact(identity)
        reading: Reading[OutboxEntry] = Reading(entry, digest, identity, is_settled)
        file_path = name.file
        self._keep(name, _Kept(f"{self._base}/{file_path}", reading))
        kept = self._listed.get(name.author)
        if kept and _are_newer([name], kept.outbox.names):
            file_name = file_path.rpartition("/")[2]
            listing = kept.listing.with_name(file_name, around)
            if listing.is_settled:
                kept.files[file_name] = name
                kept.listing, kept.outbox = listing, kept.outbox.followed_by([name])

    def remove(self, file: str) -> None:
        """Remove an entry's file and take note of it; nothing happens when it is not there."""
        around = fs.remove(self._base, file)
        _, author, _, file_name = file.split("/")
        kept = self._listed.get(author)
        if kept and around and file_name in kept.files:
            listing = kept.listing.without_name(file_name, around)
            if listing.is_settled:
                kept.listing, kept.outbox = listing, kept.outbox.without(kept.files.pop(file_name))

    def _read_again(self, name: EntryName, kept: _Kept | None, visit: Visit) -> Found:
        path, before = (kept.path, kept.reading) if kept else (f"{self._base}/{name.file}", None)
        try:
            reading = look(path, before, partial(decode_entry, name), limit_bytes=ENTRY_LIMIT_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            return unreadable(name.file, error)
        self._keep(name, _Kept(path, reading, visit))
        return reading.outcome

    def _keep(self, name: EntryName, kept: _Kept) -> None:
        if replaced := self._entries.pop(name, None):
            self.kept_bytes -= _size(replaced.reading)
        self._entries[name] = kept
        self.kept_bytes += _size(kept.reading)
        while self.kept_bytes > KEPT_BYTES and self.kept_bytes > KEPT_BYTES_EACH * len(self._listed):
            self.kept_bytes -= _size(self._entries.popitem(last=False)[1].reading)


@lru_cache(maxsize=4)
def outboxes_of(base: Path) -> Outboxes:
    """Return what this process knows of an organisation's outboxes."""
    return Outboxes(base)


def old_entries(base: Path, current_tick: int, retention_ticks: int) -> dict[str, Sequence[EntryName]]:
    """Return the entries older than the retention, by author, sorted; none when it is 0."""
    oldest = current_tick - retention_ticks
    if retention_ticks == 0 or oldest <= 0:
        return {}
    outboxes = outboxes_of(base)
    authors = filter(paths.AGENT_NAME.match, agent_folders(base))
    found = ((author, outboxes.outbox(author).older_than(oldest)) for author in authors)
    return {author: names for author, names in found if names}


def in_tick_order(rank: dict[str, int], name: EntryName) -> tuple[int, int, int, str]:
    """Return the key by which entries are sorted: tick, the author's place in it, number, id."""
    return name.tick, rank.get(name.author, -1), name.number, name.id


def _size(reading: Reading[OutboxEntry]) -> int:
    return reading.identity[1] + 2048  # what Python adds to a small entry


def _outbox_in(author: str, file_names: list[str], files: dict[str, EntryName], before: Outbox) -> Outbox:
    """Return what a folder with these files is; `files`, the entries that were in it, are brought up to date.

    Names that were there before are not taken apart again.
    """
    present = set(file_names)
    gone = {files.pop(file_name) for file_name in files.keys() - present}
    new = names_in(author, present - files.keys())
    files.update((f"{name.tick:08d}_{name.id}.json", name) for name in new)
    names = before.names
    if gone:
        is_oldest = gone.issuperset(names[: len(gone)])  # as when they expire
        names = names[len(gone) :] if is_oldest else [name for name in names if name not in gone]
        before = Outbox(names)
    if not new:
        return before
    return before.followed_by(new) if _are_newer(new, names) else Outbox(sorted([*names, *new]))


def _without(names: Sequence[EntryName], name: EntryName) -> Sequence[EntryName]:
    place = bisect_left(names, name)
    is_there = place < len(names) and names[place] == name
    return [*names[:place], *names[place + 1 :]] if is_there else names


def _are_newer(new: Sequence[EntryName], names: Sequence[EntryName]) -> bool:
    return not names or names[-1] < new[0]
