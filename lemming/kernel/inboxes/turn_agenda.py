"""Agenda of an agent: the purpose of its next turn, and the entries left for other turns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import RequestPolicy
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.resume import Take


class Agenda(Protocol):
    """Work list of an agent, built from its requests. One of the agent's context providers defines it.

    `only_addressed`: True if entries not addressed to the agent are never new to it.
    """

    only_addressed: bool

    def next_task(self, last: str, served_requests: Collection[str] = ()) -> Task | None:
        """Return the purpose of the next turn, or None for the inbox.

        `last`: the request of the previous turn.

        `served_requests`: the requests of the agent's earlier turns in this tick; an empty string stands for
        the agent's own sub-requests.
        """
        ...

    def inbox_requests(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return the requests a turn for the inbox may answer: earlier requests, and requests in `unread`."""
        ...

    def is_excluded(self, entry: OutboxEntry) -> bool:
        """Return True if an unseen entry does not count as news for the inbox."""
        ...

    def is_deferred(self, entry: OutboxEntry) -> bool:
        """Return True if an entry is deferred: to a turn of its own, or until a person admits it."""
        ...

    def is_irrelevant(self, entry: OutboxEntry) -> bool:
        """Return True if an entry is skipped and never shown as new."""
        ...


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


class InboxAgenda:
    """Default agenda of an agent, whose turns are for the inbox. `only_addressed` as in `Agenda`."""

    def __init__(self, name: str, request_policy: RequestPolicy, *, only_addressed: bool) -> None:
        self._name, self._request_policy, self.only_addressed = name, request_policy, only_addressed

    def next_task(self, last: str, served_requests: Collection[str] = ()) -> Task | None:
        """Return None: each turn is for the inbox."""
        return None

    def inbox_requests(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return an empty sequence: no entry is known to be a request."""
        return ()

    def is_excluded(self, entry: OutboxEntry) -> bool:
        """Return True if an entry does not count as news."""
        return self.is_irrelevant(entry) or self.is_deferred(entry)

    def is_deferred(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must not be shown yet."""
        return self._request_policy.should_withhold(entry)

    def is_irrelevant(self, entry: OutboxEntry) -> bool:
        """Return True if an entry is never new: rejected, or not addressed to an agent that wants only such entries."""
        is_other = self.only_addressed and self._name not in entry.targets
        return is_other or self._request_policy.should_reject(entry)
