"""Visibility of entries in a tick, and the unread entries of a reader. Rules: docs/concepts.md.

Every outbox is listed once, as the tick begins; the tick's turns add their entries. Names are read in order
and bisected, so entries shown long ago are not walked over. A reader of all outboxes visits every author only
if the oldest entries do not fill its inbox.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from lemming.kernel.agents import Agent
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.files.descriptors import StatusPair
from lemming.kernel.files.stat_cache import PathState
from lemming.kernel.inboxes.entry_index import EntryIndex, EntryNames, EntryResult, tick_order_key
from lemming.kernel.messages import EntryName, OutboxEntry, make_entry_name, may_be_from_turn
from lemming.kernel.org.organisation import Organisation

OWN_ENTRIES_SHOWN = 3
EMPTY: Mapping[str, Any] = {}


@accept_old_names
class MailView:
    """The entries visible to a tick's turns, for one thread at a time. Authors before a reader have had their turn."""

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
        askers: Mapping[str, frozenset[str]] = EMPTY,
        agents: Mapping[str, Agent] = EMPTY,
    ) -> None:
        self.tick, self.at = tick, at
        self.hidden: frozenset[EntryName] = frozenset()  # entries with a future reveal time
        self.changing: set[str] = set()  # readers that the passing of time alone may give news
        self._callers, self._askers, self.resumes = frozenset(callers), askers, agents
        self.agents, self._order, self.persons = frozenset(order), order, frozenset(persons)
        self.known_names = self.agents.union(broken)  # a target outside these names is unknown
        self.org, self._index, self._shows_turns = org, org.get_cache(EntryIndex), visibility == "order"
        self.get_cached = self._index.entries.get  # most that is read was read before
        self.rank = {name: position for position, name in enumerate(order)}
        self._firing = {name: position for position, name in enumerate(firing)}
        self._past: dict[str, EntryNames] = {}
        self.listed: dict[str, EntryNames] = {}  # as each outbox was when it was looked at
        self._readable: dict[str, dict[str, EntryNames]] = {}
        self._all_past_names: EntryNames | None = None
        self._to_come: dict[str, list[EntryName]] = {}
        self._today: list[EntryName] = []
        self._today_of: dict[str, list[EntryName]] = {}
        self._written: dict[EntryName, OutboxEntry] = {}  # their files may not be there yet
        self._unusable: dict[EntryName, EntryResult] = {}

    def scan_outboxes(self, readers: Iterable[Agent]) -> None:
        """List the outboxes these readers may read, before any turn writes."""
        for reader in readers:
            self.past_names(reader.name)
            self.readable_names(reader)

    def add(self, author: str, entries: Iterable[OutboxEntry], turn: int = 0) -> None:
        """Make a turn's entries visible to later turns."""
        for number, entry in enumerate(entries):
            if entry.not_before <= self.at:
                name = make_entry_name(entry, number, turn)
                self._written[name] = entry
                self._add_today(name)

    def record_written(self, number: int, entry: OutboxEntry, statuses: StatusPair, turn: int = 0) -> None:
        """Record a turn's entry as written to the disk. `number` is the position among the turn's entries."""
        self._index.record_written(make_entry_name(entry, number, turn), entry, statuses)

    def readable_names(self, reader: Agent) -> Mapping[str, EntryNames]:
        """Return the names an agent may read from earlier ticks, by author; "*" stands for all, in order."""
        patterns, name = reader.permissions.read_outboxes, reader.name
        if "*" in patterns:
            return {"*": self.all_past_names}
        if name not in self._readable:
            authors = [
                author_name for author_name in sorted(patterns) if author_name in self.agents and author_name != name
            ]
            self._readable[name] = {author: self.past_names(author) for author in authors}
        return self._readable[name]

    def past_names(self, author: str) -> EntryNames:
        """Return an outbox's names ("*": all) from earlier ticks: the same value as in another tick without a change."""
        if author == "*":
            return self.all_past_names
        if (past := self._past.get(author)) is None:
            names = self._hide_future(author, self.listed.setdefault(author, self._index.list_outbox(author)))
            past = self._past[author] = names.up_to_tick(self.tick - 1)
            if past is not names:
                future = names.all[len(past.all) :]
                self._to_come[author] = [name for name in future if name.tick > self.tick]
                for name in future:
                    # Entries from an interrupted attempt of the author's turn are added when the turn commits.
                    if name.tick == self.tick and not (author in self._firing and may_be_from_turn(name)):
                        self._add_today(name)
        return past

    def _hide_future(self, author: str, names: EntryNames) -> EntryNames:
        """Return the visible names; names with a future reveal time are hidden from all readers."""
        if names.by_hand:
            names, hidden = self._index.split_visible(author, names, self.at)
            self.hidden |= hidden
        return names

    def due_reminders(self, author: str) -> list[EntryName]:
        """Return the entries an author addressed to itself whose reveal time has passed."""
        results = (
            (result, self.read(result)) for result in self.past_names(author).by_hand if self._index.reveal_time(result)
        )
        return [name for name, result in results if isinstance(result, OutboxEntry) and author in result.targets]

    def has_hidden_entries(self, author: str) -> bool:
        """Return True if an author has hidden entries waiting for a reveal time."""
        return any(name.author == author for name in self.hidden)

    @property
    def all_past_names(self) -> EntryNames:
        """The names in all outboxes from earlier ticks, in tick order, including the reader's own."""
        if self._all_past_names is None:
            for author in self._order:
                self.past_names(author)
            names = self._hide_future("*", self._index.merge_outboxes(self._order))
            self._all_past_names = names.up_to_tick(self.tick - 1)
        return self._all_past_names

    def newest_own(self, author: str) -> list[EntryName]:
        """Return an author's newest entries, newest first, up to the number shown in its own turn."""
        newest = [*self.past_names(author).all[-OWN_ENTRIES_SHOWN:], *self._today_of.get(author, ())]
        return newest[: -OWN_ENTRIES_SHOWN - 1 : -1]

    def entries_this_tick(self, reader: str) -> Sequence[EntryName]:
        """Return the entries of this tick visible to a reader of all outboxes, in order."""
        position, get_turn = self._turn_index(reader), self._firing.get
        return [name for name in self._today if get_turn(name.author, -1) < position and name.author != reader]

    def author_entries_this_tick(self, author: str, reader: str) -> Sequence[EntryName]:
        """Return an author's entries of this tick visible to a reader of its outbox, in order."""
        names = self._today_of.get(author, ())
        return names if names and self._firing.get(author, -1) < self._turn_index(reader) else ()

    def _turn_index(self, reader: str) -> int:
        """Return the reader's position in the order; entries of earlier turns are visible."""
        return self._firing.get(reader, len(self._firing)) if self._shows_turns else 0

    def is_due(self, author: str) -> bool:
        """Return True if an agent has a turn in this tick, which then is the source of its entries."""
        return author in self._firing

    def get_callers(self, name: str) -> frozenset[str]:
        """Return the agents with special access to `name`: they wait for answers to their requests."""
        return self._callers.union(self._askers.get(name, ())) - {name}

    def read(self, name: EntryName) -> EntryResult:
        """Return an entry, the error in the file, or None if there is none: the same result all tick."""
        entry = self.get_cached(name) or self._written.get(name)
        if entry is not None:
            return entry
        if name not in self._unusable:
            result = self._index.read(name)
            if isinstance(result, OutboxEntry):
                return result
            self._unusable[name] = result
        return self._unusable[name]

    def capture_states(self, authors: Collection[str], root: int) -> list[PathState] | None:
        """Return path states that prove these outboxes ("*": all) to be unchanged, or None if in doubt."""
        states = []
        for author in self._order if "*" in authors else authors:
            if not (state := self._index.capture_state(author, self.past_names(author), root)):
                return None
            states.append(state)
        return states

    def iter_misplaced(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the authors of listed outboxes with files that no agent sees in this tick, and these files."""
        for author in self._past:
            future_files = (name.file_name for name in self._to_come.get(author, ()))
            if files := [*self._index.stray_files(author), *future_files]:
                yield author, files

    def key(self, name: EntryName) -> tuple[int, int, int, str]:
        """Return the sort key of an entry in the order of all entries."""
        return tick_order_key(self.rank, name)

    def _add_today(self, name: EntryName) -> None:
        if self._today and self.key(name) < self.key(self._today[-1]):
            insort(self._today, name, key=self.key)
        else:  # as always where turns are taken one after another
            self._today.append(name)
        insort(self._today_of.setdefault(name.author, []), name)
