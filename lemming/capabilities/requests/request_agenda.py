"""Choose the request of an agent's turn: an open request and the related entries. Rules: docs/requests.md.

A request starts in a separate turn and continues in later turns as sub-requests are answered. The choice
follows from the entries and from the open requests in the ledger.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter

from lemming.capabilities.requests.request_resolver import (
    RequestResolver,
    SubRequestTracker,
    iter_affecting_entries,
    list_ancestors,
    load_entry,
)
from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import (
    Agenda,
    RequestOutcome,
    RequestPolicy,
    Task,
    can_accept_requests,
    is_one_way_message,
)
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.messages import EntryName, OutboxEntry, parse_identities
from lemming.kernel.obligations.request_payloads import get_count, parse_reference
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.resume import Take
from lemming.obligations.decisions import EntryClassifier, accepts_first_answer

DEFAULT_WITHIN_TICKS = 10
"""For so many ticks a request to several is one agent's, unless it says otherwise."""
IRRELEVANT_SCAN_LIMIT = 256
"""Maximum unread entries that a turn searches for entries without news; the others stay unread."""
THREAD_SCAN_LIMIT = 200
"""Maximum entries of each side that are searched for a conversation."""


def build_agenda(
    view: ReaderView,
    name: str,
    open_requests: Sequence[OpenRequest],
    turn_policy: TurnPolicy,
    request_policy: RequestPolicy,
) -> Agenda | None:
    """Return the agenda of an agent, or None if the agent has no requests and accepts none."""
    is_quiet = turn_policy.wake == "addressed"
    if open_requests or is_quiet or request_policy.receive or can_accept_requests(view, turn_policy.take):
        return RequestAgenda(view, name, open_requests, turn_policy, request_policy)
    return None


def accepts_requests(author: str, take: Take, callers: Collection[str]) -> bool:
    """Return True if an agent handles an author's requests in separate turns, not as part of the inbox."""
    return take == "one" or (take is None and author in callers)


class RequestAgenda(Agenda):
    """The requests of an agent in a tick, with the related entries.

    `request_policy` also says which requests continue, and gives the outcomes of sub-requests by capabilities.
    """

    def __init__(
        self,
        view: ReaderView,
        name: str,
        open_requests: Sequence[OpenRequest],
        policy: TurnPolicy,
        request_policy: RequestPolicy,
    ) -> None:
        super().__init__(name, request_policy, only_addressed=policy.wake == "addressed")
        self._view, self._mail, self._take, self._open_requests = view, view.mail, policy.take, open_requests
        self._callers = view.mail.get_callers(name)
        self._kinds = view.mail.org.get_cache(EntryClassifier)
        self._affecting_cache: dict[str, tuple[int, list[tuple[EntryName, OutboxEntry]]]] = {}
        self._resolver = RequestResolver(view.mail, self._iter_affecting_entries)
        self._sub_requests = SubRequestTracker(view, name, open_requests, self._resolver)

    def _can_continue(self, open_request: OpenRequest) -> bool:
        """Return True if a request can continue now. A request never continues while the asker's resume is broken."""
        asker = open_request.request.partition("/")[0]
        # the asker's resume is broken: until its repair, the permitted recipients are unknown
        if asker in self._mail.known_names and asker not in self._mail.resumes:
            return False
        policy, request = self._request_policy, open_request.request
        return (open_request.can_continue or request in policy.continued) and request not in policy.waiting

    def next_task(self, last: str, served_requests: Collection[str] = ()) -> Task | None:
        """Return the task of the next turn, or None if the next turn is for the inbox.

        Order: continuing requests, then new requests (oldest first), then requests without progress. Requests
        delay an older entry by at most one turn, and requests without progress delay no entry. `last` is the
        request of the previous turn; `served_requests` are the requests of the agent's earlier turns in this
        tick.
        """
        continuing = [
            open_request
            for open_request in self._sub_requests.open_requests
            if open_request.request not in served_requests and self._can_continue(open_request)
        ]
        if with_progress := next((item for item in continuing if not item.stands_still), None):
            return self._build_task(load_entry(self._mail, with_progress.request), with_progress)
        for name, request in self._new_requests():
            if name.identity not in served_requests and not self._is_closed(request):
                if last and self._has_older_news(name):
                    return None
                # Fresh, if no turn has made progress on the request.
                fresh = OpenRequest(request=name.identity)
                begun = (item for item in self._open_requests if item.request == name.identity)
                return self._build_task(request, next(begun, fresh))
        if continuing and not (last and self._has_older_news()):
            return self._build_task(load_entry(self._mail, continuing[0].request), continuing[0])
        return None

    def inbox_requests(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return the requests open to answers from a turn for the inbox: shown earlier, or new."""
        if self._take != "all":
            return ()
        shown_earlier = (load_entry(self._mail, item.request) for item in self._open_requests if item.is_untouched)
        new_requests = (entry for entry in unread if entry.kind == "request" and self._name in entry.targets)
        return [entry for entry in (*shown_earlier, *new_requests) if entry is not None and not self._is_closed(entry)]

    def is_deferred(self, entry: OutboxEntry) -> bool:
        """Return True if an entry waits for a separate turn, or for a person's approval."""
        if super().is_deferred(entry):
            return True
        if entry.kind == "request":
            return self._should_take(entry) and not self._is_closed(entry)
        return entry.kind == "response" and self._sub_requests.is_awaited(entry)

    def is_irrelevant(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must not be shown as new in this turn or a later turn."""
        if super().is_irrelevant(entry):
            return True
        if entry.kind == "request":
            return self._name in entry.targets and self._is_closed(entry)
        if entry.kind == "response":
            return self._sub_requests.is_late(entry)
        sub_requests = self._sub_requests
        is_stale = "cancels" in entry.payload or sub_requests.is_awaited(entry) or sub_requests.is_late(entry)
        return entry.kind == "status" and is_stale

    def _should_take(self, entry: OutboxEntry) -> bool:
        """Return True if the agent takes a turn for a request."""
        if self._name not in entry.targets:
            return False
        if self._take is None and entry.agent in self._callers:
            return not is_one_way_message(entry, self._mail)
        return accepts_requests(entry.agent, self._take, self._callers)

    def _is_assigned(self, request: OutboxEntry) -> bool:
        """Return True if the agent may handle a request now.

        A request to any of several targets rotates among the targets, `within` ticks each. The id of the request
        decides which target begins.
        """
        if not accepts_first_answer(request):
            return True
        # the tick alone decides the next turn, so the agent must not be cached as one without news
        self._mail.changing.add(self._name)
        pool = sorted(request.targets & self._mail.known_names) or [self._name]
        ticks_per_agent = get_count(request.payload, "within") or DEFAULT_WITHIN_TICKS
        turn_index = (self._mail.tick - request.tick) // ticks_per_agent
        # by the id, not at random: a replay must come to the same agent
        return pool[(zlib.crc32(request.id.encode()) + turn_index) % len(pool)] == self._name

    def _new_requests(self) -> Iterator[tuple[EntryName, OutboxEntry]]:
        """Yield the requests not handled by any turn yet, the oldest first."""
        authors = self._mail.agents if self._take == "one" else self._callers
        started = {open_request.request for open_request in self._sub_requests.open_requests}
        visible_authors = sorted(filter(self._view.can_see, authors))
        # Not the other entries: there may be tens of thousands that ask for nothing.
        requests = [EntryNames(self._kinds.classify(self._mail, author).requests, []) for author in visible_authors]
        streams = map(self._view.iter_author_unread, visible_authors, requests)
        for name in merge(*streams, key=self._mail.key):
            entry = self._mail.read(name)
            if not isinstance(entry, OutboxEntry) or entry.kind != "request" or name.identity in started:
                continue
            # Not admitted: a person decides, or has rejected the request.
            if self._should_take(entry) and self._is_assigned(entry) and self.receive(entry) == "admitted":
                yield name, entry

    def _build_task(self, request: OutboxEntry | None, open_request: OpenRequest) -> Task:
        """Build the task of a turn for a request, with sub-requests, thread and the new read mark."""
        read = partial(load_entry, self._mail)
        sub_requests = [
            RequestOutcome(sub_request, read(sub_request.request), read(sub_request.answer))
            for sub_request in open_request.asked
        ]
        finished = parse_identities([open_request.request, *(sub_request.answer for sub_request in open_request.asked)])
        fresh = islice(self._iter_fresh_entries(), IRRELEVANT_SCAN_LIMIT)
        irrelevant = [name for name, entry in fresh if self.is_irrelevant(entry)]
        visible_names = [name for name in (*finished, *irrelevant) if self._view.can_see(name.author)]
        return Task(
            request=request,
            open_request=open_request,
            outcomes=sub_requests,
            thread=self._load_thread(request) if request else (),
            mark=self._view.next_mark(visible_names, (), is_complete=False),
            path=self._waiting_agents(request) if request else (),
        )

    def _waiting_agents(self, request: OutboxEntry) -> list[str]:
        """Return the agents waiting for a request, the nearest asker last, without persons."""
        asker = parse_reference(request.payload.get("owed_to")) or request.agent
        return [name for name in dict.fromkeys([*list_ancestors(request), asker]) if name not in self._mail.persons]

    def _iter_fresh_entries(self) -> Iterator[tuple[EntryName, OutboxEntry]]:
        """Yield the unshown entries of the agent with their names."""
        for name in self._view.iter_unread():
            if isinstance(entry := self._mail.read(name), OutboxEntry):
                yield name, entry

    def _has_older_news(self, limit: EntryName | None = None) -> bool:
        """Return True if an unshown entry without a separate turn exists, older than `limit` if given."""
        limit_key = self._mail.key(limit) if limit else None
        for name, entry in self._iter_fresh_entries():
            if limit_key and self._mail.key(name) > limit_key:
                return False
            if entry.is_news_to_reader(self._name, self._mail.known_names) and not self.is_excluded(entry):
                return True
        return False

    def _is_closed(self, request: OutboxEntry) -> bool:
        """Return True if a request to the agent is closed, with any outcome."""
        return self._resolver.resolve(request).is_resolved_for_assignee(self._name)

    def _load_thread(self, request: OutboxEntry) -> list[OutboxEntry]:
        """Return the earlier entries of the same conversation between the asker and the agent."""
        conversation = request.payload.get("conversation")
        if not isinstance(conversation, str) or not conversation:
            return []
        asked_at = next(map(self._mail.key, parse_identities([request.identity])))
        dated_entries: list[tuple[tuple[int, int, int, str], OutboxEntry]] = []
        for author, other in ((request.agent, self._name), (self._name, request.agent)):
            for name in self._mail.past_names(author).all[-THREAD_SCAN_LIMIT:]:
                entry, position = self._mail.read(name), self._mail.key(name)
                if not isinstance(entry, OutboxEntry) or (author == request.agent and position >= asked_at):
                    continue
                if other in entry.targets and entry.payload.get("conversation") == conversation:
                    dated_entries.append((position, entry))
        dated_entries.sort(key=itemgetter(0))
        return [entry for _, entry in dated_entries]

    def _iter_affecting_entries(self, author: str, tick: int) -> Iterator[tuple[EntryName, OutboxEntry]]:
        """Yield an author's entries since a tick with an effect on a request, and their names.

        Of the current tick, yield only readable entries written before the agent's turn, and entries of
        persons: a person's turn waits for no other turn.
        """
        since, entries = self._affecting_cache.get(author, (tick + 1, []))
        if since > tick:  # looked through once, and not for each request: an outbox may hold thousands
            names = EntryNames(self._kinds.classify(self._mail, author).affecting, [])
            entries = [*iter_affecting_entries(self._mail, names.all[names.next_index(tick - 1) :])]
            self._affecting_cache[author] = tick, entries
        today: Sequence[EntryName] = ()
        if self._view.can_see(author) or author in self._mail.persons:
            today = self._mail.author_entries_this_tick(author, self._name)
        yield from (item for item in entries if item[0].tick >= tick)
        yield from iter_affecting_entries(self._mail, today)
