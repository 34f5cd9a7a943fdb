"""What people vouch for: an entry of theirs that says that something may be trusted as far as they are.

`payload.vouches_for` names an entry (`author/tick_id`), a memory or a file; with a memory or a file goes
`payload.sha256`, what it held: whatever stands there later is not what was vouched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.messages import EntryName, OutboxEntry, list_outbox, read_entry
from lemming.kernel.org.organisation import Organisation

KEY, DIGEST = "vouches_for", "sha256"


class Vouch(NamedTuple):
    """Somebody's word for something. `entry`: where it was given, as an identity."""

    what: str
    sha256: str
    person: str
    entry: str


class Vouches:
    """What the people of one organisation vouch for: `org.own(Vouches)`. Entries are read once."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._read: dict[EntryName, Vouch | None] = {}

    def by(self, people: Iterable[str], until: int) -> Iterator[Vouch]:
        """Yield what these people vouch for in entries up to a tick, as their outboxes are now."""
        for person in people:
            for name in list_outbox(self._org, person):
                if name.tick <= until and (vouch := self._of(name)):
                    yield vouch

    def is_one(self, name: EntryName) -> bool:
        """Return whether an entry says that its author vouches for something."""
        return self._of(name) is not None

    def _of(self, name: EntryName) -> Vouch | None:
        if name not in self._read:
            try:
                self._read[name] = vouch_in(read_entry(self._org, name))
            except ConfigError:
                self._read[name] = None
            except FileNotFoundError:
                return None
        return self._read[name]


def vouch_in(entry: OutboxEntry) -> Vouch | None:
    """Return what an entry vouches for; None for one that does not."""
    what, digest = entry.payload.get(KEY), entry.payload.get(DIGEST, "")
    if not isinstance(what, str) or not isinstance(digest, str) or (not digest and not is_entry(what)):
        return None
    return Vouch(what, digest, entry.agent, entry.identity)


def is_entry(what: str) -> bool:
    """Return whether something that is vouched for is an entry, which never changes.

    >>> is_entry("mail/00000042_a6049e5decfa"), is_entry("shared/notes.txt")
    (True, False)
    """
    author, _, name = what.partition("/")
    tick, _, ident = name.partition("_")
    return author != "shared" and len(tick) >= 8 and tick.isdigit() and ident.isalnum()


def payload_of(what: str, digest: str) -> Mapping[str, Any]:
    """Return the payload by which a person vouches for something."""
    return {KEY: what, **({DIGEST: digest} if digest else {}), "text": f"I vouch for {what}."}
