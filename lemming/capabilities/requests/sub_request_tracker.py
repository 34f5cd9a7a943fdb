"""Track the sub-requests of an agent: outcomes and returning answers.

A turn that continues the parent request consumes an answer to an open sub-request. No turn consumes a late
answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from lemming.capabilities.requests.request_resolver import AffectingEntries, RequestResolver
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import RequestOutcomes
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.messages import EntryName, OutboxEntry, parse_identities
from lemming.kernel.obligations.decisions import find_approval_outcomes, is_approval_request
from lemming.kernel.obligations.request_deadlines import extend_deadlines
from lemming.kernel.obligations.request_payloads import parse_references


class SubRequestTracker:
    """The sub-requests of an agent's earlier turns, with their outcomes in the current tick.

    `affecting_entries`: returns an author's entries since a tick with an effect on a request.
    """

    def __init__(
        self,
        view: ReaderView,
        name: str,
        open_requests: Sequence[OpenRequest],
        resolver: RequestResolver,
        affecting_entries: AffectingEntries,
    ) -> None:
        self._view, self._mail, self._name = view, view.mail, name
        self._open_requests, self._resolver = open_requests, resolver
        self._affecting_entries = affecting_entries

    @cached_property
    def open_requests(self) -> list[OpenRequest]:
        """The agent's open requests, with the current outcomes of their sub-requests."""
        open_requests = []
        for open_request in self._open_requests:
            request = load_entry(self._mail, open_request.request)
            is_closed = request is None or self._resolver.resolve(request).is_resolved_for_assignee(self._name)
            is_open = not (open_request.request and is_closed)
            if is_open and not open_request.is_untouched:
                open_requests.append(open_request.with_outcomes(self._outcomes(open_request)))
        return open_requests

    def _outcomes(self, open_request: OpenRequest) -> RequestOutcomes:
        """Return the outcomes of sub-requests that have ended."""
        if any(sub_request.not_after for sub_request in open_request.open_sub_requests):
            # time alone may end it, so the agent must not be remembered as one with nothing new
            self._mail.changing.add(self._name)
        open_request = extend_deadlines(self._mail, open_request)
        outcomes = {
            sub_request.key: outcome
            for sub_request in open_request.open_sub_requests
            if not sub_request.held and (outcome := self._outcome(sub_request))
        }
        if any(sub_request.held for sub_request in open_request.open_sub_requests):
            outcomes |= find_approval_outcomes(
                open_request,
                self._mail.tick,
                self._mail.at,
                partial(load_entry, self._mail),
                self._author_entries,
                self._is_authorized,
            )
        return outcomes

    def _is_authorized(self, person: str) -> bool:
        """Return True if a person's decision counts for the agent's requests."""
        return person in self._mail.persons and self._can_exchange(person)

    @cached_property
    def _awaited_ids(self) -> frozenset[str]:
        """The requests with an awaited answer, by id and by identity."""
        identities = [sub_request.request for open_request in self.open_requests for sub_request in open_request.asked]
        return frozenset(identities).union(name.id for name in parse_identities(identities))

    def is_awaited(self, entry: OutboxEntry) -> bool:
        """Return True if an entry answers a sub-request of a continuing request."""
        return not self._awaited_ids.isdisjoint(parse_references(entry.payload.get("reply_to")))

    def _outcome(self, sub_request: SubRequest) -> tuple[str, str] | None:
        """Return the outcome of a sub-request and the identity of the answer, or None while open."""
        entry = load_entry(self._mail, sub_request.request)
        if entry is None or not self._can_exchange(sub_request.to):  # no answer of its would be seen
            return "failed", ""
        resolved = self._resolver.resolve(entry)
        assignment = next(
            (candidate for candidate in resolved.view.assignments if candidate.target == sub_request.to), None
        )
        if assignment and assignment.end and assignment.answer:
            return assignment.end, assignment.answer.identity
        return (resolved.view.end, "") if resolved.view.end in ("cancelled", "expired") else None

    def _can_exchange(self, other: str) -> bool:
        """Return True if the agent and another agent can read each other."""
        resume = self._mail.resumes.get(other)
        if resume is None:
            return other in self._mail.known_names  # it is broken, and will be mended
        return resume.may_read(self._name) and self._view.can_see(other)

    def is_late(self, answer: OutboxEntry) -> bool:
        """Return True for an answer to a sub-request of a closed request."""
        references = parse_references(answer.payload.get("reply_to"))
        return bool(references) and not self.is_awaited(answer) and all(map(self._is_own_reference, references))

    def _is_own_reference(self, reference: str) -> bool:
        """Return True if a reference names an earlier sub-request of the agent."""
        name = self._own_entries.get(reference.rpartition("_")[2])
        entry = self._mail.read(name) if name else None
        return isinstance(entry, OutboxEntry) and ("parent" in entry.payload or is_approval_request(entry.payload))

    @cached_property
    def _own_entries(self) -> dict[str, EntryName]:
        return {name.id: name for name in self._mail.past_names(self._name).all}

    def _author_entries(self, author: str, tick: int) -> Iterator[OutboxEntry]:
        """Return an author's entries since a tick with an effect on a request."""
        return (entry for _, entry in self._affecting_entries(author, tick))


def load_entry(mail: MailView, identity: str) -> OutboxEntry | None:
    """Return the entry named author/tick_id, or None without a readable entry."""
    entry = next((mail.read(name) for name in parse_identities([identity])), None) if identity else None
    return entry if isinstance(entry, OutboxEntry) else None
