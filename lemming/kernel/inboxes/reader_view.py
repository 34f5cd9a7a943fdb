"""The view that one reader has of the entries in a tick: unread entries, and the next read mark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, filterfalse, islice

from lemming.kernel.agents import Agent
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import EntryName, parse_identities


@accept_old_names
class ReaderView:
    """Entries visible to a reader in a tick, and the part already shown according to `mark`. Names only."""

    def __init__(self, mail: MailView, reader: Agent, mark: ReadMark) -> None:
        self.mail, self.reader, self._tick = mail, reader.name, mail.tick
        self._patterns = reader.permissions.read_outboxes
        readable = mail.readable_names(reader)
        self._is_of_all = "*" in readable
        self._authors: Collection[str] = mail.agents if self._is_of_all else readable
        self._seen_today = self._find_today(readable)
        if mark.has_bare_ids:
            visible = chain(*(names.all for names in readable.values()), self._seen_today)
            mark = mark.with_identities(name for name in visible if name.author != self.reader)
        self.mark, self._also, self._unusable = (mark, parse_identities(mark.also), parse_identities(mark.unusable))
        self._past = [(names, mark.last_seen_tick(author)) for author, names in readable.items()]
        self._ahead: dict[str, int] = {}
        if self._is_of_all:
            # authors shown further than the others, and the reader, whose entries are never shown to itself
            all_tick = mark.last_seen_tick("*")
            ahead_ticks = {
                author_name: tick
                for author_name, tick in mark.through.items()
                if tick > all_tick and author_name in mail.agents
            }
            self._ahead = {**ahead_ticks, self.reader: self._tick}
        self._new_today = [*filterfalse(self._also.__contains__, self._seen_today)]
        self._late = self._find_late()

    def _find_today(self, authors: Iterable[str]) -> Sequence[EntryName]:
        if self._is_of_all:
            return self.mail.entries_this_tick(self.reader)
        streams = [names for author in authors if (names := self.mail.author_entries_this_tick(author, self.reader))]
        return streams[0] if len(streams) == 1 else sorted(chain.from_iterable(streams), key=self.mail.key)

    def iter_unread(self) -> Iterator[EntryName]:
        """Yield the unread entries, oldest first. Entries shown long ago are not walked over."""
        streams = [self._iter_newer_unseen(names, last_tick) for names, last_tick in self._past]
        if self._late:
            streams.append(iter(self._late))
        past = streams[0] if len(streams) == 1 else merge(*streams, key=self.mail.key)
        return chain(past, self._new_today)

    def iter_unread_fair(self) -> Iterator[EntryName]:
        """Yield the unread entries, the oldest of each author before the second of any; persons come first."""
        authors, persons, key = [], self.mail.persons, self.mail.key
        for name in self._oldest_per_author():
            authors.append(name.author)
            yield name
        streams = [islice(self.iter_author_unread(author), 1, None) for author in authors]
        while streams:
            heads = [(name, stream) for stream in streams for name in islice(stream, 1)]
            heads.sort(key=lambda head: (head[0].author not in persons, key(head[0])))
            yield from (name for name, _ in heads)
            streams = [stream for _, stream in heads]

    def _oldest_per_author(self) -> Iterator[EntryName]:
        """Yield each author's oldest unread entry, persons first; an inbox is often full before all are visited."""
        visited = {author for author in self.mail.persons if self.can_see(author)}
        yield from self._oldest_unread(visited)
        remaining_misses = len(self._authors)
        for name in self.iter_unread():
            if name.author not in visited:
                visited.add(name.author)
                yield name
            elif (remaining_misses := remaining_misses - 1) < 0:
                yield from self._oldest_unread(
                    candidate for candidate in self._authors if self.can_see(candidate) and candidate not in visited
                )
                return

    def _oldest_unread(self, authors: Iterable[str]) -> list[EntryName]:
        oldest = (name for author in authors for name in islice(self.iter_author_unread(author), 1))
        return sorted(oldest, key=self.mail.key)

    def count_unread(self) -> int:
        """Return the number of unread entries without walking over them."""
        mark, past, all_tick = self.mark, self.mail.past_names, self.mark.last_seen_tick("*")
        count = len(self._new_today) + len(self._late)
        count += sum(len(names.all) - names.next_index(last_tick) for names, last_tick in self._past)
        for author, ahead_tick in self._ahead.items():
            names = past(author)
            count -= names.next_index(ahead_tick) - names.next_index(all_tick)
        also = (name for name in self._also if name.tick < self._tick and self._is_visible(name))
        return count - sum(name.tick > mark.last_seen_tick(name.author) for name in also)

    def iter_other(self, new: Collection[EntryName]) -> Iterator[EntryName]:
        """Yield all visible entries except `new`, newest first."""
        if len(self._past) == 1 and not (self._is_of_all or self._late):  # new names sort last
            names, last_tick = self._past[0]
            newest_first, count = reversed(names.all), len(names.all) - names.next_index(last_tick)
            newest = chain(reversed(self._seen_today), islice(newest_first, count))
            return chain(filterfalse(new.__contains__, newest), newest_first)
        streams = [reversed(names.all) for names, _ in self._past]
        past = streams[0] if len(streams) == 1 else merge(*streams, key=self.mail.key, reverse=True)
        visible = filterfalse(new.__contains__, chain(reversed(self._seen_today), past))
        return (name for name in visible if name.author != self.reader) if self._is_of_all else visible

    def next_mark(
        self, shown_names: Collection[EntryName], unreadable: Collection[EntryName], *, is_complete: bool
    ) -> ReadMark:
        """Return the reader's mark after these names were shown and the names in `unreadable` failed to load.

        `is_complete`: True if no other entry was unread.
        """
        processed = None if is_complete else {*shown_names, *unreadable}
        if self._is_of_all:
            through = {"*": self._last_shown_tick("*", processed)}
            author_ticks = self._ahead | {
                item: self._last_shown_tick(item, processed) for item in {name.author for name in shown_names}
            }
            author_ticks.pop(self.reader)
            through.update((author, tick) for author, tick in author_ticks.items() if tick > through["*"])
        else:
            through = {author: self._last_shown_tick(author, processed) for author in self._patterns}
        mark = ReadMark(through)
        beyond = [name.identity for name in shown_names if not mark.has_seen(name)]
        if beyond or unreadable or self._also or self._unusable:
            beyond += [name.identity for name in self._also if not mark.has_seen(name) and self._is_worth_marking(name)]
            bad_before = self._unusable.difference(shown_names, self._also)
            failed = chain(unreadable, filter(self._is_visible, bad_before))
            mark = ReadMark(through, frozenset(beyond), frozenset(name.identity for name in failed))
        return mark

    def _last_shown_tick(self, author: str, done: Collection[EntryName] | None) -> int:
        """Return the tick up to which no entry of an author is unread ("*": of any author).

        `done`: the shown names, or None for all. The result is the current tick if the author's turn is over
        and wrote an entry.
        """
        today = self._author_today(author)
        newest = self._tick if today and self.mail.is_due(author) else self._tick - 1
        if done is None or not (author == "*" or self.can_see(author)):
            return newest
        for name in chain(
            self._iter_newer_unseen(self.mail.past_names(author), self.mark.last_seen_tick(author)), today
        ):
            if name.has_engine_id and name not in done and name not in self._also:
                return name.tick - 1
        return newest

    def _find_late(self) -> list[EntryName]:
        """Return unread entries before the marked ticks, in order: added late by hand, or previously unreadable."""
        own_names = self.mail.past_names(self.reader)
        if not (self._unusable or own_names.by_hand or any(names.by_hand for names, _ in self._past)):
            return []
        by_hand = (name for names, _ in self._past for name in names.by_hand if name.author != self.reader)
        unusable = (name for name in self._unusable if name.has_engine_id and self._is_visible(name))
        get_shown_tick, current_tick = self.mark.last_seen_tick, self._tick
        late = (
            entry_name
            for entry_name in chain(by_hand, unusable)
            if entry_name.tick < current_tick and entry_name.tick <= get_shown_tick(entry_name.author)
        )
        unread = (name for name in chain(late, self._due_reminders) if name not in self._also)
        return sorted(unread, key=self.mail.key)

    @cached_property
    def _due_reminders(self) -> list[EntryName]:
        return self.mail.due_reminders(self.reader)

    def _iter_newer_unseen(self, names: EntryNames, last_tick: int) -> Iterator[EntryName]:
        """Yield the unread entries after a tick."""
        also, ahead_ticks = self._also, self._ahead
        newer = map(names.all.__getitem__, range(names.next_index(last_tick), len(names.all)))
        if ahead_ticks:
            return (name for name in newer if name.tick > ahead_ticks.get(name.author, -1) and name not in also)
        return filterfalse(also.__contains__, newer) if also else newer

    def iter_author_unread(self, author: str, among: EntryNames | None = None) -> Iterator[EntryName]:
        """Yield an author's unread entries, oldest first; entries of earlier ticks only from `among`."""
        late = [name for name in self._late if name.author == author]
        if author == self.reader:
            return iter(late)
        newer = self._iter_newer_unseen(among or self.mail.past_names(author), self.mark.last_seen_tick(author))
        today = (name for name in self._author_today(author) if name not in self._also)
        return chain(merge(newer, late) if late else newer, today)

    def _author_today(self, author: str) -> Sequence[EntryName]:
        return self.mail.author_entries_this_tick(author, self.reader) if self.can_see(author) else ()

    def can_see(self, author: str) -> bool:
        """Return True if the reader may see an author's entries."""
        return author in self._authors and author != self.reader

    def _is_worth_marking(self, name: EntryName) -> bool:
        return self._is_visible(name) or name in self.mail.hidden or name in self._due_reminders

    def _is_visible(self, name: EntryName) -> bool:
        """Return True if an entry is visible."""
        is_past, author = name.tick < self._tick, name.author
        return self.can_see(author) and name in (self.mail.past_names(author) if is_past else self._seen_today)
