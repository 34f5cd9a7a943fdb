"""What a turn sees, worked out the plain way: the model that `lemming.mailroom` is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from lemming.agents import Agent
from lemming.errors import ConfigError, Problem
from lemming.inbox import OWN_ENTRIES_SHOWN, Inbox, ReadMark
from lemming.messages import EntryName, OutboxEntry, list_outbox, read_entry


class PlainMailroom:
    """Who can see what in one tick, every entry looked at for every reader."""

    def __init__(
        self,
        base: Path,
        *,
        tick: int,
        order: list[str],
        firing: Iterable[str],
        visibility: Literal["order", "tick"] = "order",
    ) -> None:
        self._base, self._tick, self._visibility = base, tick, visibility
        self._agents = frozenset(order)
        self._authors: dict[str, list[str]] = {}
        self._rank = {name: rank for rank, name in enumerate(order)}
        self._firing = {name: place for place, name in enumerate(firing)}
        self._names: dict[str, list[EntryName]] = {}
        self._entries: dict[tuple[str, str], OutboxEntry | ConfigError | None] = {}
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
            self._entries[author, entry.id] = entry

    def authors_of(self, reader: Agent) -> list[str]:
        """Return whom an agent may read, in the order of the tick."""
        if reader.name not in self._authors:
            readable = reader.permissions.read_outboxes
            names = self._agents if "*" in readable else self._agents.intersection(readable)
            self._authors[reader.name] = sorted(
                names - {reader.name}, key=lambda name: (self._place_of(name), name)
            )
        return self._authors[reader.name]

    def has_unread(self, reader: Agent, mark: ReadMark) -> bool:
        """Return whether there is anything to show that the agent has not been shown."""
        return any(
            not mark.covers(name) and not (name.id in mark.unusable and self._is_unusable(name))
            for author in self.authors_of(reader)
            for name in self._visible(author, reader)
        )

    def inbox(self, reader: Agent, mark: ReadMark, *, limit: int, chars: int) -> Inbox:
        """Assemble what a turn is shown: unread oldest first, then the newest it knows, then its own."""
        visible = sorted(
            (name for author in self.authors_of(reader) for name in self._visible(author, reader)),
            key=lambda name: (name.tick, self._place_of(name.author), name.number, name.id),
        )
        fresh = [name for name in visible if not mark.covers(name)]
        self._tried = set()
        unread, problems, room = self._take(fresh, limit, chars)
        tried = set(self._tried)
        seen = {entry.id for entry in unread}
        bad = {name.id for name in tried if self._is_unusable(name)}
        left = [name for name in fresh if name.id not in seen and name.id not in bad]
        if left:
            room = 0
        known, _, room = self._take(
            [name for name in reversed(visible) if mark.covers(name)], limit - len(unread), room
        )
        mine = [name for name in reversed(self._listing(reader.name)) if name.tick <= self._tick]
        own, _, _ = self._take(mine[:OWN_ENTRIES_SHOWN], OWN_ENTRIES_SHOWN, room)
        after = self._mark_after(reader, mark, visible, left, seen, bad)
        return Inbox(tuple(unread), tuple(known[::-1]), tuple(own[::-1]), len(left), after, tuple(problems))

    def _take(
        self, names: list[EntryName], limit: int, chars: int
    ) -> tuple[list[OutboxEntry], list[Problem], int]:
        """Read entries until count or room is used up; the first is taken whatever its size."""
        taken: list[OutboxEntry] = []
        problems: list[Problem] = []
        for name in names:
            if len(taken) >= limit:
                break
            entry = self._entry(name)
            self._tried.add(name)
            if isinstance(entry, ConfigError):
                problems.extend(entry.problems)
            if not isinstance(entry, OutboxEntry):
                continue
            size = len(str(entry.payload))
            if size > chars and (taken or chars <= 0):
                break
            taken.append(entry)
            chars -= size
        return taken, problems, max(chars, 0)

    def _mark_after(
        self,
        reader: Agent,
        mark: ReadMark,
        visible: list[EntryName],
        left: list[EntryName],
        seen: set[str],
        bad: set[str],
    ) -> ReadMark:
        authors = self.authors_of(reader)
        through = {}
        for pattern in reader.permissions.read_outboxes:
            matched = set(authors) if pattern == "*" else {pattern}
            first_left = min(
                (n.tick for n in left if n.author in matched and n.is_derived), default=self._tick
            )
            through[pattern] = min(first_left, self._tick) - 1
        after = ReadMark(through)
        shown = (mark.also & {name.id for name in visible}) | seen
        already = {name.id for name in visible if mark.covers(name)}
        keep = {name.id for name in visible if name.id in shown | already and not after.covers(name)}
        return ReadMark(through, frozenset(keep), frozenset(bad))

    def _visible(self, author: str, reader: Agent) -> list[EntryName]:
        names = self._listing(author)
        if not names or names[-1].tick < self._tick:
            return names
        sees_this_tick = author not in self._firing or (
            self._visibility == "order"
            and self._firing[author] < self._firing.get(reader.name, len(self._firing))
        )
        newest = self._tick if sees_this_tick else self._tick - 1
        return [name for name in names if name.tick <= newest]

    def _listing(self, author: str) -> list[EntryName]:
        if author not in self._names:
            names = list_outbox(self._base, author)
            if author in self._firing:
                # What the author's own turn of this tick writes is added when that turn commits, also
                # when the files are there already because an earlier attempt was interrupted.
                names = [name for name in names if name.tick != self._tick or not name.is_derived]
            self._names[author] = names
        return self._names[author]

    def _entry(self, name: EntryName) -> OutboxEntry | ConfigError | None:
        key = (name.author, name.id)
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

    def _place_of(self, name: str) -> int:
        return self._rank.get(name, -1)
