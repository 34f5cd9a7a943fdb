"""Taking back what a person has just written: until the next tick begins nobody has seen it."""

from __future__ import annotations

from pathlib import Path

from lemming.agents import survey_agents
from lemming.base.errors import UsageError
from lemming.files import fs
from lemming.journal.file import last_record
from lemming.messages import OutboxEntry, names_of, read_outbox_entries
from lemming.org.config import load_config
from lemming.org.organisation import Organisation, OrgPath
from lemming.tick.counter import load_tick
from lemming.tick.firing_plan import people_in

TOO_LATE = "it is too late to take that back: a tick has begun, and what you wrote may have been read"


def take_back(base: OrgPath, identity: str, *, person: str | None = None) -> OutboxEntry:
    """Remove an entry that a person wrote for the tick that is to come, and return what it was.

    Raises `UsageError` where it is not there, is somebody else's, or a tick has begun since.
    """
    org = Organisation.at(base)
    name = next(iter(names_of([identity])), None)
    people = people_in(survey_agents(org), load_config(org))
    if name is None or name.author not in people or person not in (None, name.author):
        raise UsageError(f'"{identity[:80]}" is nothing that you wrote')
    entry = next((it for it in read_outbox_entries(org, name.author) if it.identity == identity), None)
    if entry is None:
        raise UsageError("it is not there any more")
    _require_unread(org, entry.tick)
    fs.remove(Path(org.base), entry.file)
    try:
        _require_unread(org, entry.tick)
    except UsageError:  # a tick has begun meanwhile, and may have it on record
        fs.create(Path(org.base), entry.file, entry.content)
        raise
    return entry


def _require_unread(org: Organisation, tick: int) -> None:
    if load_tick(org) != tick or last_record(org, tick) is not None:
        raise UsageError(TOO_LATE)
