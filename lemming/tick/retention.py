"""Which entries the end of a tick removes: those past their retention that nobody who is due waits for.

Rules: docs/concepts.md, "Retention". None that somebody had not been shown is removed without a word.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from lemming import paths
from lemming.agents import Agent, Survey, agent_folders
from lemming.config import Config
from lemming.errors import CorruptState, Problem
from lemming.journal.file import journal_ticks, read_plan
from lemming.journal.ledger import read_state
from lemming.journal.read_mark import ReadMark
from lemming.mail.index import EntryIndex
from lemming.mail.visibility import Mail
from lemming.messages import EntryName, OutboxEntry
from lemming.organisation import Organisation
from lemming.tick.plan import channels_in, people_in
from lemming.tick.reading import clocks_in

TURNS_WAITED_FOR, RETENTIONS_WAITED_FOR = 2, 10


@dataclass(frozen=True)
class Expired:
    """Entries to remove, as paths. `unread`: how many of them each agent had not been shown."""

    files: list[str] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)


def longest_kept(retention_ticks: int, every: int) -> int:
    """Return for how many ticks an agent that is due `every` so many is waited for to be shown an entry.

    >>> longest_kept(1000, 1), longest_kept(3, 10), longest_kept(3, 1000)
    (1002, 23, 30)
    """
    return min(retention_ticks + TURNS_WAITED_FOR * every, RETENTIONS_WAITED_FOR * retention_ticks)


def find_expired(org: Organisation, survey: Survey, config: Config, mail: Mail) -> Expired:
    """Return what is past its retention, but for what an agent is waited for that will be shown it."""
    tick, retention = mail.tick, config.org.retention_ticks
    old = _older_than(tick - retention, org) if 0 < retention < tick else {}
    if old:
        old = _without_waiting(old, org, mail.at, tick - retention)
    if not old:
        return Expired()
    readers = _Readers(org, survey, config)
    waiting = _not_gone_out(org, survey, config, tick)
    files: list[str] = []
    missed: list[tuple[EntryName, list[str]]] = []
    for author, names in old.items():
        behind = readers.behind(author, names[-1].tick)
        if not (behind or waiting) and all(name.is_derived for name in names):
            files += [name.file for name in names]
            continue
        of_author = readers.of(author)
        for name in names:
            unshown = [reader for reader in (behind if name.is_derived else of_author) if reader.misses(name)]
            if any(tick - name.tick <= longest_kept(retention, reader.every) for reader in unshown):
                continue
            if name.identity in waiting and tick - name.tick <= RETENTIONS_WAITED_FOR * retention:
                continue
            files.append(name.file)
            if unshown:
                missed.append((name, [reader.name for reader in unshown]))
    return Expired(files, _count(missed, mail))


def _not_gone_out(org: Organisation, survey: Survey, config: Config, tick: int) -> frozenset[str]:
    """Return the entries that are still to go out through a channel."""
    if not config.has_channels:
        return frozenset()
    from lemming.channels.between import undelivered

    return undelivered(org, survey, config, tick)


def _older_than(tick: int, org: Organisation) -> dict[str, Sequence[EntryName]]:
    """Return the entries of earlier ticks, by author, sorted: also of those that are agents no more."""
    index = org.own(EntryIndex)
    outboxes = {it: index.outbox(it) for it in filter(paths.AGENT_NAME.match, agent_folders(org.base))}
    old = {author: names.all[: names.after(tick - 1)] for author, names in outboxes.items()}
    return {author: names for author, names in old.items() if names}


def _without_waiting(
    old: dict[str, Sequence[EntryName]], org: Organisation, at: str, oldest: int
) -> dict[str, Sequence[EntryName]]:
    """Return these entries without those that wait for a moment, or whose moment came after `oldest`."""
    moment_of = org.own(EntryIndex).moment_of
    moments = {
        it: moment
        for names in old.values()
        for it in names
        if not it.is_derived and (moment := moment_of(it))
    }
    if not moments:
        return old
    ticks = journal_ticks(org)
    kept = {it for it, moment in moments.items() if moment > at or _tick_of(org, moment, ticks) >= oldest}
    left = {author: [it for it in names if it not in kept] for author, names in old.items()}
    return {author: names for author, names in left.items() if names}


def _tick_of(org: Organisation, moment: str, ticks: list[int]) -> int:
    """Return the first tick with a journal that began at a moment or after it; the newest if none did."""
    place = bisect_left(ticks, moment, hi=max(len(ticks) - 1, 0), key=lambda tick: _began(org, tick))
    return ticks[place] if ticks else -1


def _began(org: Organisation, tick: int) -> str:
    started = read_plan(org, tick)
    return started.at if started else ""


def _count(missed: list[tuple[EntryName, list[str]]], mail: Mail) -> dict[str, int]:
    """Return how many entries each agent missed that were new to it; only now are they read."""
    readers, unread = dict(missed), Counter[str]()
    for name in readers:
        if isinstance(found := mail.read(name), OutboxEntry):
            unread.update(reader for reader in readers[name] if found.is_new_to(reader, mail.named))
    return dict(sorted(unread.items()))


class _Reader(NamedTuple):
    name: str
    mark: ReadMark
    every: int

    def misses(self, name: EntryName) -> bool:
        """Return whether the agent was not shown an entry; one that cannot be read was told of."""
        return not self.mark.covers(name) and not self.mark.failed_on(name)


class _Readers:
    """The agents that take turns, with what they were shown. Who reads everybody is looked at together."""

    def __init__(self, org: Organisation, survey: Survey, config: Config) -> None:
        outside = {*people_in(survey, config), *channels_in(survey, config)}
        silent = {*outside, *clocks_in(survey, config)}  # who reads no inbox
        self._of_all: list[_Reader] = []
        self._of_author: dict[str, list[_Reader]] = {}
        for agent in survey.agents.values():
            if agent.name not in silent and (reader := _reader(org, agent)):
                readable = agent.permissions.read_outboxes
                for author in ["*"] if "*" in readable else readable:
                    readers = self._of_all if author == "*" else self._of_author.setdefault(author, [])
                    readers.append(reader)
        self._of_all.sort(key=lambda reader: (reader.mark.tick_of("*"), reader.name))

    def of(self, author: str) -> list[_Reader]:
        """Return who may read an author."""
        return [
            reader for reader in (*self._of_all, *self._of_author.get(author, ())) if reader.name != author
        ]

    def behind(self, author: str, tick: int) -> list[_Reader]:
        """Return who may read an author and was not shown all of it up to a tick."""
        return [reader for reader in self._maybe_behind(author, tick) if reader.name != author]

    def _maybe_behind(self, author: str, tick: int) -> Iterator[_Reader]:
        of_all = takewhile(lambda reader: reader.mark.tick_of("*") < tick, self._of_all)
        yield from (reader for reader in of_all if reader.mark.tick_of(author) < tick)
        yield from (r for r in self._of_author.get(author, ()) if r.mark.tick_of(author) < tick)


def _reader(org: Organisation, agent: Agent) -> _Reader | None:
    """Return an agent as a reader; None when its ledger is damaged: it takes no turns then."""
    try:
        return _Reader(agent.name, read_state(org, agent.name).read, agent.schedule.run_every_n_ticks)
    except CorruptState:
        return None


def said_of(reader: str, count: int, tick: int) -> Problem:
    """Return what a person is told of entries that an agent was never shown."""
    return Problem(
        f"{count} entr{'y' if count == 1 else 'ies'} expired in tick {tick} before {reader} was shown "
        f"{'it' if count == 1 else 'them'}",
        file=paths.agent_folder(reader),
        hint='"retention_ticks" in config/org.json keeps entries longer; '
        "`lemming status` shows whether the agent takes its turns",
        severity="warning",
    )
