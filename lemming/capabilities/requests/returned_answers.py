"""What an agent asked of others, as it stands: what of it has ended, and the answers that come back.

An answer to what is still open is for the turn that goes on with it; a late one is for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from lemming.capabilities.requests.deadlines import patient
from lemming.capabilities.requests.known_requests import KnownRequests, Moving
from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.mail.holds import Ends, Holds
from lemming.kernel.mail.references import named_in
from lemming.kernel.mail.visibility import Mail, View
from lemming.kernel.messages import EntryName, OutboxEntry, names_of
from lemming.kernel.plugins.capabilities import made_by


class ReturnedAnswers:
    """What one agent asked of others in the turns before, each as it stands in a tick.

    `moving`: what may move or end a request that an author wrote since a tick.
    """

    def __init__(
        self,
        view: View,
        name: str,
        begun: Sequence[Begun],
        known: KnownRequests,
        holds: Holds,
        moving: Moving,
    ) -> None:
        self._view, self._mail, self._name = view, view.mail, name
        self._begun, self._known, self._holds, self._moving = begun, known, holds, moving

    @cached_property
    def standing(self) -> list[Begun]:
        """What was begun and is still open, each as it stands now."""
        standing = []
        for begun in self._begun:
            request = read_entry(self._mail, begun.request)
            is_over = request is None or self._known.of(request).is_over_for(self._name)
            is_open = not (begun.request and is_over)
            if is_open and not begun.is_only_shown:
                standing.append(begun.ended(self._ends_of(begun)))
        return standing

    def _ends_of(self, begun: Begun) -> Ends:
        """Return how what was asked and is open has ended, where it has."""
        if any(it.not_after for it in begun.open):
            # time alone may end it, so the agent must not be remembered as one with nothing new
            self._mail.changing.add(self._name)
        begun = patient(self._mail, begun)
        ends = {it.key: end for it in begun.open if not it.held and (end := self._end_of(it))}
        if any(it.held for it in begun.open):
            ends |= self._holds.ends(begun, partial(read_entry, self._mail), self._entries_of, self._is_heard)
        return ends

    def _is_heard(self, person: str) -> bool:
        """Return whether a person's word counts for what the agent asks."""
        return person in self._mail.persons and self._may_converse(person)

    @cached_property
    def _awaited(self) -> frozenset[str]:
        """The requests whose answers a turn is to be taken for, by either form of their id."""
        asked = [it.request for begun in self.standing for it in begun.asked]
        return frozenset(asked).union(name.id for name in names_of(asked))

    def is_awaited(self, entry: OutboxEntry) -> bool:
        """Return whether an entry answers something that a turn is to go on with."""
        return not self._awaited.isdisjoint(named_in(entry.payload.get("reply_to")))

    def _end_of(self, asked: Asked) -> tuple[str, str] | None:
        """Return how something that was asked has ended, and the entry that answers it; None: it is open."""
        entry = read_entry(self._mail, asked.request)
        if entry is None or not self._may_converse(asked.to):  # no answer of its would be seen
            return "failed", ""
        known = self._known.of(entry)
        share = next((it for it in known.view.shares if it.target == asked.to), None)
        if share and share.end and share.answer:
            return share.end, share.answer.identity
        return (known.view.end, "") if known.view.end in ("cancelled", "expired") else None

    def _may_converse(self, other: str) -> bool:
        """Return whether the agent and another may read each other, so that one can answer the other."""
        resume = self._mail.resumes.get(other)
        if resume is None:
            return other in self._mail.named  # it is broken, and will be mended
        return resume.may_read(self._name) and self._view.sees(other)

    def is_late(self, answer: OutboxEntry) -> bool:
        """Return whether an answer is to something asked for a request that is open no more."""
        named = named_in(answer.payload.get("reply_to"))
        return bool(named) and not self.is_awaited(answer) and all(map(self._is_of_the_past, named))

    def _is_of_the_past(self, reference: str) -> bool:
        """Return whether a reference is to something that the agent asked for a request of its own."""
        name = self._own.get(reference.rpartition("_")[2])
        asked = self._mail.read(name) if name else None
        return isinstance(asked, OutboxEntry) and ("parent" in asked.payload or bool(made_by(asked.payload)))

    @cached_property
    def _own(self) -> dict[str, EntryName]:
        return {name.id: name for name in self._mail.past(self._name).all}

    def _entries_of(self, author: str, tick: int) -> Iterator[OutboxEntry]:
        """Yield what may move or end a request that an author wrote since a tick."""
        return (entry for _, entry in self._moving(author, tick))


def read_entry(mail: Mail, identity: str) -> OutboxEntry | None:
    """Return the entry that author/tick_id names; None where there is none that can be read."""
    found = next((mail.read(name) for name in names_of([identity])), None) if identity else None
    return found if isinstance(found, OutboxEntry) else None
