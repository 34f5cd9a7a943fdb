"""The inbox: a view, never a folder. Which entries a turn sees, and what it has read already.

Rules: docs/concepts.md, "What a turn sees". Unread entries come first, oldest first, up to a limit; the
rest stay unread. What was shown is remembered as one tick per line of `read_outboxes`, so the memory does
not grow with history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, filterfalse, islice
from typing import Any, NamedTuple

from lemming.errors import ConfigError, Problem
from lemming.messages import EntryName, OutboxEntry
from lemming.outboxes import Outbox, Shelf

OWN_ENTRIES_SHOWN = 3


@dataclass(frozen=True)
class ReadMark:
    """What an agent has been shown.

    `through`: for each name (or "*") of its `read_outboxes`, the tick up to which everything was shown.
    `also`: ids shown beyond that, and ids of entries put there by hand. `unusable`: ids that could not be
    read; they are tried again.
    """

    through: Mapping[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()

    def covers(self, name: EntryName) -> bool:
        """Return whether an entry was shown already."""
        if name.id in self.also:
            return True
        through = max(self.through.get(name.author, -1), self.through.get("*", -1))
        return name.tick <= through and name.is_derived and name.id not in self.unusable

    def tick_of(self, author: str) -> int:
        """Return the tick up to which everything of this author was shown; -1 when nothing was."""
        return max(self.through.get(author, -1), self.through.get("*", -1))

    def as_json(self) -> dict[str, Any]:
        """Return the mark for the ledger."""
        plain: dict[str, Any] = {"through": dict(sorted(self.through.items())), "also": sorted(self.also)}
        if self.unusable:
            plain["unusable"] = sorted(self.unusable)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReadMark:
        """Return the mark that `as_json` described."""
        return cls(
            dict(plain.get("through", {})),
            frozenset(plain.get("also", ())),
            frozenset(plain.get("unusable", ())),
        )


@dataclass(frozen=True)
class Inbox:
    """What one turn is shown. `waiting` unread entries did not fit; `mark` holds once it is committed."""

    unread: tuple[OutboxEntry, ...]
    known: tuple[OutboxEntry, ...]
    own: tuple[OutboxEntry, ...]
    waiting: int
    mark: ReadMark
    problems: tuple[Problem, ...] = ()


@dataclass  # made for every turn, and a frozen one takes three times as long
class View:
    """What one reader may see in one tick; how much of that it is shown is `assemble`'s to say.

    `patterns`: its `read_outboxes`. `past`: the outboxes it may read, or, under "*", the pile of all; `own`
    is its own. `today` and `own_today`: what was written in this tick, in order. `key` is the order of all;
    `read` returns an entry, what is wrong with it, or None when it is gone.
    """

    reader: str
    patterns: Sequence[str]
    agents: frozenset[str]
    tick: int
    past: Mapping[str, Shelf]
    own: Outbox
    today: Sequence[EntryName]
    own_today: Sequence[EntryName]
    key: Callable[[EntryName], Any]
    outbox_of: Callable[[str], Outbox]
    read: Callable[[EntryName], OutboxEntry | ConfigError | None]

    def fresh(self, mark: ReadMark) -> Iterator[EntryName]:
        """Yield what has not been shown, oldest first. What was shown long ago is not walked over."""
        past = self._merged([stream for pattern in self.past for stream in self._unshown(pattern, mark)])
        return chain(past, filterfalse(mark.covers, self.today))

    def count_fresh(self, mark: ReadMark) -> int:
        """Return how many `fresh` would yield, without walking over them."""
        count = len(self.today) - len(self._covered_today(mark))
        covered: set[EntryName] = set()
        for pattern, shelf in self.past.items():
            after = mark.tick_of(pattern)
            first, last = shelf.between(after, self.tick - 1)
            count += last - first
            if pattern == "*" and self.reader in self.agents:
                first, last = self.own.between(after, self.tick - 1)
                count -= last - first
            count += sum(not mark.covers(name) for name in self._exceptions(shelf, mark, after))
            covered.update(self._named(shelf, mark.also, after))
        covered.update(name for author in self._singled_out(mark) for name in self._shown_of(author, mark))
        return count - len(covered)

    def known(self, mark: ReadMark) -> Iterator[EntryName]:
        """Yield what has been shown, newest first."""
        streams = [stream for pattern in self.past for stream in self._shown(pattern, mark)]
        return chain(reversed(self._covered_today(mark)), self._merged(streams, reverse=True))

    def mark_after(
        self, mark: ReadMark, shown: set[EntryName], bad: set[EntryName], *, is_all: bool
    ) -> ReadMark:
        """Return the mark of a reader that has been shown these names, and of which these are unusable.

        `is_all`: nothing else was unread.
        """
        gone = shown | bad
        through = dict.fromkeys(self.patterns, self.tick - 1)
        for pattern in () if is_all else self.patterns:
            left = (
                name.tick
                for name in self._unshown_in_order(pattern, mark)
                if name.is_derived and name not in gone
            )
            through[pattern] = next(left, self.tick) - 1
        after = ReadMark(through)
        kept = {name.id for name in chain(shown, self._still_known(mark, after)) if not after.covers(name)}
        return ReadMark(through, frozenset(kept), frozenset(name.id for name in bad))

    def own_newest(self) -> Iterator[EntryName]:
        """Yield the reader's own entries, newest first."""
        names = reversed(self.own.names)
        return chain(reversed(self.own_today), (name for name in names if name.tick < self.tick))

    def _still_known(self, mark: ReadMark, after: ReadMark) -> Iterator[EntryName]:
        """Yield what was shown and the ticks of the mark after this turn may not cover."""
        yield from self._covered_today(mark)
        for pattern, shelf in self.past.items():
            yield from self._named(shelf, mark.also, after.tick_of(pattern))
            yield from (name for name in shelf.by_hand if self._is_past(name) and name.id in mark.also)
            lapsed = self._between(shelf, after.tick_of(pattern), mark.tick_of(pattern))
            yield from filter(mark.covers, lapsed)
        for author in self._singled_out(mark):
            lapsed = self._between(self.outbox_of(author), after.tick_of(author), mark.tick_of(author))
            yield from filter(mark.covers, lapsed)

    def _covered_today(self, mark: ReadMark) -> list[EntryName]:
        if max(mark.through.values(), default=-1) >= self.tick:  # the counter was moved back by hand
            return [name for name in self.today if mark.covers(name)]
        return [name for name in self.today if name.id in mark.also] if mark.also else []

    def _unshown(self, pattern: str, mark: ReadMark) -> list[Iterable[EntryName]]:
        """Return streams that hold, each in order, what one of `past` has that was not shown."""
        shelf, after = self.past.get(pattern) or self.outbox_of(pattern), mark.tick_of(pattern)
        newer = self._between(shelf, after, self.tick - 1)
        if self._singled_out(mark):
            newer = filterfalse(mark.covers, newer)
        elif also := mark.also:
            newer = (name for name in newer if name.id not in also)
        others = [name for name in self._exceptions(shelf, mark, after) if not mark.covers(name)]
        return [newer, others] if others else [newer]

    def _shown(self, pattern: str, mark: ReadMark) -> Iterator[Iterable[EntryName]]:
        """Yield streams that hold what one of `past` has that was shown, each newest first."""
        shelf, names = self.past[pattern], self.past[pattern].derived
        first, last = shelf.between(min(mark.tick_of(pattern), self.tick - 1), self.tick - 1)
        older = self._of_others(map(names.__getitem__, range(first - 1, -1, -1)))
        newer = self._of_others(map(names.__getitem__, range(last - 1, first - 1, -1)))
        yield chain(filter(mark.covers, newer), filter(mark.covers, older) if mark.unusable else older)
        if shelf.by_hand:
            yield (name for name in reversed(shelf.by_hand) if self._is_past(name) and mark.covers(name))

    def _unshown_in_order(self, pattern: str, mark: ReadMark) -> Iterable[EntryName]:
        if pattern not in self.past and not self._sees(pattern):
            return ()
        return self._merged(self._unshown(pattern, mark))

    def _merged(
        self, streams: Sequence[Iterable[EntryName]], *, reverse: bool = False
    ) -> Iterable[EntryName]:
        return streams[0] if len(streams) == 1 else merge(*streams, key=self.key, reverse=reverse)

    def _of_others(self, names: Iterable[EntryName]) -> Iterable[EntryName]:
        """Leave out the reader's own entries, which only the pile of all has."""
        return (name for name in names if name.author != self.reader) if "*" in self.past else names

    def _exceptions(self, shelf: Shelf, mark: ReadMark, after: int) -> list[EntryName]:
        """Return entries that the tick of a mark says nothing of: by hand, or unusable before; in order."""
        by_hand = [name for name in shelf.by_hand if self._is_past(name)]
        unusable = [name for name in self._named(shelf, mark.unusable, -1) if name.tick <= after]
        return sorted([*by_hand, *unusable], key=self.key) if unusable else by_hand

    def _between(self, shelf: Shelf, after: int, until: int) -> Iterable[EntryName]:
        """Return derived names of earlier ticks, after one and up to another."""
        if after >= until:
            return ()
        first, last = shelf.between(after, min(until, self.tick - 1))
        return self._of_others(map(shelf.derived.__getitem__, range(first, last)))

    def _named(self, shelf: Shelf, ids: frozenset[str], after: int) -> list[EntryName]:
        tick, reader = self.tick, self.reader
        named = shelf.named(ids, after) if ids else ()
        return [name for name in named if name.tick < tick and name.author != reader]

    def _is_past(self, name: EntryName) -> bool:
        return name.tick < self.tick and name.author != self.reader

    def _singled_out(self, mark: ReadMark) -> list[str]:
        """Return the authors of whom a reader of all was shown more than of the others."""
        return [author for author in mark.through if self._sees(author)]

    def _shown_of(self, author: str, mark: ReadMark) -> Iterator[EntryName]:
        shown = self._between(self.outbox_of(author), mark.tick_of("*"), mark.tick_of(author))
        return filter(mark.covers, shown)

    def _sees(self, author: str) -> bool:
        """Return whether a reader of all sees this one."""
        return "*" in self.past and author in self.agents and author != self.reader


def assemble(view: View, mark: ReadMark, *, limit: int, chars: int) -> Inbox:
    """Return what a turn is shown: unread oldest first, then the newest it knows, then its own."""
    unread = _take(view, view.fresh(mark), limit, chars)
    shown = set(unread.names)
    left = 0 if unread.is_all else view.count_fresh(mark) - len(shown) - len(unread.bad)
    room = 0 if left else unread.room
    known = _take(view, view.known(mark) if room else (), limit - len(unread.names), room)
    own = _take(view, islice(view.own_newest(), OWN_ENTRIES_SHOWN), OWN_ENTRIES_SHOWN, known.room)
    return Inbox(
        unread=tuple(unread.entries),
        known=tuple(reversed(known.entries)),
        own=tuple(reversed(own.entries)),
        waiting=left,
        mark=view.mark_after(mark, shown, unread.bad, is_all=unread.is_all),
        problems=tuple(unread.problems),
    )


class _Taken(NamedTuple):
    """Entries that were read, those that are unusable and why, and the room that is left.

    `is_all`: each name was one or the other.
    """

    names: list[EntryName]
    entries: list[OutboxEntry]
    bad: set[EntryName]
    problems: list[Problem]
    room: int
    is_all: bool


def _take(view: View, names: Iterable[EntryName], limit: int, chars: int) -> _Taken:
    """Read entries until count or room is used up; the first is taken whatever its size."""
    taken: list[EntryName] = []
    entries: list[OutboxEntry] = []
    bad: set[EntryName] = set()
    problems: list[Problem] = []
    is_all, read = True, view.read
    for name in names:
        if limit <= 0:
            is_all = False
            break
        entry = read(name)
        if isinstance(entry, OutboxEntry):
            size = entry.payload_chars
            if size > chars and (taken or chars <= 0):
                is_all = False
                break
            taken.append(name)
            entries.append(entry)
            chars -= size
            limit -= 1
        elif entry is None:
            is_all = False
        else:
            bad.add(name)
            problems.extend(entry.problems)
    return _Taken(taken, entries, bad, problems, max(chars, 0), is_all)
