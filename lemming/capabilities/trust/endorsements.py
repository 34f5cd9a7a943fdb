"""Endorsements: a person's entry raises the trust label of a subject to the person's label.

`payload.vouches_for` names an entry (`author/tick_id`), a memory or a file. For a memory or a file,
`payload.sha256` is the digest of the endorsed content: the endorsement does not cover later content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lemming.ext import ConfigError
from lemming.kernel.messages import EntryName, OutboxEntry, list_outbox, read_entry
from lemming.kernel.org.organisation import Organisation

KEY, DIGEST = "vouches_for", "sha256"


class Endorsement(NamedTuple):
    """A person's endorsement of a subject. `entry`: the identity of the endorsing entry."""

    subject: str
    sha256: str
    person: str
    entry: str


class EndorsementLog:
    """The endorsements of an organisation's persons: `org.own(EndorsementLog)`. Each entry is read once."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._read: dict[EntryName, Endorsement | None] = {}

    def iter_from_people(self, people: Iterable[str], last_tick: int) -> Iterator[Endorsement]:
        """Yield the endorsements of persons in entries up to a tick, from the current outboxes."""
        for person in people:
            for name in list_outbox(self._org, person):
                if name.tick <= last_tick and (endorsement := self._read_endorsement(name)):
                    yield endorsement

    def is_endorsement(self, name: EntryName) -> bool:
        """Return True if an entry contains an endorsement."""
        return self._read_endorsement(name) is not None

    def _read_endorsement(self, name: EntryName) -> Endorsement | None:
        if name not in self._read:
            try:
                self._read[name] = parse_endorsement(read_entry(self._org, name))
            except ConfigError:
                self._read[name] = None
            except FileNotFoundError:
                return None
        return self._read[name]


def parse_endorsement(entry: OutboxEntry) -> Endorsement | None:
    """Return the endorsement in an entry, or None without one."""
    subject, digest = entry.payload.get(KEY), entry.payload.get(DIGEST, "")
    if not isinstance(subject, str) or not isinstance(digest, str) or (not digest and not is_entry_identity(subject)):
        return None
    return Endorsement(subject, digest, entry.agent, entry.identity)


def is_entry_identity(subject: str) -> bool:
    """Return True if an endorsed subject is an entry. Entries never change.

    >>> is_entry_identity("mail/00000042_a6049e5decfa"), is_entry_identity("shared/notes.txt")
    (True, False)
    """
    author, _, name = subject.partition("/")
    tick, _, ident = name.partition("_")
    return author != "shared" and len(tick) >= 8 and tick.isdigit() and ident.isalnum()


def build_payload(subject: str, digest: str) -> Mapping[str, Any]:
    """Return the payload of a person's endorsement."""
    return {KEY: subject, **({DIGEST: digest} if digest else {}), "text": f"I vouch for {subject}."}
