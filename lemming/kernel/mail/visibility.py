"""Who sees which entries in one tick, and what of them is new to one reader. Rules: docs/concepts.md.

Every outbox is looked at once, as the tick begins; its turns add what they write. Reading names in order and
bisecting, nobody walks over what was shown long ago, and a reader of all looks at every author only where
what is oldest does not fill its inbox.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, filterfalse, islice
from typing import Any, Literal

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.files.descriptors import Around
from lemming.kernel.files.stamps import Look
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.mail.index import EntryIndex, Found, Names, in_tick_order
from lemming.kernel.mail.misplaced import misplaced_files
from lemming.kernel.messages import EntryName, OutboxEntry, may_be_of_a_turn, name_of_entry, names_of
from lemming.kernel.org.organisation import Organisation

OWN_ENTRIES_SHOWN = 3
NONE: Mapping[str, Any] = {}


class Mail:
    """The entries as the turns of one tick see them.

    Used by one thread at a time; a reader's authors that go before it have had their turn.
    """

    def __init__(
        self,
        org: Organisation,
        *,
        tick: int,
        order: Sequence[str],
        firing: Iterable[str],
        visibility: Literal["order", "tick"] = "order",
        persons: Iterable[str] = (),
        broken: Iterable[str] = (),
        at: str = "",
        callers: Iterable[str] = (),
        askers: Mapping[str, frozenset[str]] = NONE,
        agents: Mapping[str, Agent] = NONE,
    ) -> None:
        self.tick, self.at = tick, at
        self.hidden: frozenset[EntryName] = frozenset()  # what waits for a moment that has not come
        self.changing: set[str] = set()  # to whom time alone may bring something new
        self._callers, self._askers, self.resumes = frozenset(callers), askers, agents
        self.agents, self._order, self.persons = frozenset(order), order, frozenset(persons)
        self.named = self.agents.union(broken)  # a target names one of them, or it names nobody
        self.org, self._index, self._shows_turns = org, org.own(EntryIndex), visibility == "order"
        self.at_hand = self._index.entries.get  # most that is read was read before
        self.rank = {name: place for place, name in enumerate(order)}
        self._firing = {name: place for place, name in enumerate(firing)}
        self._past: dict[str, Names] = {}
        self.listed: dict[str, Names] = {}  # as each outbox was when it was looked at
        self._readable: dict[str, dict[str, Names]] = {}
        self._everybody: Names | None = None
        self._to_come: dict[str, list[EntryName]] = {}
        self._today: list[EntryName] = []
        self._today_of: dict[str, list[EntryName]] = {}
        self._written: dict[EntryName, OutboxEntry] = {}  # their files may not be there yet
        self._unusable: dict[EntryName, Found] = {}

    def open_for(self, readers: Iterable[Agent]) -> None:
        """Look at the outboxes that these readers may read, now, before anybody writes."""
        for reader in readers:
            self.past(reader.name)
            self.readable(reader)

    def add(self, author: str, entries: Iterable[OutboxEntry], turn: int = 0) -> None:
        """Let the turns that come after see what a turn wrote."""
        for number, entry in enumerate(entries):
            if entry.not_before <= self.at:
                name = name_of_entry(entry, number, turn)
                self._written[name] = entry
                self._add_today(name)

    def written(self, number: int, entry: OutboxEntry, around: Around, turn: int = 0) -> None:
        """Take note that a turn's entry is on the disk now; `number` is its place among the turn's."""
        self._index.written(name_of_entry(entry, number, turn), entry, around)

    def readable(self, reader: Agent) -> Mapping[str, Names]:
        """Return what an agent may read of earlier ticks, by author; under "*" that of all, in order."""
        patterns, name = reader.permissions.read_outboxes, reader.name
        if "*" in patterns:
            return {"*": self.everybody}
        if name not in self._readable:
            authors = [it for it in sorted(patterns) if it in self.agents and it != name]
            self._readable[name] = {author: self.past(author) for author in authors}
        return self._readable[name]

    def past(self, author: str) -> Names:
        """Return what was in an outbox, of earlier ticks, when it was first looked at in this one; "*": all.

        The very same value as in another tick when nothing is new.
        """
        if author == "*":
            return self.everybody
        if (past := self._past.get(author)) is None:
            names = self._shown(author, self.listed.setdefault(author, self._index.outbox(author)))
            past = self._past[author] = names.until(self.tick - 1)
            if past is not names:
                self._note_later(author, names.all[len(past.all) :])
        return past

    def _shown(self, author: str, names: Names) -> Names:
        """Return what may be shown of these; what waits for a moment to come is hidden from everybody."""
        if names.by_hand:
            names, hidden = self._index.shown(author, names, self.at)
            self.hidden |= hidden
        return names

    def reminders(self, author: str) -> list[EntryName]:
        """Return the entries of an author for itself whose moment has come."""
        found = ((it, self.read(it)) for it in self.past(author).by_hand if self._index.moment_of(it))
        return [name for name, it in found if isinstance(it, OutboxEntry) and author in it.targets]

    def may_be_reminded(self, author: str) -> bool:
        """Return whether an author has entries of which some may wait for a moment."""
        return any(name.author == author for name in self.hidden)

    @property
    def everybody(self) -> Names:
        """What was in all outboxes, of earlier ticks, in the order of a tick: its reader's own among it."""
        if self._everybody is None:
            for author in self._order:
                self.past(author)
            names = self._shown("*", self._index.all_in_order(self._order))
            self._everybody = names.until(self.tick - 1)
        return self._everybody

    def own_newest(self, author: str) -> list[EntryName]:
        """Return an author's newest entries, as many as its own turn is shown, newest first."""
        newest = [*self.past(author).all[-OWN_ENTRIES_SHOWN:], *self._today_of.get(author, ())]
        return newest[: -OWN_ENTRIES_SHOWN - 1 : -1]

    def today(self, reader: str) -> Sequence[EntryName]:
        """Return the entries of this tick that a reader of all may see, in order."""
        place, turn_of = self._place_of(reader), self._firing.get
        return [it for it in self._today if turn_of(it.author, -1) < place and it.author != reader]

    def today_of(self, author: str, reader: str) -> Sequence[EntryName]:
        """Return an author's entries of this tick that a reader of it may see, in order."""
        names = self._today_of.get(author, ())
        return names if names and self._firing.get(author, -1) < self._place_of(reader) else ()

    def _place_of(self, reader: str) -> int:
        """Return a place in the order; the entries are visible of turns before it."""
        return self._firing.get(reader, len(self._firing)) if self._shows_turns else 0

    def is_due(self, author: str) -> bool:
        """Return whether an agent has a turn in this tick: what it writes in it is what the turn wrote."""
        return author in self._firing

    def callers_of(self, name: str) -> frozenset[str]:
        """Return those who wait for the answers to what they ask of an agent, whoever else may ask it."""
        return self._callers.union(self._askers.get(name, ())) - {name}

    def view(self, reader: Agent, mark: ReadMark) -> View:
        """Return what a reader may see now, and what of it is new to it."""
        return View(self, reader, mark)

    def read(self, name: EntryName) -> Found:
        """Return an entry, or what is wrong with its file, or None when there is none: the same all tick."""
        entry = self.at_hand(name) or self._written.get(name)
        if entry is not None:
            return entry
        if name not in self._unusable:
            found = self._index.read(name)
            if isinstance(found, OutboxEntry):
                return found
            self._unusable[name] = found
        return self._unusable[name]

    def looks_at(self, authors: Collection[str], root: int) -> list[Look] | None:
        """Return what tells whether these outboxes ("*": all) are as they were; None when that is in doubt.

        `root` is the organisation's folder, opened.
        """
        looks = []
        for author in self._order if "*" in authors else authors:
            if not (look := self._index.look(author, self.past(author), root)):
                return None
            looks.append(look)
        return looks

    def misplaced(self) -> Iterator[Problem]:
        """Yield warnings about files in the outboxes that were looked at which nobody is shown."""
        for author in self._past:
            to_come = (name.file_name for name in self._to_come.get(author, ()))
            if files := [*self._index.strays(author), *to_come]:
                yield from misplaced_files(author, files, self.tick)

    def key(self, name: EntryName) -> tuple[int, int, int, str]:
        """Return the key of the order of all entries."""
        return in_tick_order(self.rank, name)

    def _note_later(self, author: str, names: Sequence[EntryName]) -> None:
        """Take note of entries of this tick that were there when it began, and of ticks to come.

        Those that a turn of the author wrote, in an attempt that was interrupted, are added when that turn
        commits.
        """
        self._to_come[author] = [name for name in names if name.tick > self.tick]
        for name in names:
            if name.tick == self.tick and not (author in self._firing and may_be_of_a_turn(name)):
                self._add_today(name)

    def _add_today(self, name: EntryName) -> None:
        if self._today and self.key(name) < self.key(self._today[-1]):
            insort(self._today, name, key=self.key)
        else:  # as always where turns are taken one after another
            self._today.append(name)
        insort(self._today_of.setdefault(name.author, []), name)


class View:
    """What one reader may see in a tick, and what of it `mark` says was shown. Names only: none is opened."""

    def __init__(self, mail: Mail, reader: Agent, mark: ReadMark) -> None:
        self.mail, self.reader, self._tick = mail, reader.name, mail.tick
        self._patterns = reader.permissions.read_outboxes
        past = mail.readable(reader)
        self._is_of_all = "*" in past
        self._authors: Collection[str] = mail.agents if self._is_of_all else past
        self._seen_today = self._find_today(past)
        if mark.has_bare_ids:
            visible = chain(*(names.all for names in past.values()), self._seen_today)
            mark = mark.resolved(name for name in visible if name.author != self.reader)
        self.mark, self._also, self._unusable = mark, names_of(mark.also), names_of(mark.unusable)
        self._past = [(names, mark.tick_of(author)) for author, names in past.items()]
        self._ahead: dict[str, int] = {}
        if self._is_of_all:  # of whom more was shown than of the others, and the reader, who is shown nothing
            for_all = mark.tick_of("*")
            ahead = {it: tick for it, tick in mark.through.items() if tick > for_all and it in mail.agents}
            self._ahead = {**ahead, self.reader: self._tick}
        self._new_today = [*filterfalse(self._also.__contains__, self._seen_today)]
        self._late = self._find_late()

    def _find_today(self, authors: Iterable[str]) -> Sequence[EntryName]:
        if self._is_of_all:
            return self.mail.today(self.reader)
        found = [names for author in authors if (names := self.mail.today_of(author, self.reader))]
        return found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=self.mail.key)

    def fresh(self) -> Iterator[EntryName]:
        """Yield what has not been shown, oldest first. What was shown long ago is not walked over."""
        streams = [self._newer(names, after) for names, after in self._past]
        if self._late:
            streams.append(iter(self._late))
        past = streams[0] if len(streams) == 1 else merge(*streams, key=self.mail.key)
        return chain(past, self._new_today)

    def fresh_by_turns(self) -> Iterator[EntryName]:
        """Yield what `fresh` does, but everybody's oldest before anybody's second; persons go first."""
        authors, persons, key = [], self.mail.persons, self.mail.key
        for name in self._oldest_of_each():
            authors.append(name.author)
            yield name
        streams = [islice(self.fresh_of(author), 1, None) for author in authors]
        while streams:
            heads = [(name, stream) for stream in streams for name in islice(stream, 1)]
            heads.sort(key=lambda head: (head[0].author not in persons, key(head[0])))
            yield from (name for name, _ in heads)
            streams = [stream for _, stream in heads]

    def _oldest_of_each(self) -> Iterator[EntryName]:
        """Yield each author's oldest, persons first; an inbox is mostly full before all were looked at."""
        seen = {author for author in self.mail.persons if self.sees(author)}
        yield from self._oldest_of(seen)
        patience = len(self._authors)
        for name in self.fresh():
            if name.author not in seen:
                seen.add(name.author)
                yield name
            elif (patience := patience - 1) < 0:
                yield from self._oldest_of(it for it in self._authors if self.sees(it) and it not in seen)
                return

    def _oldest_of(self, authors: Iterable[str]) -> list[EntryName]:
        oldest = (name for author in authors for name in islice(self.fresh_of(author), 1))
        return sorted(oldest, key=self.mail.key)

    def count_fresh(self) -> int:
        """Return how many `fresh` would yield, without walking over them."""
        mark, past, for_all = self.mark, self.mail.past, self.mark.tick_of("*")
        count = len(self._new_today) + len(self._late)
        count += sum(len(names.all) - names.after(after) for names, after in self._past)
        for author, until in self._ahead.items():
            names = past(author)
            count -= names.after(until) - names.after(for_all)
        also = (name for name in self._also if name.tick < self._tick and self._is_there(name))
        return count - sum(name.tick > mark.tick_of(name.author) for name in also)

    def known(self, new: Collection[EntryName]) -> Iterator[EntryName]:
        """Yield all that is visible but for these, newest first."""
        if len(self._past) == 1 and not (self._is_of_all or self._late):  # what is new comes last
            names, after = self._past[0]
            newest_first, count = reversed(names.all), len(names.all) - names.after(after)
            newest = chain(reversed(self._seen_today), islice(newest_first, count))
            return chain(filterfalse(new.__contains__, newest), newest_first)
        streams = [reversed(names.all) for names, _ in self._past]
        past = streams[0] if len(streams) == 1 else merge(*streams, key=self.mail.key, reverse=True)
        visible = filterfalse(new.__contains__, chain(reversed(self._seen_today), past))
        return (it for it in visible if it.author != self.reader) if self._is_of_all else visible

    def mark_after(
        self, known: Collection[EntryName], bad: Collection[EntryName], *, is_all: bool
    ) -> ReadMark:
        """Return the mark of a reader that knows these names too, and could not read some.

        `is_all`: nothing else was new.
        """
        done = None if is_all else {*known, *bad}
        if self._is_of_all:
            through = {"*": self._through("*", done)}
            of_one = self._ahead | {it: self._through(it, done) for it in {name.author for name in known}}
            of_one.pop(self.reader)
            through.update((author, tick) for author, tick in of_one.items() if tick > through["*"])
        else:
            through = {author: self._through(author, done) for author in self._patterns}
        mark = ReadMark(through)
        beyond = [name.identity for name in known if not mark.covers(name)]
        if beyond or bad or self._also or self._unusable:
            beyond += [it.identity for it in self._also if not mark.covers(it) and self._is_kept(it)]
            bad_before = self._unusable.difference(known, self._also)
            failed = chain(bad, filter(self._is_there, bad_before))
            mark = ReadMark(through, frozenset(beyond), frozenset(name.identity for name in failed))
        return mark

    def _through(self, author: str, done: Collection[EntryName] | None) -> int:
        """Return the tick up to which nothing of an author is left ("*": of anybody; None: it is all done).

        That is this very tick where the author's turn is over and wrote something.
        """
        today = self._today_of(author)
        newest = self._tick if today and self.mail.is_due(author) else self._tick - 1
        if done is None or not (author == "*" or self.sees(author)):
            return newest
        for name in chain(self._newer(self.mail.past(author), self.mark.tick_of(author)), today):
            if name.is_derived and name not in done and name not in self._also:
                return name.tick - 1
        return newest

    def _find_late(self) -> list[EntryName]:
        """Return what ticks say was shown and was not, in order: it came late by hand, or was unreadable."""
        own = self.mail.past(self.reader)
        if not (self._unusable or own.by_hand or any(names.by_hand for names, _ in self._past)):
            return []
        by_hand = (name for names, _ in self._past for name in names.by_hand if name.author != self.reader)
        unusable = (name for name in self._unusable if name.is_derived and self._is_there(name))
        tick_of, before = self.mark.tick_of, self._tick
        late = (it for it in chain(by_hand, unusable) if it.tick < before and it.tick <= tick_of(it.author))
        found = (name for name in chain(late, self._reminders) if name not in self._also)
        return sorted(found, key=self.mail.key)

    @cached_property
    def _reminders(self) -> list[EntryName]:
        return self.mail.reminders(self.reader)

    def _newer(self, names: Names, after: int) -> Iterator[EntryName]:
        """Yield what comes after a tick and was not shown."""
        also, ahead = self._also, self._ahead
        newer = map(names.all.__getitem__, range(names.after(after), len(names.all)))
        if ahead:
            return (it for it in newer if it.tick > ahead.get(it.author, -1) and it not in also)
        return filterfalse(also.__contains__, newer) if also else newer

    def fresh_of(self, author: str, among: Names | None = None) -> Iterator[EntryName]:
        """Yield an author's entries that were not shown, oldest first; of earlier ticks those in `among`."""
        late = [name for name in self._late if name.author == author]
        if author == self.reader:
            return iter(late)
        newer = self._newer(among or self.mail.past(author), self.mark.tick_of(author))
        today = (name for name in self._today_of(author) if name not in self._also)
        return chain(merge(newer, late) if late else newer, today)

    def _today_of(self, author: str) -> Sequence[EntryName]:
        return self.mail.today_of(author, self.reader) if self.sees(author) else ()

    def sees(self, author: str) -> bool:
        """Return whether the reader may see what an author writes."""
        return author in self._authors and author != self.reader

    def _is_kept(self, name: EntryName) -> bool:
        """Return whether that an entry was shown is still worth knowing."""
        return self._is_there(name) or name in self.mail.hidden or name in self._reminders

    def _is_there(self, name: EntryName) -> bool:
        """Return whether an entry is among what is visible."""
        is_past, author = name.tick < self._tick, name.author
        return self.sees(author) and name in (self.mail.past(author) if is_past else self._seen_today)
