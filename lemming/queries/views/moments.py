"""Entries by identity, and the time of writing of each by the local clock, for every part of the page.

An entry written from a recorded answer has the time of the recording, possibly weeks before the tick. Screens
show the local time instead: never earlier than the start of its tick.
"""

from __future__ import annotations

from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import OutboxEntry, may_be_from_turn, parse_identities
from lemming.kernel.org.organisation import Organisation
from lemming.read_model.tick_queries import load_start_time


def find_entry(org: Organisation, identity: str) -> OutboxEntry | None:
    """Return the entry `AUTHOR/TICK_ID`, or None if there is none that can be read."""
    entry = next((org.get_cache(EntryIndex).read(name) for name in parse_identities([identity])), None)
    return entry if isinstance(entry, OutboxEntry) else None


def find_local_time(org: Organisation, entry: OutboxEntry) -> str:
    """Return the local time of writing of an entry, as a timestamp."""
    name = next(iter(parse_identities([entry.identity])), None)
    if name is None or not may_be_from_turn(name):
        return entry.created_at
    return max(entry.created_at, load_start_time(org, entry.tick))
