"""Agenda of an agent: the task of its next turn, and the entries left for other turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.resume import Take

Reception = Literal["admitted", "deferred", "rejected"]
"""Decision on a new entry: it may be shown, it stays unread for now, or it is never shown as new."""


class RequestPolicy(NamedTuple):
    """Decisions of capabilities on an agent's requests and new entries.

    `waiting`: requests that must still wait, although none of their sub-requests is open. `continued`: requests that
    continue now, although one is open. `receive`: returns the decision on an entry; None: every entry is admitted.
    """

    waiting: Collection[str]
    continued: Collection[str]
    receive: Callable[[OutboxEntry], Reception] | None


@accept_old_names
class Agenda:
    """Work list of an agent. This one takes no requests, so each turn is for the inbox; a context provider may return another.

    `only_addressed`: True if entries not addressed to the agent are never new to it. `request_policy`: says which
    entries wait and which are never shown.
    """

    def __init__(self, name: str, request_policy: RequestPolicy, *, only_addressed: bool) -> None:
        self._name, self._request_policy, self.only_addressed = name, request_policy, only_addressed

    def next_task(self, last: str, served_requests: Collection[str] = ()) -> Task | None:
        """Return the purpose of the next turn, or None for the inbox.

        `last`: the request of the previous turn. `served_requests`: the requests of the agent's earlier turns in this
        tick; an empty string stands for the agent's own sub-requests.
        """
        return None

    def inbox_requests(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return the requests a turn for the inbox may answer: earlier requests, and requests in `unread`."""
        return ()

    def is_excluded(self, entry: OutboxEntry) -> bool:
        """Return True if an unseen entry does not count as news for the inbox."""
        return self.is_irrelevant(entry) or self.is_deferred(entry)

    def is_deferred(self, entry: OutboxEntry) -> bool:
        """Return True if an entry is deferred: to a turn of its own, or until a person admits it."""
        return self.receive(entry) == "deferred"

    def is_irrelevant(self, entry: OutboxEntry) -> bool:
        """Return True if an entry is skipped and never shown as new."""
        is_other = self.only_addressed and self._name not in entry.targets
        return is_other or self.receive(entry) == "rejected"

    def receive(self, entry: OutboxEntry) -> Reception:
        """Return the decision of the capabilities on a new entry."""
        return self._request_policy.receive(entry) if self._request_policy.receive else "admitted"


def can_accept_requests(view: ReaderView, take: Take) -> bool:
    """Return True if an agent accepts requests, or has unread entries of callers waiting for its answers."""
    if take is not None:
        return True
    callers = filter(view.can_see, view.mail.get_callers(view.reader))
    return any(next(view.iter_author_unread(author), None) is not None for author in callers)


def is_one_way_message(entry: OutboxEntry, mail: MailView) -> bool:
    """Return True for a person's message that expects no reply.

    A message with a budget counts as a request: only a separate turn can be limited to the budget.
    """
    return entry.agent in mail.persons and not {"conversation", "budget"} & entry.payload.keys()


def has_new_request(view: ReaderView) -> bool:
    """Return True if an agent has an unread request from a caller waiting for its answers."""
    callers = filter(view.can_see, view.mail.get_callers(view.reader))
    entries = (view.mail.read(name) for author in callers for name in view.iter_author_unread(author))
    requests = (entry for entry in entries if isinstance(entry, OutboxEntry) and entry.kind == "request")
    return any(view.reader in entry.targets and not is_one_way_message(entry, view.mail) for entry in requests)


RequestOutcomes = dict[tuple[str, str], tuple[str, str]]
"""The end of each sub-request and the entry that ended it, by `SubRequest.key`."""
EntryLister = Callable[[str, int], Iterable[OutboxEntry]]
"""Yields an author's entries since a tick that may move or end a request."""


@accept_old_names
class RequestOutcome(NamedTuple):
    """Outcome of a sub-request: the asking entry and the answer."""

    sub_request: SubRequest
    entry: OutboxEntry | None
    answer: OutboxEntry | None

    @property
    def answer_payload(self) -> dict[str, Any] | None:
        """The payload of the answer, or the default of a request that expired without an answer."""
        if self.answer is not None:
            return self.answer.payload
        default = self.entry.payload.get("default") if self.entry else None
        if self.sub_request.end != "expired" or default is None:
            return None
        return default if isinstance(default, dict) else {"text": default}


@accept_old_names
class Task(NamedTuple):
    """Task of a turn, for its prompt: a request and its conversation. Calls and replies use the `CurrentRequest`.

    `request`: the asking entry, or None for a continuation of the agent's own sub-requests. `open_request`: progress
    of the request. `outcomes`: outcomes of the sub-requests. `thread`: earlier entries of the same conversation,
    oldest first. `mark`: the mark after the commit. `path`: the chain of agents waiting for the request, each for the
    next; people are left out.
    """

    request: OutboxEntry | None
    open_request: OpenRequest
    outcomes: Sequence[RequestOutcome]
    thread: Sequence[OutboxEntry]
    mark: ReadMark
    path: Sequence[str] = ()
