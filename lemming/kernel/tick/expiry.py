"""What a tick removes at its end: entries past their retention, once the journal says which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.journal.records import EntriesExpired
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.tick.retention import find_expired, said_of, unread_in_all
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot


def remove_expired(runtime: Runtime, journal: Journal, snapshot: Snapshot, turned: Sequence[str]) -> None:
    """Remove entries past their retention; which ones is recorded first, so a second attempt agrees.

    `turned`: the agents that have taken turns in the tick. Who was never shown some of the entries is told so
    in its next prompt, and a person in the log.
    """
    found = find_expired(snapshot.survey, snapshot.config, snapshot.mail, runtime.epoch, turned)
    record = next((record for record in journal.records if isinstance(record, EntriesExpired)), None)
    if record is None:
        if not found.files:
            return
        in_all = unread_in_all(runtime.org, found.unread)
        unread: dict[str, Any] = {"unread": found.unread, "unread_in_all": in_all} if in_all else {}
        record = journal.append(EntriesExpired(files=found.files, **unread), sync=True)
        if in_all:  # once the files are gone nothing else says so
            journal.sync()
    is_flushed = snapshot.config.org.durability != "off"  # what is replaced holds a ledger's old lines
    for reader, count in record.unread_in_all.items():
        if reader in snapshot.survey.agents:
            state = replace(read_state(runtime.org, reader), expired_unread=count)
            amend_state(runtime.org, reader, state, sync=is_flushed)
            runtime.tell(said_of(reader, record.unread.get(reader, count), snapshot.tick), reader)
    for file in filter({*found.files}.__contains__, record.files):  # a journal removes nothing else
        runtime.org.own(EntryIndex).remove(file)
