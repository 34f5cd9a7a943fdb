"""Which entries the end of a tick removes: those past their retention that nobody who is due waits for.

Rules: docs/concepts.md, "Retention". None that somebody had not been shown is removed without a word.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from lemming.kernel.agents import Survey, agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem
from lemming.kernel.journal.file import journal_ticks, read_plan
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.read_mark import ReadMark
from lemming.kernel.mail.capability_notes import asked_beside
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import EntryName, OutboxEntry, names_of
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import capability, why_missing
from lemming.kernel.plugins.shipped import AWAITING
from lemming.kernel.tick.carriers import Carriers
from lemming.kernel.tick.firing_plan import channels_in, people_in
from lemming.kernel.turn.moments import Keeps
from lemming.kernel.turn.prepared import asked_nothing, in_use

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


def find_expired(survey: Survey, config: Config, mail: Mail, run: int, turned: Iterable[str]) -> Expired:
    """Return what is past its retention, but for what an agent is waited for that will be shown it.

    `run`: the engine's epoch; what it saw in an earlier tick is looked at again where it can have changed.
    `turned`: who took a turn in this tick.
    """
    org, tick, retention = mail.org, mail.tick, config.org.retention_ticks
    if not 0 < retention < tick:
        return Expired()
    known = _known_of(org, survey, config, run, tick)
    known.turned.update(turned)
    old = known.older_than(tick - retention)
    if old:
        old = _without_waiting(old, org, mail.at, tick - retention)
    for used in in_use(config, survey) if old else ():
        if is_kept := used.keeps(org, config, survey):
            old = _but_for(old, is_kept)
    if old:
        needed = known.needed()
        old = _but_for(old, lambda name: name.identity in needed)
    if not old:
        return Expired()
    readers = _Readers(known)
    waiting = org.own(Carriers).waiting(config, survey, tick) if config.has_channels else frozenset[str]()
    files: list[str] = []
    missed: list[tuple[EntryName, list[str]]] = []
    for author, names in old.items():
        behind, people = readers.behind(author, names[-1].tick), readers.people_of(author)
        if not (behind or people or waiting) and all(name.is_derived for name in names):
            files += [name.file for name in names]
            continue
        of_author = readers.of(author)
        for name in names:
            unshown = [reader for reader in (behind if name.is_derived else of_author) if reader.misses(name)]
            found = mail.read(name) if unshown or people else None
            entry = found if isinstance(found, OutboxEntry) else None
            if entry and any(reader.only_addressed for reader in unshown):
                unshown = [it for it in unshown if not it.only_addressed or it.name in entry.targets]
            if entry and _is_awaited(entry, unshown, people, mail):
                continue
            if any(tick - name.tick <= longest_kept(retention, reader.every) for reader in unshown):
                continue
            if name.identity in waiting and tick - name.tick <= RETENTIONS_WAITED_FOR * retention:
                continue
            files.append(name.file)
            if unshown:
                missed.append((name, [reader.name for reader in unshown]))
    return Expired(files, _count(missed, mail))


def _is_awaited(entry: OutboxEntry, unshown: list[_Reader], people: list[_Reader], mail: Mail) -> bool:
    """Return whether somebody says of an entry that it is still waited for."""
    if entry.kind not in ("request", "response"):  # most entries: nobody need be loaded for them
        return False
    readers = {reader.name for reader in unshown}
    persons = {it.name: any(map(it.misses, names_of([entry.identity]))) for it in people}
    found = (capability(it).awaits(mail) for it in AWAITING if not why_missing(it))
    return any(awaits is not None and awaits(entry, readers, persons) for awaits in found)


def _without_waiting(
    old: Mapping[str, Sequence[EntryName]], org: Organisation, at: str, oldest: int
) -> Mapping[str, Sequence[EntryName]]:
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
    return _but_for(old, kept.__contains__)


def _but_for(old: Mapping[str, Sequence[EntryName]], is_kept: Keeps) -> dict[str, Sequence[EntryName]]:
    """Return these entries without those that somebody keeps."""
    left = {author: [it for it in names if not is_kept(it)] for author, names in old.items()}
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
    only_addressed: bool = False

    def misses(self, name: EntryName) -> bool:
        """Return whether the agent was not shown an entry; one that cannot be read was told of."""
        return not self.mark.covers(name) and not self.mark.failed_on(name)


class _Known:
    """What a run knows of what may have expired, as long as resumes and settings are the very same.

    An outbox is looked at when its oldest entry expires, and in the same tick where anything came into it
    that was seen: what somebody puts there unseen, under an old tick, goes when what is written now does.
    """

    def __init__(self, org: Organisation, survey: Survey, config: Config, run: int) -> None:
        self.org, self.survey, self.config, self.run = org, survey, config, run
        self.tick = -1
        self.turned: set[str] = set()  # whose ledgers may need other entries now
        self._needed: dict[str, frozenset[str]] | None = None
        self._due = dict.fromkeys(filter(paths.AGENT_NAME.match, agent_folders(org.base)), 0)
        persons = people_in(survey, config)
        silent = {*persons, *channels_in(survey, config), *asked_nothing(survey, config)}
        self.people = [survey.agents[name] for name in sorted(persons)]
        self.agents = {name: agent for name, agent in survey.agents.items() if name not in silent}
        self.readers: dict[str, list[str]] = {"*": []}
        for agent in self.agents.values():
            readable = agent.permissions.read_outboxes
            for author in ["*"] if "*" in readable else readable:
                self.readers.setdefault(author, []).append(agent.name)

    def holds(self, survey: Survey, config: Config, run: int) -> bool:
        """Return whether it is known of the same."""
        return survey is self.survey and config is self.config and run == self.run

    def older_than(self, tick: int) -> Mapping[str, Sequence[EntryName]]:
        """Return the entries of earlier ticks, by author, sorted: also of those that are agents no more."""
        index, old = self.org.own(EntryIndex), dict[str, Sequence[EntryName]]()
        for author in self._due.keys() & index.take_listed():
            self._due[author] = 0
        kept = self.tick - tick + 1
        for author in [author for author, due in self._due.items() if due <= self.tick]:
            names = index.outbox(author)
            oldest = names.all[0].tick if names.all else self.tick
            self._due[author] = min(oldest, self.tick) + kept
            if found := names.all[: names.after(tick - 1)]:
                old[author] = found
        index.take_listed()  # by these looks
        return old

    def needed(self) -> Set[str]:
        """Return the entries, as `EntryName.identity`, of requests that agents have begun."""
        if self._needed is None:
            self._needed, self.turned = {}, {*self.agents}
        looked_at, self.turned = self.turned, set()
        for name in looked_at & self.agents.keys():
            self._needed.pop(name, None)
            if needed := self._needed_by(name):
                self._needed[name] = needed
        return set[str]().union(*self._needed.values())

    def _needed_by(self, name: str) -> frozenset[str]:
        """Return what an agent's requests need; nothing if its ledger is damaged: it takes no turns then."""
        try:
            state = read_state(self.org, name)
        except CorruptState:
            self.turned.add(name)  # until somebody has mended it
            return frozenset()
        asked = [*(it for begun in state.requests for it in begun.asked), *asked_beside(state)]
        entries = [place for it in asked for place in (it.request, it.answer)]
        return frozenset(filter(None, (*(begun.request for begun in state.requests), *entries)))


class _Latest:
    """What was known last; there is one of an organisation."""

    known: _Known | None = None

    def __init__(self, _: Organisation) -> None: ...


def _known_of(org: Organisation, survey: Survey, config: Config, run: int, tick: int) -> _Known:
    latest = org.own(_Latest)
    if latest.known is None or not latest.known.holds(survey, config, run):
        latest.known = _Known(org, survey, config, run)
    latest.known.tick = tick
    return latest.known


class _Readers:
    """The agents that take turns, with what they were shown. Who reads everybody is looked at together."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._found: dict[str, _Reader | None] = {}
        self._marks: dict[str, ReadMark] = {}
        self._of_all = self._named("*")
        self._of_all.sort(key=lambda reader: (reader.mark.tick_of("*"), reader.name))

    def _named(self, author: str) -> list[_Reader]:
        """Return those whose resumes name an author, or "*"."""
        return [reader for name in self._known.readers.get(author, ()) if (reader := self._reader(name))]

    def _reader(self, name: str) -> _Reader | None:
        """Return an agent as a reader; None when its ledger is damaged: it takes no turns then."""
        if name not in self._found:
            schedule, known = self._known.agents[name].schedule, self._known
            is_addressed = (schedule.wake or known.config.org.defaults.wake) == "addressed"
            try:
                mark = read_state(known.org, name).read
                self._found[name] = _Reader(name, mark, schedule.run_every_n_ticks, is_addressed)
            except CorruptState:
                self._found[name] = None
        return self._found[name]

    def people_of(self, author: str) -> list[_Reader]:
        """Return the people who may read an author."""
        people = (it.name for it in self._known.people if it.may_read(author))
        return [_Reader(name, self._mark_of(name), 1) for name in people]

    def _mark_of(self, person: str) -> ReadMark:
        if person not in self._marks:
            with contextlib.suppress(CorruptState):
                self._marks[person] = read_state(self._known.org, person).read
        return self._marks.get(person, ReadMark())

    def of(self, author: str) -> list[_Reader]:
        """Return who may read an author."""
        return [reader for reader in (*self._of_all, *self._named(author)) if reader.name != author]

    def behind(self, author: str, tick: int) -> list[_Reader]:
        """Return who may read an author and was not shown all of it up to a tick."""
        return [reader for reader in self._maybe_behind(author, tick) if reader.name != author]

    def _maybe_behind(self, author: str, tick: int) -> Iterator[_Reader]:
        of_all = takewhile(lambda reader: reader.mark.tick_of("*") < tick, self._of_all)
        yield from (reader for reader in of_all if reader.mark.tick_of(author) < tick)
        yield from (r for r in self._named(author) if r.mark.tick_of(author) < tick)


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


def unread_in_all(org: Organisation, unread: Mapping[str, int]) -> dict[str, int]:
    """Return how many entries expired for each of these agents since its last turn, these included."""
    return {name: read_state(org, name).expired_unread + count for name, count in unread.items()}
