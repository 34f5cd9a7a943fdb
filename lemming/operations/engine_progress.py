"""The running engine of an organisation, and the progress of the newest ticks."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.errors import DiskError
from lemming.kernel.journal.journal_file import last_record
from lemming.kernel.journal.journal_records import TickCommitted
from lemming.kernel.org.organisation import OrgPath


def find_running_engine(base: OrgPath) -> dict[str, Any] | None:
    """Return the lock holder (pid, host, since, command), or None without a running engine."""
    from lemming.operations.lock_holder import load_holder

    try:
        return load_holder(base)
    except DiskError:  # a read-only folder
        return None


def describe_engine(holder: dict[str, Any]) -> str:
    """Describe the running engine in a line."""
    command = holder.get("command") or "an engine"
    return f"{command}, pid {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"


def is_tick_incomplete(base: OrgPath, tick: int) -> bool:
    """Return True if a tick has begun and not ended."""
    record = last_record(base, tick)
    return record is not None and not isinstance(record, TickCommitted)
