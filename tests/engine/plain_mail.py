"""What a turn sees, worked out the plain way: the model that `lemming.kernel.inboxes` is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.inboxes.inbox import Inbox
from lemming.kernel.inboxes.visibility import OWN_ENTRIES_SHOWN
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import EntryName, OutboxEntry, list_outbox
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_entry


class PlainMail:
    """Who can see what in one tick, every entry looked at for every reader."""

    def __init__(
        self,
        org: Organisation,
        *,
        tick: int,
        order: list[str],
        firing: Iterable[str],
        visibility: Literal["order", "tick"] = "order",
        persons: Iterable[str] = (),
        broken: Iterable[str] = (),
    ) -> None:
        self._base, self._tick, self._visibility = org.base, tick, visibility
        self._agents, self._persons, self._named = frozenset(order), {*persons}, {*order, *broken}
        self._authors: dict[str, list[str]] = {}
        self._rank = {name: rank for rank, name in enumerate(order)}
        self._firing = {name: place for place, name in enumerate(firing)}
        self._names: dict[str, list[EntryName]] = {}
        self._entries: dict[str, OutboxEntry | ConfigError | None] = {}
        self._tried: set[EntryName] = set()

    def open_for(self, readers: Iterable[Agent]) -> None:
        """List the outboxes that these readers may read, now, before anybody writes."""
        for reader in readers:
            for author in [*self.authors_of(reader), reader.name]:
                self._listing(author)

    def add(self, author: str, entries: Iterable[OutboxEntry]) -> None:
        """Take note of what a turn of this tick wrote."""
        names = self._names.setdefault(author, [])
        for index, entry in enumerate(entries):
            names.append(EntryName(entry.tick, index, entry.id, author))
            self._entries[names[-1].file] = entry

    def authors_of(self, reader: Agent) -> list[str]:
        """Return whom an agent may read, in the order of the tick."""
        if reader.name not in self._authors:
            readable = reader.permissions.read_outboxes
            names = self._agents if "*" in readable else self._agents.intersection(readable)
            self._authors[reader.name] = sorted(names - {reader.name}, key=lambda name: (self._place_of(name), name))
        return self._authors[reader.name]

    def has_unread(self, reader: Agent, mark: ReadMark) -> bool:
        """Return whether there is anything to show that the agent has not been shown."""
        return any(
            not mark.has_seen(name)
            and not (mark.is_unreadable(name) and self._is_unusable(name))
            and self._is_for(name, reader)
            for author in self.authors_of(reader)
            for name in self._visible(author, reader)
        )

    def inbox(self, reader: Agent, mark: ReadMark, *, limit: int, chars: int) -> Inbox:
        """Assemble what a turn is shown: what is new, then the newest it knows, then its own."""
        visible = sorted(
            (name for author in self.authors_of(reader) for name in self._visible(author, reader)), key=self._key
        )
        fresh = [name for name in visible if not mark.has_seen(name)]
        self._tried = set()
        unread, problems, room = self._take(fresh, limit, chars, reader)
        done = [name for name in self._tried if self._is_unusable(name) or not self._is_for(name, reader)]
        if len(unread) + len(done) < len(fresh):  # not all was taken
            self._tried = set()
            unread, problems, room = self._take(self._by_turns(fresh), limit, chars, reader)
        unread.sort(key=lambda entry: visible.index(self._name_of(entry, visible)))
        tried = set(self._tried)
        seen = {self._name_of(entry, visible) for entry in unread}
        bad = {name for name in tried if self._is_unusable(name)}
        passed = {name for name in tried if not self._is_for(name, reader)}
        left = [name for name in fresh if name not in seen | bad | passed]
        if left:
            room = 0
        shown = [name for name in reversed(visible) if mark.has_seen(name) or name in passed]
        known, _, room = self._take(shown, limit - len(unread), room)
        mine = [name for name in reversed(self._listing(reader.name)) if name.tick <= self._tick]
        own, _, _ = self._take(mine[:OWN_ENTRIES_SHOWN], OWN_ENTRIES_SHOWN, room)
        after = self._mark_after(reader, mark, visible, left, seen | passed, bad)
        return Inbox(unread, known[::-1], own[::-1], len(left), after, problems)

    def _by_turns(self, fresh: list[EntryName]) -> list[EntryName]:
        """Put everybody's oldest before anybody's second; persons go first."""
        rounds: dict[EntryName, int] = {}
        for name in fresh:
            rounds[name] = sum(other.author == name.author for other in rounds)
        return sorted(fresh, key=lambda n: (rounds[n], n.author not in self._persons, self._key(n)))

    def _take(
        self, names: list[EntryName], limit: int, chars: int, reader: Agent | None = None
    ) -> tuple[list[OutboxEntry], list[Problem], int]:
        """Read entries until count or room is used up; the first is taken whatever its size.

        With a reader, what is new to others only is left out.
        """
        taken: list[OutboxEntry] = []
        found: dict[EntryName, list[Problem]] = {}
        for name in names:
            if len(taken) >= limit:
                break
            entry = self._entry(name)
            self._tried.add(name)
            if isinstance(entry, ConfigError):
                found[name] = list(entry.problems)
            if not isinstance(entry, OutboxEntry) or (reader and not self._is_for(name, reader)):
                continue
            size = len(str(entry.payload))
            if size > chars and (taken or chars <= 0):
                break
            taken.append(entry)
            chars -= size
        problems = [problem for name in sorted(found, key=self._key) for problem in found[name]]
        return taken, problems, max(chars, 0)

    def _mark_after(
        self,
        reader: Agent,
        mark: ReadMark,
        visible: list[EntryName],
        left: list[EntryName],
        known: set[EntryName],
        bad: set[EntryName],
    ) -> ReadMark:
        authors, reads_all = {*self.authors_of(reader)}, "*" in reader.permissions.read_outboxes

        def through_of(author: str) -> int:
            of_author = [n for n in visible if author in ("*", n.author)]
            takes_turn = author in self._firing and any(n.tick == self._tick for n in of_author)
            new = (n for n in of_author if n.has_engine_id and n.tick > mark.last_seen_tick(n.author))
            return min([n.tick - 1 for n in new if n in left], default=self._tick - (not takes_turn))

        through = {p: through_of(p) for p in (["*"] if reads_all else reader.permissions.read_outboxes)}
        if reads_all:
            ahead = {author: tick for author, tick in mark.through.items() if author in authors}
            ahead |= {name.author: through_of(name.author) for name in known}
            through |= {author: tick for author, tick in ahead.items() if tick > through["*"]}
        by_ticks = ReadMark(through)
        shown = {name for name in visible if mark.has_seen(name)} | known
        failed = {name for name in visible if mark.is_unreadable(name)} - shown | bad
        return ReadMark(
            through,
            frozenset(name.identity for name in shown if not by_ticks.has_seen(name)),
            frozenset(name.identity for name in failed),
        )

    def _visible(self, author: str, reader: Agent) -> list[EntryName]:
        names = self._listing(author)
        if not names or names[-1].tick < self._tick:
            return names
        sees_this_tick = author not in self._firing or (
            self._visibility == "order" and self._firing[author] < self._firing.get(reader.name, len(self._firing))
        )
        newest = self._tick if sees_this_tick else self._tick - 1
        return [name for name in names if name.tick <= newest]

    def _listing(self, author: str) -> list[EntryName]:
        if author not in self._names:
            names = list_outbox(self._base, author)
            if author in self._firing:
                # What the author's own turn of this tick writes is added when that turn commits, also
                # when the files are there already because an earlier attempt was interrupted.
                names = [name for name in names if name.tick != self._tick or not name.has_engine_id]
            self._names[author] = names
        return self._names[author]

    def _entry(self, name: EntryName) -> OutboxEntry | ConfigError | None:
        key = name.file
        if key not in self._entries:
            try:
                self._entries[key] = read_entry(self._base, name)
            except ConfigError as error:
                self._entries[key] = error
            except FileNotFoundError:  # removed by hand since the tick began
                self._entries[key] = None
        return self._entries[key]

    def _is_unusable(self, name: EntryName) -> bool:
        return isinstance(self._entry(name), ConfigError)

    def _is_for(self, name: EntryName, reader: Agent) -> bool:
        """Return whether an entry is new to a reader; one that cannot be read is to everybody."""
        entry = self._entry(name)
        target = entry.payload.get("target") if isinstance(entry, OutboxEntry) else None
        named = {str(one).strip().lower() for one in (target if isinstance(target, list) else [target])}
        if named & {"*", "all"} or not named & (self._named - {name.author}):
            return True
        return reader.name in named

    def _name_of(self, entry: OutboxEntry, names: list[EntryName]) -> EntryName:
        return next(name for name in names if name.file == entry.file)

    def _key(self, name: EntryName) -> tuple[int, int, int, str]:
        return name.tick, self._place_of(name.author), name.number, name.id

    def _place_of(self, name: str) -> int:
        return self._rank.get(name, -1)
