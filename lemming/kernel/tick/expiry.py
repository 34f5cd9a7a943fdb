"""Remove entries past their retention at the end of a tick, after recording them in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import EntriesExpired
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.memory import delete_memory
from lemming.kernel.tick.retention import expiry_warning, find_expired, total_unread
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.descriptions import ExpiredMemory, OrgQuery


def remove_expired(runtime: Runtime, journal: Journal, snapshot: Snapshot, active_agents: Sequence[str]) -> None:
    """Remove entries past their retention. The list is recorded first, so a second attempt agrees.

    `active_agents`: the agents with a turn in this tick. An agent that was never shown some of the entries is
    told in its next prompt; a person is told in the log.
    """
    expired = find_expired(snapshot.survey, snapshot.config, snapshot.mail, runtime.epoch, active_agents)
    record = next((record for record in journal.records if isinstance(record, EntriesExpired)), None)
    if record is None:
        if not expired.files:
            return
        totals = total_unread(runtime.org, expired.unread)
        unread: dict[str, Any] = {"unread": expired.unread, "unread_in_all": totals} if totals else {}
        record = journal.append(EntriesExpired(files=expired.files, **unread), sync=True)
        if totals:  # once the files are gone, nothing else tells of them
            journal.sync()
    # The file replaced below holds the old lines of the ledger.
    is_flushed = snapshot.config.org.durability != "off"
    for reader, count in record.unread_in_all.items():
        if reader in snapshot.survey.agents:
            state = replace(read_state(runtime.org, reader), expired_unread=count)
            amend_state(runtime.org, reader, state, sync=is_flushed)
            runtime.report_problem(expiry_warning(reader, record.unread.get(reader, count), snapshot.tick), reader)
    # Both must name it: an edited journal must remove nothing else.
    for file in filter({*expired.files}.__contains__, record.files):
        runtime.org.get_cache(EntryIndex).remove(file)


def remove_expired_memories(snapshot: Snapshot) -> None:
    """Remove the memories of due agents that capabilities declare expired. Raises `DiskError`."""
    for use in snapshot.capability_uses:
        due_agents = [name for name in snapshot.plan.order if name in use.agents]
        if due_agents and ExpiredMemory in use.capability.describes:
            agents = {name: snapshot.survey.agents[name] for name in due_agents}
            for item in OrgQuery(ExpiredMemory, snapshot.org, agents, snapshot.config).ask(use.capability):
                delete_memory(snapshot.base, item.agent, item.key)
