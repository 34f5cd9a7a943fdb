"""Classify the entries of an outbox: questions, answers and entries that affect a request.

Only new entries are read.

A turn needs the few entries about requests among tens of thousands, and most entries concern no request.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.organisation import Organisation


@dataclass
class OutboxClassification:
    """The entries of one outbox from earlier ticks, classified by their effect on requests.

    `requests` open a request. `moving` answer a request, report on one, or hand one off. `unasked` are
    answers without a request. An unreadable entry is in all lists, because its file may be repaired.
    """

    requests: list[EntryName] = field(default_factory=list)
    affecting: list[EntryName] = field(default_factory=list)
    unsolicited: list[EntryName] = field(default_factory=list)
    _names: EntryNames | None = None
    _unreadable: set[EntryName] = field(default_factory=set)

    def refresh(self, mail: MailView, names: EntryNames) -> None:
        """Classify the new names, and names that could not be read earlier."""
        if any(isinstance(mail.read(name), OutboxEntry) for name in self._unreadable):  # it was mended
            self._names = None
        if names is self._names:
            return
        old_names = self._names.all if self._names else []
        # Where something is gone, or another entry may stand under a name, all are looked at anew.
        if len(names.all) == len(old_names) or names.all[: len(old_names)] != old_names:
            old_names, self._unreadable = [], set()
            self.requests, self.affecting, self.unsolicited = [], [], []
        for name in names.all[len(old_names) :]:
            self._classify(name, mail.read(name))
        self._names = names

    def _classify(self, name: EntryName, entry: object) -> None:
        if not isinstance(entry, OutboxEntry):
            self._unreadable.add(name)
            for names in (self.requests, self.affecting, self.unsolicited):
                names.append(name)
            return
        if entry.kind == "request":
            self.requests.append(name)
        if entry.kind in ("response", "status") or "hands_on" in entry.payload:
            self.affecting.append(name)
        if entry.kind == "response" and "reply_to" not in entry.payload:
            self.unsolicited.append(name)


class EntryClassifier:
    """The classified entries of an organisation's outboxes: `org.own(EntryClassifier)`."""

    def __init__(self, _: Organisation) -> None:
        self._outboxes: dict[str, OutboxClassification] = {}

    def classify(self, mail: MailView, author: str) -> OutboxClassification:
        """Return the classified entries that an author wrote before this tick."""
        classification = self._outboxes.setdefault(author, OutboxClassification())
        classification.refresh(mail, mail.past_names(author))
        return classification
