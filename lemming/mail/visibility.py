"""Who can see what in one tick: every outbox looked at once, and what the turns of the tick add to it."""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from lemming.agents import Agent
from lemming.errors import Problem
from lemming.files.descriptors import Around
from lemming.files.stamps import Look
from lemming.journal.read_mark import ReadMark
from lemming.mail.inbox import OWN_ENTRIES_SHOWN, Inbox, assemble
from lemming.mail.index import Found, Outbox, Pile, Shelf, Visit, in_tick_order, outboxes_of
from lemming.mail.misplaced import about_outbox
from lemming.mail.view import View
from lemming.messages import EntryName, OutboxEntry


class Mailroom:
    """Who can see what in one tick. Outboxes are looked at once, when the tick begins.

    Used by one thread at a time; a reader's authors that go before it have had their turn.
    """

    def __init__(
        self,
        base: Path,
        *,
        tick: int,
        order: Sequence[str],
        firing: Iterable[str],
        visibility: Literal["order", "tick"] = "order",
        persons: Iterable[str] = (),
        broken: Iterable[str] = (),
    ) -> None:
        self.tick = tick
        self._outboxes, self._visibility = outboxes_of(base), visibility
        self.agents, self._order = frozenset(order), order
        self.persons, self.named = frozenset(persons), self.agents.union(broken)
        self._rank = {name: place for place, name in enumerate(order)}
        self._firing = {name: place for place, name in enumerate(firing)}
        places = [self._rank.get(name, -1) for name in self._firing]
        self._is_in_order = places == sorted(places)  # not so after an edit in an interrupted tick
        self._listed: dict[str, Outbox] = {}
        self._visit = Visit(tick)
        self._pile: Pile | None = None
        self._today: dict[str, list[EntryName]] = {}
        self._today_in_order: list[EntryName] = []
        self._today_of_others: list[EntryName] = []

    def open_for(self, readers: Iterable[Agent]) -> None:
        """List the outboxes that these readers may read, now, before anybody writes."""
        wanted: dict[str, None] = {}
        for reader in readers:
            wanted[reader.name] = None
            for pattern in reader.permissions.read_outboxes:
                wanted[pattern] = None
        if "*" in wanted:
            self.pile()
        for author in wanted:
            if author in self.agents and author not in self._listed:
                self._look_at(author)

    def add(self, author: str, entries: Iterable[OutboxEntry]) -> None:
        """Take note of what a turn of this tick wrote."""
        for number, entry in enumerate(entries):
            name = EntryName(entry.tick, number, entry.id, author)
            self._visit.written[name] = entry
            self._note_today(name)

    def written(
        self, number: int, entry: OutboxEntry, digest: str, file: os.stat_result | None, around: Around
    ) -> None:
        """Take note that a turn's entry is on the disk now; `number` is its place among the turn's.

        The rest is what `fs.publish_seen` said.
        """
        name = EntryName(entry.tick, number, entry.id, entry.agent)
        self._outboxes.written(name, entry, digest, file, around)

    def authors_of(self, reader: Agent) -> frozenset[str]:
        """Return whom an agent may read, by name."""
        return self.agents.intersection(reader.permissions.read_outboxes) - {reader.name}

    def outbox(self, author: str) -> Outbox:
        """Return what was in an outbox when it was first looked at in this tick."""
        listed = self._listed.get(author)
        return self._look_at(author) if listed is None else listed

    def pile(self) -> Pile:
        """Return what was in all agents' outboxes when they were first looked at in this tick."""
        if self._pile is None:
            listed = {author: self.outbox(author) for author in self._order}
            self._pile = self._outboxes.pile(self._order, listed)
        return self._pile

    def shelves_of(self, reader: Agent) -> list[str]:
        """Return what to ask `shelf` for to see all that an agent may read: "*", or names."""
        return ["*"] if "*" in reader.permissions.read_outboxes else sorted(self.authors_of(reader))

    def shelf(self, pattern: str) -> Shelf:
        """Return what was in an outbox when the tick began; in all of them for "*"."""
        return self.pile() if pattern == "*" else self.outbox(pattern)

    def looks_at(self, patterns: set[str], root: int) -> list[Look] | None:
        """Return what tells whether these shelves are as they were; None when that is in doubt.

        `root` is the organisation's folder, opened.
        """
        looks = []
        for author in self._order if "*" in patterns else patterns:
            if not (look := self._outboxes.look(author, self.outbox(author), root)):
                return None
            looks.append(look)
        return looks

    def misplaced(self) -> Iterator[Problem]:
        """Yield warnings about files in the outboxes that were looked at which nobody is shown."""
        for author, outbox in self._listed.items():
            yield from about_outbox(author, outbox, self._outboxes.strays(author), self.tick)

    def looks_at_fresh(self, reader: Agent, mark: ReadMark) -> list[Look] | None:
        """Return what tells whether what the agent was not shown is as it was read; None when in doubt.

        An agent that has nothing unread may still have this: entries that are new to others only.
        """
        return self._outboxes.looks_of(self._view(reader, mark).fresh())

    def has_unread(self, reader: Agent, mark: ReadMark) -> bool:
        """Return whether there is anything to show that the agent has not been shown."""
        return self._view(reader, mark).has_unread()

    def inbox(self, reader: Agent, mark: ReadMark, *, limit: int, chars: int) -> Inbox:
        """Assemble what a turn is shown, and the mark that holds once the turn is committed."""
        own_newest = self._own_newest(reader.name)
        return assemble(self._view(reader, mark), own_newest, limit=limit, chars=chars)

    def read(self, names: Iterable[EntryName]) -> Iterator[tuple[EntryName, Found]]:
        """Yield each name with its entry, or what is wrong with its file, or None when there is none."""
        return self._outboxes.read(names, self._visit)

    def key(self, name: EntryName) -> tuple[int, int, int, str]:
        """Return the key by which entries are sorted."""
        return in_tick_order(self._rank, name)

    def _look_at(self, author: str) -> Outbox:
        outbox = self._outboxes.outbox(author)
        if outbox.last_tick >= self.tick:
            self._note_listed(author, outbox)
        self._listed[author] = outbox
        return outbox

    def _view(self, reader: Agent, mark: ReadMark) -> View:
        name, patterns = reader.name, reader.permissions.read_outboxes
        past: dict[str, Shelf]
        if "*" in patterns:
            past = {"*": self.pile()}
            today = self._today_for_reader_of_all(name)
        else:
            past = {author: self.outbox(author) for author in patterns if author in self.agents}
            past.pop(name, None)
            today = self._today_of(past, name) if self._today else []
        return View(self, name, mark, patterns, past, today)

    def _own_newest(self, author: str) -> list[EntryName]:
        """Return an author's newest entries, as many as its own turn is shown, newest first."""
        past = self.outbox(author).names
        if past and past[-1].tick >= self.tick:
            past = self.outbox(author).older_than(self.tick)
        newest = [*past[-OWN_ENTRIES_SHOWN:], *self._today.get(author, ())]
        return newest[: -OWN_ENTRIES_SHOWN - 1 : -1]

    def _today_of(self, authors: Iterable[str], reader: str) -> Sequence[EntryName]:
        """Return the entries of this tick that a reader of these authors may see, in order."""
        place = self._firing.get(reader, len(self._firing))
        found = [self._today[name] for name in authors if name in self._today and self._shows(name, place)]
        return found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=self.key)

    def _today_for_reader_of_all(self, reader: str) -> Sequence[EntryName]:
        place = self._firing.get(reader, len(self._firing))
        earlier = self._today_in_order[: bisect_left(self._today_in_order, place, key=self._turn_of)]
        others = [name for name in self._today_of_others if name.author != reader]
        is_in_order = self._is_in_order and not others
        return earlier if is_in_order else sorted([*earlier, *others], key=self.key)

    def _turn_of(self, name: EntryName) -> int:
        return self._firing[name.author]

    def _shows(self, author: str, place: int) -> bool:
        """Return whether who has this place in the order may see what an author wrote in this tick."""
        if author not in self._firing:
            return True
        return self._visibility == "order" and self._firing[author] < place

    def _note_today(self, name: EntryName) -> None:
        author = name.author
        if author not in self._firing:
            self._today_of_others.append(name)
        elif self._visibility == "order":
            self._insert_in_order(name)
        insort(self._today.setdefault(author, []), name)

    def _insert_in_order(self, name: EntryName) -> None:
        names, turn_of = self._today_in_order, self._turn_of
        if not names or turn_of(names[-1]) < turn_of(name):  # as when one takes its turn after the other
            names.append(name)
        else:
            insort(names, name, key=lambda name: (turn_of(name), self.key(name)))

    def _note_listed(self, author: str, outbox: Outbox) -> None:
        """Take note of entries of this tick that were there when it began.

        Those that a turn of the author wrote, in an attempt that was interrupted, are added when that turn
        commits.
        """
        for name in reversed(outbox.names):
            if name.tick < self.tick:
                break
            if name.tick == self.tick and not (author in self._firing and name.is_derived):
                self._note_today(name)
