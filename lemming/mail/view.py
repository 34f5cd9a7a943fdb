"""What one reader may see in one tick, and what of it is new to it. Names only: no entry is opened here.

Rules: docs/concepts.md, "What a turn sees". What was shown long ago is not walked over, and a reader of all
looks at every author only where what is oldest does not fill its inbox.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, filterfalse, islice
from typing import Any, Protocol

from lemming.journal.read_mark import ReadMark
from lemming.mail.index import Found, Outbox, Shelf
from lemming.messages import EntryName, OutboxEntry


class Room(Protocol):
    """What all readers of a tick share: `lemming.mail.visibility` has it."""

    tick: int
    agents: frozenset[str]
    named: frozenset[str]
    """The agents there are, broken ones too: a target names one of them, or it names nobody."""
    persons: frozenset[str]

    def key(self, name: EntryName) -> Any:
        """Return the key of the order of all entries."""
        ...

    def outbox(self, author: str) -> Outbox:
        """Return what was in an outbox when it was first looked at in this tick."""
        ...

    def read(self, names: Iterable[EntryName]) -> Iterator[tuple[EntryName, Found]]:
        """Yield each name with what is found under it."""
        ...


class View:
    """What one reader may see in one tick, and what of it the `mark` says was shown.

    How much of it a turn is shown is `assemble`'s to say. `patterns`: the reader's `read_outboxes`. `past`:
    the outboxes it may read, or, under "*", the pile of all. `today`: what was written in this tick and it
    may see, in order.
    """

    def __init__(
        self,
        room: Room,
        reader: str,
        mark: ReadMark,
        patterns: Sequence[str],
        past: Mapping[str, Shelf],
        today: Sequence[EntryName],
    ) -> None:
        self.room, self.reader, self.mark, self.patterns, self.past = room, reader, mark, patterns, past
        self.tick, self.today, self.is_of_all = room.tick, today, "*" in past
        # The authors of whom a reader of all was shown more than of the others.
        self._singled_out = (
            [author for author in mark.through if author in room.agents and author != reader]
            if self.is_of_all
            else ()
        )
        self._covered_today = self._find_covered_today() if today else ()

    def fresh(self) -> Iterator[EntryName]:
        """Yield what has not been shown, oldest first. What was shown long ago is not walked over."""
        streams: list[Iterable[EntryName]] = []
        for pattern, shelf in self.past.items():
            streams += self._unshown(shelf, self.mark.tick_of(pattern))
        today = filterfalse(self.mark.covers, self.today) if self._covered_today else self.today
        return chain(self._merged(streams), today)

    def fresh_by_turns(self) -> Iterator[EntryName]:
        """Yield what `fresh` does, but everybody's oldest before anybody's second; persons go first."""
        told: set[EntryName] = set()
        if self.is_of_all:
            for name in self._first_round():
                told.add(name)
                yield name
        persons, key = self.room.persons, self.room.key
        waiting = [(name, stream) for stream in self._fresh_by_author() for name in islice(stream, 1)]
        while waiting:
            waiting.sort(key=lambda each: (each[0].author not in persons, key(each[0])))
            yield from [name for name, _ in waiting if name not in told]
            waiting = [(name, stream) for _, stream in waiting for name in islice(stream, 1)]

    def _first_round(self) -> Iterator[EntryName]:
        """Yield everybody's oldest, or the first of them: as far as that takes no look at every author.

        Most often an inbox is full by then.
        """
        persons = self.room.persons
        of_persons = map(self._fresh_of, filter(self._sees, persons))
        today = [name for name in self.today if name.author in persons and not self.mark.covers(name)]
        oldest: dict[str, EntryName] = {}
        for name in chain(*of_persons, today):
            oldest.setdefault(name.author, name)
        yield from sorted(oldest.values(), key=self.room.key)
        seen, patience = {*persons}, len(self.room.agents)
        for name in self.fresh():
            if name.author not in seen:
                seen.add(name.author)
                yield name
            elif (patience := patience - 1) < 0:
                return

    def has_unread(self) -> bool:
        """Return whether there is anything to show as new: what cannot be read is, until that is known."""
        unusable = self.mark.unusable
        return any(
            found.is_new_to(self.reader, self.room.named)
            if isinstance(found, OutboxEntry)
            else found is None or name.identity not in unusable
            for name, found in self.room.read(self.fresh())
        )

    def count_fresh(self) -> int:
        """Return how many `fresh` would yield, without walking over them."""
        mark = self.mark
        count = len(self.today) - len(self._covered_today)
        covered: set[EntryName] = set()
        for pattern, shelf in self.past.items():
            after = mark.tick_of(pattern)
            first, last = shelf.between(after, self.tick - 1)
            count += last - first
            if pattern == "*" and self.reader in self.room.agents:
                first, last = self.room.outbox(self.reader).between(after, self.tick - 1)
                count -= last - first
            if shelf.by_hand or mark.unusable:
                count += sum(not mark.covers(name) for name in self._exceptions(shelf, after))
            covered.update(self._named(shelf, mark.also, after))
        return count - len(covered) - self._count_ahead(covered)

    def _count_ahead(self, counted: set[EntryName]) -> int:
        """Return how many entries the mark covers beyond the tick that holds for all, less those counted."""
        if not self._singled_out:
            return 0
        through, yesterday, after = self.mark.through, self.tick - 1, self.mark.tick_of("*")
        count = -sum(name.tick <= through.get(name.author, -1) for name in counted)
        for author in self._singled_out:
            if (until := through[author]) > after:
                first, last = self.room.outbox(author).between(after, min(until, yesterday))
                count += last - first
        unusable = self._named(self.past["*"], self.mark.unusable, after)
        return count - sum(
            not self.mark.covers(name) for name in unusable if name.tick <= through.get(name.author, -1)
        )

    def known(self, passed: set[EntryName]) -> Iterator[EntryName]:
        """Yield what has been shown, and what is new to others only, newest first."""
        shown = self._known()
        if not passed:
            return shown
        key = self.room.key
        return merge(shown, sorted(passed, key=key, reverse=True), key=key, reverse=True)

    def _known(self) -> Iterator[EntryName]:
        streams: list[Iterable[EntryName]] = []
        for pattern, shelf in self.past.items():
            streams += self._shown(shelf, self.mark.tick_of(pattern))
        return chain(reversed(self._covered_today), self._merged(streams, reverse=True))

    def mark_after(self, shown: set[EntryName], bad: set[EntryName], *, is_all: bool) -> ReadMark:
        """Return the mark of a reader that knows these names, and of which these are unusable.

        `is_all`: nothing else was unread.
        """
        through = dict.fromkeys(self.patterns, self.tick - 1)
        if not is_all:
            known = shown | bad
            for pattern in self.patterns:
                through[pattern] = self._through(pattern, known)
            if self.is_of_all:  # else each entry of those who write little would be remembered by itself
                for author, tick in self._through_each({name.author for name in shown}, known):
                    if author not in through and tick > through["*"]:
                        through[author] = tick
        after = ReadMark(through)
        kept = [name for name in chain(shown, self._still_known(after)) if not after.covers(name)]
        return ReadMark.of(through, kept, bad)

    def _through(self, pattern: str, known: set[EntryName]) -> int:
        """Return the tick up to which nothing is left when these are known."""
        names = self._unshown_in_order(pattern)
        return next((name.tick for name in names if name.is_derived and name not in known), self.tick) - 1

    def _through_each(self, authors: set[str], known: set[EntryName]) -> Iterator[tuple[str, int]]:
        """Yield what `_through` says of these authors and of all that the mark singles out."""
        mark, yesterday, after = self.mark, self.tick - 1, self.mark.tick_of("*")
        odd = self._named(self.past["*"], mark.also | mark.unusable, -1)
        careful = {name.author for name in chain(known, odd)}
        for author in {*self._singled_out, *authors}:
            if author in careful:
                if self._sees(author):
                    yield author, self._through(author, known)
                continue
            derived = self.room.outbox(author).derived  # nothing is new but what comes after its tick
            first = bisect_left(derived, (max(mark.through[author], after) + 1,))
            is_left = first < len(derived) and derived[first].tick <= yesterday
            yield author, derived[first].tick - 1 if is_left else yesterday

    def _find_covered_today(self) -> Sequence[EntryName]:
        mark = self.mark
        if not (mark.also or mark.by_hand) and max(mark.through.values(), default=-1) < self.tick:
            return ()  # else the counter was moved back by hand
        return [name for name in self.today if mark.covers(name)]

    def _fresh_by_author(self) -> Iterator[Iterator[EntryName]]:
        """Yield, for each author, a stream of what has not been shown of it, oldest first."""
        today: dict[str, list[EntryName]] = {}
        for name in filterfalse(self.mark.covers, self.today):
            today.setdefault(name.author, []).append(name)
        authors = self.room.agents - {self.reader} if self.is_of_all else self.past.keys()
        for author in authors:
            yield chain(self._fresh_of(author), today.pop(author, ()))
        yield from map(iter, today.values())

    def _fresh_of(self, author: str) -> Iterable[EntryName]:
        """Return what of an author's earlier ticks has not been shown, oldest first."""
        return self._merged(self._unshown(self.room.outbox(author), self.mark.tick_of(author)))

    def _still_known(self, after: ReadMark) -> list[EntryName]:
        """Return what was shown and the ticks of the mark after this turn may not cover."""
        mark, known = self.mark, [*self._covered_today]
        for pattern, shelf in self.past.items():
            until = after.tick_of(pattern)
            known += self._named(shelf, mark.also, until)
            if shelf.by_hand:
                known += [name for name in shelf.by_hand if self._is_past(name) and mark.covers(name)]
            known += self._covered(shelf, until, mark.tick_of(pattern))
        for_all, of_one = after.tick_of("*"), after.through.get
        for author in self._singled_out:
            until = mark.through[author]
            if until > for_all and until > (begin := of_one(author, -1)):
                known += self._covered(self.room.outbox(author), max(begin, for_all), until)
        return known

    def _covered(self, shelf: Shelf, after: int, until: int) -> Iterable[EntryName]:
        """Return what the mark covers of the ticks that come after one and up to another."""
        return filter(self.mark.covers, self._between(shelf, after, until)) if after < until else ()

    def _unshown(self, shelf: Shelf, after: int) -> list[Iterable[EntryName]]:
        """Return streams that hold, each in order, what a shelf has that was not shown.

        What comes after this tick of the mark was not, but for a few.
        """
        mark, also, newer = self.mark, self.mark.also, self._between(shelf, after, self.tick - 1)
        if self._singled_out:
            ahead, unusable = mark.through.get, mark.unusable
            newer = (  # what `mark.covers` says, of what comes after the tick that holds for all
                name
                for name in newer
                if (name.tick > ahead(name.author, -1) or name.id in unusable) and name.id not in also
            )
        elif also:
            newer = (name for name in newer if name.id not in also)
        if not (shelf.by_hand or mark.unusable):
            return [newer]
        return [newer, [name for name in self._exceptions(shelf, after) if not mark.covers(name)]]

    def _shown(self, shelf: Shelf, after: int) -> list[Iterable[EntryName]]:
        """Return streams that hold what a shelf has that was shown, each newest first."""
        mark, names, yesterday = self.mark, shelf.derived, self.tick - 1
        first, last = shelf.between(min(after, yesterday), yesterday)
        newer = filter(mark.covers, self._of_others(reversed(names[first:last])))
        older = self._of_others(islice(reversed(names), len(names) - first, None))
        derived = chain(newer, filter(mark.covers, older) if mark.unusable else older)
        if not shelf.by_hand:
            return [derived]
        return [derived, filter(mark.covers, filter(self._is_past, reversed(shelf.by_hand)))]

    def _unshown_in_order(self, pattern: str) -> Iterable[EntryName]:
        if pattern not in self.past and not self._sees(pattern):
            return ()
        shelf = self.past.get(pattern) or self.room.outbox(pattern)
        return self._merged(self._unshown(shelf, self.mark.tick_of(pattern)))

    def _merged(
        self, streams: Sequence[Iterable[EntryName]], *, reverse: bool = False
    ) -> Iterable[EntryName]:
        return streams[0] if len(streams) == 1 else merge(*streams, key=self.room.key, reverse=reverse)

    def _of_others(self, names: Iterable[EntryName]) -> Iterable[EntryName]:
        """Leave out the reader's own entries, which only the pile of all has."""
        return (name for name in names if name.author != self.reader) if self.is_of_all else names

    def _exceptions(self, shelf: Shelf, after: int) -> list[EntryName]:
        """Return entries that the tick of a mark says nothing of: by hand, or unusable before; in order."""
        by_hand = [name for name in shelf.by_hand if self._is_past(name)]
        unusable = [name for name in self._named(shelf, self.mark.unusable, -1) if name.tick <= after]
        return sorted([*by_hand, *unusable], key=self.room.key) if unusable else by_hand

    def _between(self, shelf: Shelf, after: int, until: int) -> Iterable[EntryName]:
        """Return derived names of earlier ticks, after one and up to another."""
        first, last = shelf.between(after, min(until, self.tick - 1))
        return self._of_others(map(shelf.derived.__getitem__, range(first, last)))

    def _named(self, shelf: Shelf, ids: frozenset[str], after: int) -> list[EntryName]:
        """Return derived names with these ids, of earlier ticks, after one."""
        tick, reader = self.tick, self.reader
        if not ids or after >= tick - 1:
            return []
        return [name for name in shelf.named(ids, after) if name.tick < tick and name.author != reader]

    def _is_past(self, name: EntryName) -> bool:
        return name.tick < self.tick and name.author != self.reader

    def _sees(self, author: str) -> bool:
        """Return whether a reader of all sees this one."""
        return self.is_of_all and author in self.room.agents and author != self.reader
