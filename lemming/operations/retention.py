"""Find entries to remove at the end of a tick: past their retention, and without a due reader waiting.

Rules: docs/concepts.md, "Retention". The removal of an entry unseen by a reader is always reported.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Survey, list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, Problem
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.journal_file import journal_ticks, load_tick_started
from lemming.kernel.journal.journal_records import EntriesExpired
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.open_requests import iter_person_requests
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import EntryName, OutboxEntry, parse_identities
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import load_installed
from lemming.kernel.tick.tick_hooks import get_capability_uses
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.descriptions import ExpiredMemory, OrgQuery
from lemming.kernel.turn.preparation import RetentionHold
from lemming.kernel.turn.preparation_chain import active_capabilities
from lemming.libraries.memory_files import delete_memory
from lemming.operations.gateways import Gateways

if TYPE_CHECKING:
    from lemming.operations.turns.running_tick import RunningTick

# A reader that is seldom due gets two more turns; ten periods bound what a stopped reader can hold.
EXTRA_TURNS, MAX_RETENTIONS = 2, 10


def max_retention(retention_ticks: int, every: int) -> int:
    """Return the maximum number of ticks an entry is retained for a reader due `every` so many ticks.

    >>> max_retention(1000, 1), max_retention(3, 10), max_retention(3, 1000)
    (1002, 23, 30)
    """
    return min(retention_ticks + EXTRA_TURNS * every, MAX_RETENTIONS * retention_ticks)


def _find_expired(
    tick_context: TickContext, epoch: int, active_agents: Iterable[str]
) -> tuple[list[str], dict[str, int]]:
    """Return the files of entries past their retention, except those retained for a reader with a coming turn.

    The second value is the number of these entries not shown to each agent. `epoch`: of this start of the engine; findings
    of an earlier tick are checked again if they can have changed. `active_agents`: agents with a turn in this tick.
    """
    survey, config, mail = tick_context.survey, tick_context.config, tick_context.mail
    org, tick, retention = mail.org, mail.tick, config.org.retention_ticks
    if not 0 < retention < tick:
        return [], {}
    state = org.get_cache(_ExpiryState)
    state.begin_tick(survey, config, epoch, tick)
    state.changed_agents.update(active_agents)
    old = state.find_old_entries(tick - retention)
    if old:
        old = _drop_future(old, org, mail.at, tick - retention)
    for capability in active_capabilities(config, survey) if old else ():
        for hold in OrgQuery(RetentionHold, org, survey.agents, config).ask(capability):
            old = _exclude_kept(old, hold.is_kept)
    if old:
        needed = state.needed_entries()
        old = _exclude_kept(old, lambda name: name.identity in needed)
    if not old:
        return [], {}
    readers = _ReaderIndex(state)
    undelivered = org.get_cache(Gateways).undelivered(config, survey, tick) if config.has_channels else frozenset[str]()
    files: list[str] = []
    missed: list[tuple[EntryName, list[str]]] = []
    for author, names in old.items():
        stale_readers, people = readers.stale_readers(author, names[-1].tick), readers.people_reading(author)
        # The usual case: every reader is further on, and no entry of the author has to be opened.
        if not (stale_readers or people or undelivered) and all(name.has_engine_id for name in names):
            files += [name.file for name in names]
            continue
        author_readers = readers.readers_of_author(author)
        for name in names:
            candidates = stale_readers if name.has_engine_id else author_readers
            unshown = [reader for reader in candidates if reader.has_missed(name)]
            read_entry = mail.read(name) if unshown or people else None
            entry = read_entry if isinstance(read_entry, OutboxEntry) else None
            if entry:
                unshown = [
                    reader for reader in unshown if not reader.reads_addressed_only or reader.name in entry.targets
                ]
            if entry and _has_reply_hold(entry, unshown, people, mail):
                continue
            if any(tick - name.tick <= max_retention(retention, reader.every) for reader in unshown):
                continue
            if name.identity in undelivered and tick - name.tick <= MAX_RETENTIONS * retention:
                continue
            files.append(name.file)
            if unshown:
                missed.append((name, [reader.name for reader in unshown]))
    return files, _count_missed(missed, mail)


def _has_reply_hold(entry: OutboxEntry, unshown: list[_ReaderMark], people: list[_ReaderMark], mail: MailView) -> bool:
    """Return True if a capability declares a reply hold on the entry."""
    if entry.kind not in ("request", "response"):  # most entries: no capability has to be loaded
        return False
    readers = {reader.name for reader in unshown}
    persons = {person.name: any(map(person.has_missed, parse_identities([entry.identity]))) for person in people}
    return any(has_reply_hold(mail, entry, readers, persons) for has_reply_hold in load_installed("reply_holds"))


def _drop_future(
    old: Mapping[str, Sequence[EntryName]], org: Organisation, at: str, oldest: int
) -> Mapping[str, Sequence[EntryName]]:
    """Return the entries without scheduled entries not yet due, or due after tick `oldest`."""
    get_due_time = org.get_cache(EntryIndex).reveal_time
    due_times = {
        name: due_time
        for names in old.values()
        for name in names
        if not name.has_engine_id and (due_time := get_due_time(name))
    }
    if not due_times:
        return old
    ticks = journal_ticks(org)

    def load_start_time(tick: int) -> str:
        return started.at if (started := load_tick_started(org, tick)) else ""

    def find_first_tick(due_time: str) -> int:
        """Return the first journaled tick at or after a time, or the newest tick."""
        index = bisect_left(ticks, due_time, hi=max(len(ticks) - 1, 0), key=load_start_time)
        return ticks[index] if ticks else -1

    retained = {name for name, time in due_times.items() if time > at or find_first_tick(time) >= oldest}
    return _exclude_kept(old, retained.__contains__)


def _exclude_kept(
    old: Mapping[str, Sequence[EntryName]], is_kept: Callable[[EntryName], bool]
) -> dict[str, Sequence[EntryName]]:
    remaining = {author: [name for name in names if not is_kept(name)] for author, names in old.items()}
    return {author: names for author, names in remaining.items() if names}


def _count_missed(missed: list[tuple[EntryName, list[str]]], mail: MailView) -> dict[str, int]:
    """Return the number of new entries each agent missed; entries are read only here."""
    readers, unread = dict(missed), Counter[str]()
    for name in readers:
        if isinstance(entry := mail.read(name), OutboxEntry):
            unread.update(reader for reader in readers[name] if entry.is_news_to_reader(reader, mail.known_names))
    return dict(sorted(unread.items()))


class _ReaderMark(NamedTuple):
    name: str
    mark: ReadMark
    every: int
    reads_addressed_only: bool = False

    def has_missed(self, name: EntryName) -> bool:
        """Return True if the agent was not shown an entry, and was not told of it as unreadable."""
        return not self.mark.has_seen(name) and not self.mark.is_unreadable(name)


class _ExpiryState:
    """Expiry state of an organisation, kept by a run while resumes and settings are unchanged.

    An outbox is checked when its oldest entry expires, or in the same tick after a visible change. An entry
    placed unseen under an old tick expires with the entries written now.
    """

    def __init__(self, org: Organisation) -> None:
        self.org = org
        self._inputs: tuple[Survey, Config, int] | None = None

    def begin_tick(self, survey: Survey, config: Config, epoch: int, tick: int) -> None:
        """Select the tick, and forget everything if the survey, the config or the epoch is another."""
        self.tick = tick
        if self._inputs and self._inputs[0] is survey and self._inputs[1] is config and self._inputs[2] == epoch:
            return
        self._inputs, self.config = (survey, config, epoch), config
        self.changed_agents: set[str] = set()  # agents whose ledgers may have changed
        self._needed: dict[str, frozenset[str]] | None = None
        self._check_ticks = dict.fromkeys(filter(paths.AGENT_NAME.match, list_agent_folders(self.org.base)), 0)
        persons = survey.find_people(config)
        silent = {*persons, *survey.find_channels(config), *_agents_without_requests(survey, config)}
        self.people = [survey.agents[name] for name in sorted(persons)]
        self.agents = {name: agent for name, agent in survey.agents.items() if name not in silent}
        self.readers: dict[str, list[str]] = {"*": []}
        for agent in self.agents.values():
            readable = agent.permissions.read_outboxes
            for author in ["*"] if "*" in readable else readable:
                self.readers.setdefault(author, []).append(agent.name)

    def find_old_entries(self, tick: int) -> Mapping[str, Sequence[EntryName]]:
        """Return the entries of earlier ticks, by author and sorted, including those of removed agents."""
        index, old = self.org.get_cache(EntryIndex), dict[str, Sequence[EntryName]]()
        for author in self._check_ticks.keys() & index.pop_changed_authors():
            self._check_ticks[author] = 0
        retention = self.tick - tick + 1
        for author in [author for author, due in self._check_ticks.items() if due <= self.tick]:
            names = index.list_outbox(author)
            oldest = names.all[0].tick if names.all else self.tick
            self._check_ticks[author] = min(oldest, self.tick) + retention
            if old_entries := names.all[: names.next_index(tick - 1)]:
                old[author] = old_entries
        index.pop_changed_authors()  # caused by the listings above
        return old

    def needed_entries(self) -> Set[str]:
        """Return the ids (`EntryName.identity`) of entries needed by open requests of agents."""
        if self._needed is None:
            self._needed, self.changed_agents = {}, {*self.agents}
        agents_to_check, self.changed_agents = self.changed_agents, set()
        for name in agents_to_check & self.agents.keys():
            self._needed.pop(name, None)
            if needed := self._needed_entries(name):
                self._needed[name] = needed
        return set[str]().union(*self._needed.values())

    def _needed_entries(self, name: str) -> frozenset[str]:
        """Return the entry ids an agent's requests need; empty for a damaged ledger (the agent takes no turns)."""
        try:
            state = read_state(self.org, name)
        except CorruptState:
            self.changed_agents.add(name)  # again in each tick until a person has repaired it
            return frozenset()
        sub_requests = [
            *(sub_request for open_request in state.requests for sub_request in open_request.asked),
            *iter_person_requests(state.kept),
        ]
        entries = [identity for sub_request in sub_requests for identity in (sub_request.request, sub_request.answer)]
        return frozenset(filter(None, (*(open_request.request for open_request in state.requests), *entries)))


class _ReaderIndex:
    """Agents with turns and their read marks. Readers of all outboxes are handled together."""

    def __init__(self, state: _ExpiryState) -> None:
        self._state = state
        self._marks: dict[str, ReadMark | None] = {}
        self._readers_of_all = self._readers_naming("*")
        self._readers_of_all.sort(key=lambda reader: (reader.mark.last_seen_tick("*"), reader.name))

    def _readers_naming(self, author: str) -> list[_ReaderMark]:
        """Return the readers with the author, or "*", in their resumes."""
        return [reader for name in self._state.readers.get(author, ()) if (reader := self._get_reader(name))]

    def _get_reader(self, name: str) -> _ReaderMark | None:
        """Return an agent as a reader; None for a damaged ledger (the agent takes no turns)."""
        schedule = self._state.agents[name].schedule
        is_addressed = (schedule.wake or self._state.config.org.defaults.wake) == "addressed"
        mark = self._load_mark(name)
        return None if mark is None else _ReaderMark(name, mark, schedule.run_every_n_ticks, is_addressed)

    def people_reading(self, author: str) -> list[_ReaderMark]:
        """Return the people who may read an author's outbox."""
        people = (person.name for person in self._state.people if person.may_read(author))
        return [_ReaderMark(name, self._load_mark(name) or ReadMark(), 1) for name in people]

    def _load_mark(self, name: str) -> ReadMark | None:
        if name not in self._marks:
            self._marks[name] = None
            with contextlib.suppress(CorruptState):
                self._marks[name] = read_state(self._state.org, name).read
        return self._marks[name]

    def readers_of_author(self, author: str) -> list[_ReaderMark]:
        """Return the readers of an author's outbox."""
        return [reader for reader in (*self._readers_of_all, *self._readers_naming(author)) if reader.name != author]

    def stale_readers(self, author: str, tick: int) -> list[_ReaderMark]:
        """Return the readers of an author not yet shown all entries up to a tick."""
        readers_of_all = takewhile(lambda reader: reader.mark.last_seen_tick("*") < tick, self._readers_of_all)
        readers = (reader for reader in (*readers_of_all, *self._readers_naming(author)) if reader.name != author)
        return [reader for reader in readers if reader.mark.last_seen_tick(author) < tick]


def _expiry_warning(reader: str, count: int, tick: int) -> Problem:
    entries, them = ("entry", "it") if count == 1 else ("entries", "them")
    message = f"{count} {entries} expired in tick {tick} before {reader} was shown {them}"
    hint = 'raise "retention_ticks" in config/org.json; check with `lemming status` that the agent takes its turns'
    return Problem(message, file=paths.agent_folder(reader), hint=hint, severity="warning")


def remove_expired(running_tick: RunningTick) -> None:
    """Remove memories that capabilities declare expired, and entries past their retention.

    The list of entries is recorded first, so a second attempt agrees. An agent that was never shown some of the
    entries is told in its next prompt; a person is told in the log.
    """
    runtime, journal, tick_context = running_tick.runtime, running_tick.journal, running_tick.tick_context
    _remove_expired_memories(tick_context)
    active_agents = {turn.agent for turn in running_tick.commits.reports.values() if turn.status != "skipped"}
    files, missed = _find_expired(tick_context, runtime.epoch, active_agents)
    record = next((record for record in journal.records if isinstance(record, EntriesExpired)), None)
    if record is None:
        if not files:
            return
        # since the last turn of each agent, including the new ones
        totals = {name: read_state(runtime.org, name).expired_unread + count for name, count in missed.items()}
        unread: dict[str, Any] = {"unread": missed, "unread_in_all": totals} if totals else {}
        record = journal.append(EntriesExpired(files=files, **unread), sync=True)
        if totals:  # once the files are gone, nothing else tells of them
            journal.sync()
    # The file replaced below holds the old lines of the ledger.
    is_flushed = tick_context.config.org.durability != "off"
    for reader, count in record.unread_in_all.items():
        if reader in tick_context.survey.agents:
            state = replace(read_state(runtime.org, reader), expired_unread=count)
            amend_state(runtime.org, reader, state, sync=is_flushed)
            runtime.report_problem(_expiry_warning(reader, record.unread.get(reader, count), tick_context.tick), reader)
    # Both must name it: an edited journal must remove nothing else.
    for file in filter({*files}.__contains__, record.files):
        runtime.org.get_cache(EntryIndex).remove(file)


def _remove_expired_memories(tick_context: TickContext) -> None:
    """Remove the memories of due agents that capabilities declare expired. Raises `DiskError`."""
    for use in get_capability_uses(tick_context.org, tick_context.survey, tick_context.config):
        due_agents = [name for name in tick_context.plan.order if name in use.agents]
        if due_agents and ExpiredMemory in use.capability.describes:
            agents = {name: tick_context.survey.agents[name] for name in due_agents}
            for item in OrgQuery(ExpiredMemory, tick_context.org, agents, tick_context.config).ask(use.capability):
                delete_memory(tick_context.base, item.agent, item.key)


def _agents_without_requests(survey: Survey, config: Config) -> set[str]:
    """Return the agents that have no requests and read no inbox."""
    groups = ((survey.agents[names[0]], names) for names in survey.by_model.values())
    return {name for agent, names in groups if not resolve_turn_policy(agent, config).is_asked for name in names}
