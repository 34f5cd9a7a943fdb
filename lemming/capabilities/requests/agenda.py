"""Which request an agent's turn is for: one that is open, and what belongs to it. Rules: docs/requests.md.

A request is begun in a turn of its own, and goes on in others as what was asked for it is answered. All of
it follows from the entries and from what the ledger holds of requests that were begun.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter

from lemming.capabilities.requests.kinds import KindsOfEntries
from lemming.capabilities.requests.known_requests import KnownRequests, moving_in
from lemming.capabilities.requests.payloads import count_in, is_for_any
from lemming.capabilities.requests.returned_answers import ReturnedAnswers, read_entry
from lemming.kernel.journal.begun import Begun
from lemming.kernel.mail.agenda import Agenda, is_only_said, may_be_asked
from lemming.kernel.mail.holds import Holds
from lemming.kernel.mail.index import Names
from lemming.kernel.mail.references import name_in
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.mail.visibility import View
from lemming.kernel.messages import EntryName, OutboxEntry, names_of
from lemming.kernel.org.resume import Take
from lemming.kernel.org.uses import Habits

TICKS_EACH = 10
"""For so many ticks a request to several is one agent's, unless it says otherwise."""
PASSED_AT_A_TIME = 256
"""So many unread entries are looked through in a turn for those that are nothing new: the others keep."""
THREAD_ENTRIES = 200
"""So many entries of each side are looked through for those of a conversation."""


def agenda_of(view: View, name: str, begun: Sequence[Begun], habits: Habits, holds: Holds) -> Agenda | None:
    """Return what is asked of an agent; None when nothing is, and nobody's requests would be taken."""
    is_quiet = habits.wake == "addressed"
    if begun or is_quiet or holds.may_withhold or may_be_asked(view, habits.take):
        return RequestAgenda(view, name, begun, habits.take, only_addressed=is_quiet, holds=holds)
    return None


def accepts_requests(author: str, take: Take, callers: Collection[str]) -> bool:
    """Return True if an agent takes an author's requests in turns of their own, not as part of its inbox."""
    return take == "one" or (take is None and author in callers)


class RequestAgenda:
    """What is asked of one agent as it stands in a tick, and which entries belong to it: an `Agenda`.

    `only_addressed`: entries that do not name the agent are nothing new to it. `holds`: which entries wait,
    which requests go on, and how what capabilities asked has ended.
    """

    def __init__(
        self,
        view: View,
        name: str,
        begun: Sequence[Begun],
        take: Take,
        *,
        only_addressed: bool,
        holds: Holds,
    ) -> None:
        self._view, self._mail, self._name, self._take = view, view.mail, name, take
        self._begun, self.only_addressed = begun, only_addressed
        self._callers = view.mail.callers_of(name)
        self._holds, self._kinds = holds, view.mail.org.own(KindsOfEntries)
        self._moving: dict[str, tuple[int, list[tuple[EntryName, OutboxEntry]]]] = {}
        self._known = KnownRequests(view.mail, self._moving_since)
        self._answers = ReturnedAnswers(view, name, begun, self._known, holds, self._moving_since)

    def _goes_on(self, begun: Begun) -> bool:
        """Return whether a request goes on now; while its asker's resume is broken, nobody knows how."""
        asker = begun.request.partition("/")[0]
        # the asker's resume is broken: until it is mended, nobody can tell whom it may write to
        if asker in self._mail.named and asker not in self._mail.resumes:
            return False
        return (begun.goes_on or self._holds.is_led(begun)) and not self._holds.rests(begun)

    def next(self, last: str, taken: Collection[str] = ()) -> Task | None:
        """Return what the next turn is for; None: for the inbox. `last` is the request of the turn before.

        What goes on comes before what is new, what was asked first before the rest, and what stands still
        last. Requests do not keep an older entry from being shown for longer than one turn, and those that
        stand still keep none. `taken`: what the agent's turns before in this tick were for.
        """
        going = [it for it in self._answers.standing if it.request not in taken and self._goes_on(it)]
        if begun := next((it for it in going if not it.stands_still), None):
            return self._task(read_entry(self._mail, begun.request), begun)
        for name, request in self._requests():
            if name.identity not in taken and not self._is_over(request):
                if last and self._has_older_news(name):
                    return None
                return self._task(request, self._begun_before(name.identity))
        if going and not (last and self._has_older_news()):
            return self._task(read_entry(self._mail, going[0].request), going[0])
        return None

    def sets_aside(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is no news for the inbox, though the agent was not shown it."""
        return self.is_nothing_new(entry) or self.is_kept(entry)

    def beside(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return the requests that a turn for the inbox may answer: those shown before, and new ones."""
        if self._take != "all":
            return ()
        before = (read_entry(self._mail, begun.request) for begun in self._begun if begun.is_only_shown)
        new = (it for it in unread if it.kind == "request" and self._name in it.targets)
        return [entry for entry in (*before, *new) if entry is not None and not self._is_over(entry)]

    def is_kept(self, entry: OutboxEntry) -> bool:
        """Return whether an entry waits: for a turn of its own, or for a person to let it in."""
        if self._holds.withholds(entry):
            return True
        if entry.kind == "request":
            return self._takes(entry) and not self._is_over(entry)
        return entry.kind == "response" and self._answers.is_awaited(entry)

    def is_nothing_new(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is passed over: it is not to be shown as new, now or later."""
        if self._holds.is_refused(entry):
            return True
        if self.only_addressed and self._name not in entry.targets:
            return True
        if entry.kind == "request":
            return self._takes(entry) and self._is_over(entry)
        if entry.kind == "response":
            return self._answers.is_late(entry)
        answers = self._answers
        is_nothing = "cancels" in entry.payload or answers.is_awaited(entry) or answers.is_late(entry)
        return entry.kind == "status" and is_nothing

    def _takes(self, entry: OutboxEntry) -> bool:
        """Return whether a request is one that a turn is taken for."""
        if self._name not in entry.targets:
            return False
        if self._take is None and entry.agent in self._callers:
            return not is_only_said(entry, self._mail)
        return accepts_requests(entry.agent, self._take, self._callers)

    def _is_assigned(self, request: OutboxEntry) -> bool:
        """Return whether a request to several, of whom the first answer is enough, is for the agent now.

        One after the other gets it, each for `within` ticks; with which it begins follows from its id.
        """
        if not is_for_any(request):
            return True
        # the tick alone changes whose turn it is, so the agent must not be remembered as one with nothing new
        self._mail.changing.add(self._name)
        pool = sorted(request.targets & self._mail.named) or [self._name]
        each = count_in(request.payload, "within") or TICKS_EACH
        turn = (self._mail.tick - request.tick) // each
        # by the id, not at random: a replay must come to the same agent
        return pool[(zlib.crc32(request.id.encode()) + turn) % len(pool)] == self._name

    def _requests(self) -> Iterator[tuple[EntryName, OutboxEntry]]:
        """Yield the requests that no turn was taken for, the oldest first."""
        authors = self._mail.agents if self._take == "one" else self._callers
        begun = {it.request for it in self._answers.standing}
        streams = (self._fresh_requests(author) for author in sorted(filter(self._view.sees, authors)))
        for name in merge(*streams, key=self._mail.key):
            entry = self._mail.read(name)
            if not isinstance(entry, OutboxEntry) or entry.kind != "request" or name.identity in begun:
                continue
            if self._takes(entry) and self._is_assigned(entry) and not self._is_reviewed(entry):
                yield name, entry

    def _fresh_requests(self, author: str) -> Iterator[EntryName]:
        """Return the entries of an author that may ask for something and were not shown, the oldest first."""
        requests = self._kinds.of(self._mail, author).requests
        # not the others: there may be tens of thousands that ask for nothing
        return self._view.fresh_of(author, Names(requests, []))

    def _is_reviewed(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown: it waits for a person, or one did not let it in."""
        return self._holds.withholds(entry) or self._holds.is_refused(entry)

    def _begun_before(self, identity: str) -> Begun:
        """Return where a request stands that no turn has come any further with."""
        return next((it for it in self._begun if it.request == identity), Begun(request=identity))

    def _task(self, request: OutboxEntry | None, begun: Begun) -> Task:
        read = partial(read_entry, self._mail)
        asked = [Ended(it, read(it.request), read(it.answer)) for it in begun.asked]
        done = {*names_of([begun.request]), *names_of([it.answer for it in begun.asked])}
        fresh = islice(self._fresh_entries(), PASSED_AT_A_TIME)
        passed = [name for name, entry in fresh if self.is_nothing_new(entry)]
        known = [name for name in (*done, *passed) if self._view.sees(name.author)]
        return Task(
            request=request,
            begun=begun,
            asked=asked,
            thread=self._thread(request) if request else (),
            mark=self._view.mark_after(known, (), is_all=False),
            path=self._path_of(request) if request else (),
        )

    def _path_of(self, request: OutboxEntry) -> list[str]:
        """Return the agents that wait for a request, the one that waits for it last; people are left out."""
        path = request.payload.get("path")
        above = [name for name in path if isinstance(name, str)] if isinstance(path, list) else []
        asker = name_in(request.payload.get("owed_to")) or request.agent
        return [name for name in dict.fromkeys([*above, asker]) if name not in self._mail.persons]

    def _fresh_entries(self) -> Iterator[tuple[EntryName, OutboxEntry]]:
        for name in self._view.fresh():
            if isinstance(entry := self._mail.read(name), OutboxEntry):
                yield name, entry

    def _has_older_news(self, than: EntryName | None = None) -> bool:
        """Return whether something is new, if an entry is named before it, and has no turn of its own."""
        before = self._mail.key(than) if than else None
        for name, entry in self._fresh_entries():
            if before and self._mail.key(name) > before:
                return False
            if entry.is_new_to(self._name, self._mail.named) and not self.sets_aside(entry):
                return True
        return False

    def _is_over(self, request: OutboxEntry) -> bool:
        """Return whether a request that is addressed to the agent is open no more, whatever became of it."""
        return self._known.of(request).is_over_for(self._name)

    def _thread(self, request: OutboxEntry) -> list[OutboxEntry]:
        """Return what asker and agent said to each other before in the same conversation."""
        conversation = request.payload.get("conversation")
        if not isinstance(conversation, str) or not conversation:
            return []
        asked_at = next(map(self._mail.key, names_of([request.identity])))
        said: list[tuple[tuple[int, int, int, str], OutboxEntry]] = []
        for author, other in ((request.agent, self._name), (self._name, request.agent)):
            for name in self._mail.past(author).all[-THREAD_ENTRIES:]:
                entry, at = self._mail.read(name), self._mail.key(name)
                if not isinstance(entry, OutboxEntry) or (author == request.agent and at >= asked_at):
                    continue
                if other in entry.targets and entry.payload.get("conversation") == conversation:
                    said.append((at, entry))
        said.sort(key=itemgetter(0))
        return [entry for _, entry in said]

    def _moving_since(self, author: str, tick: int) -> Iterator[tuple[EntryName, OutboxEntry]]:
        """Yield what may move or end a request that an author wrote since a tick, each with its name.

        In this one, what was there before the agent's turn: only what the agent may read, and what persons
        wrote, for its turn waits for no other's.
        """
        since, found = self._moving.get(author, (tick + 1, []))
        if since > tick:  # looked through once, and not for each request: an outbox may hold thousands
            moving = Names(self._kinds.of(self._mail, author).moving, [])
            found = [*moving_in(self._mail, moving.all[moving.after(tick - 1) :])]
            self._moving[author] = tick, found
        today: Sequence[EntryName] = ()
        if self._view.sees(author) or author in self._mail.persons:
            today = self._mail.today_of(author, self._name)
        yield from (it for it in found if it[0].tick >= tick)
        yield from moving_in(self._mail, today)
