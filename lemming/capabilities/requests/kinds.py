"""Which entries of an outbox ask, answer or move something: found out once, and later only of what is new.

Of tens of thousands of entries a turn needs the few that concern requests, and most entries are none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lemming.kernel.mail.index import Names
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.organisation import Organisation


@dataclass
class Kinds:
    """The entries of one outbox, of the ticks before this one, by what they do about requests.

    `requests` ask. `moving` answer, tell of one, or hand one on. `unasked` answer nothing that was asked.
    What could not be read is among all of them: it may be mended.
    """

    requests: list[EntryName] = field(default_factory=list)
    moving: list[EntryName] = field(default_factory=list)
    unasked: list[EntryName] = field(default_factory=list)
    _of: Names | None = None
    _doubtful: set[EntryName] = field(default_factory=set)

    def look(self, mail: Mail, names: Names) -> None:
        """Look at what is new among these names, and at what could not be read before."""
        if any(isinstance(mail.read(name), OutboxEntry) for name in self._doubtful):  # it was mended
            self._of = None
        if names is self._of:
            return
        before = self._of.all if self._of else []
        # Where something is gone, or another entry may stand under a name, all are looked at anew.
        if len(names.all) == len(before) or names.all[: len(before)] != before:
            before, self._doubtful = [], set()
            self.requests, self.moving, self.unasked = [], [], []
        for name in names.all[len(before) :]:
            self._take(name, mail.read(name))
        self._of = names

    def _take(self, name: EntryName, entry: object) -> None:
        if not isinstance(entry, OutboxEntry):
            self._doubtful.add(name)
            for known in (self.requests, self.moving, self.unasked):
                known.append(name)
            return
        if entry.kind == "request":
            self.requests.append(name)
        if entry.kind in ("response", "status") or "hands_on" in entry.payload:
            self.moving.append(name)
        if entry.kind == "response" and "reply_to" not in entry.payload:
            self.unasked.append(name)


class KindsOfEntries:
    """What kinds the entries of an organisation's outboxes are of: `org.own(KindsOfEntries)`."""

    def __init__(self, _: Organisation) -> None:
        self._outboxes: dict[str, Kinds] = {}

    def of(self, mail: Mail, author: str) -> Kinds:
        """Return the kinds of what an author wrote before this tick."""
        kinds = self._outboxes.setdefault(author, Kinds())
        kinds.look(mail, mail.past(author))
        return kinds
