"""What an agent's next turn is for, and which of its entries are left for another: who says so, and what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import Mail, View
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.resume import Take


class Agenda(Protocol):
    """What an agent has to do, by what it is asked: of those that take part in its turns, one says it.

    `only_addressed`: entries that do not name the agent are nothing new to it.
    """

    only_addressed: bool

    def next(self, last: str, taken: Collection[str] = ()) -> Task | None:
        """Return the purpose of the next turn; None for the inbox. `last` is the request of the turn before.

        `taken`: the requests that the agent's turns before in this tick were for; empty names what it asked
        on its own account.
        """
        ...

    def beside(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return the requests that a turn for its inbox may answer: of earlier ones, and of these entries."""
        ...

    def sets_aside(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is no news for the inbox, though the agent was not shown it."""
        ...

    def is_kept(self, entry: OutboxEntry) -> bool:
        """Return whether an entry waits: for a turn of its own, or for a person to let it in."""
        ...

    def is_nothing_new(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is passed over: it is not to be shown as new, now or later."""
        ...


def may_be_asked(view: View, take: Take) -> bool:
    """Return whether an agent takes requests, or has something new of those who wait for its answers."""
    if take is not None:
        return True
    callers = filter(view.sees, view.mail.callers_of(view.reader))
    return any(next(view.fresh_of(author), None) is not None for author in callers)


def is_only_said(entry: OutboxEntry, mail: Mail) -> bool:
    """Return True for a person's message that expects no reply.

    What has a budget is asked: only a turn of its own can be held to it.
    """
    return entry.agent in mail.persons and not {"conversation", "budget"} & entry.payload.keys()


def has_request(view: View) -> bool:
    """Return whether one of those who wait for its answers asks an agent for something that is new to it."""
    callers = filter(view.sees, view.mail.callers_of(view.reader))
    found = (view.mail.read(name) for author in callers for name in view.fresh_of(author))
    asked = (it for it in found if isinstance(it, OutboxEntry) and it.kind == "request")
    return any(view.reader in it.targets and not is_only_said(it, view.mail) for it in asked)


class NamedOnly:
    """The agenda of an agent that wakes for what names it, where nobody says more."""

    only_addressed = True

    def __init__(self, name: str) -> None:
        self._name = name

    def next(self, last: str, taken: Collection[str] = ()) -> Task | None:
        """Return that a turn is for the inbox."""
        return None

    def beside(self, unread: Iterable[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Return that none is known to be a request."""
        return ()

    def sets_aside(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is no news."""
        return self.is_nothing_new(entry)

    def is_kept(self, entry: OutboxEntry) -> bool:
        """Return that no entry waits."""
        return False

    def is_nothing_new(self, entry: OutboxEntry) -> bool:
        """Return whether an entry does not name the agent."""
        return self._name not in entry.targets
