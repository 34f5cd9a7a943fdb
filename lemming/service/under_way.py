"""Who runs an organisation now, and how far the newest ticks have come."""

from __future__ import annotations

from typing import Any

from lemming.kernel.base.errors import DiskError
from lemming.kernel.journal.file import last_record, newest_journals
from lemming.kernel.journal.records import TickCommitted
from lemming.kernel.org.organisation import OrgPath


def running_engine(base: OrgPath) -> dict[str, Any] | None:
    """Return who runs this organisation now (pid, host, since, command); None when nobody does."""
    from lemming.kernel.tick.holder import holder_of

    try:
        return holder_of(base)
    except DiskError:  # a folder that we may only look at
        return None


def describe_engine(holder: dict[str, Any]) -> str:
    """Return one line that says who runs the organisation."""
    what = holder.get("command") or "an engine"
    return (
        f"{what}, pid {holder.get('pid', '?')} on {holder.get('host', '?')} since {holder.get('since', '?')}"
    )


def last_committed_tick(base: OrgPath) -> TickCommitted | None:
    """Return the last record of the newest tick that ended: its number and its totals."""
    for tick in reversed(newest_journals(base, 2)):
        record = last_record(base, tick)
        if isinstance(record, TickCommitted):
            return record
    return None


def has_been_interrupted(base: OrgPath, tick: int) -> bool:
    """Return whether a tick was begun and has not ended."""
    record = last_record(base, tick)
    return record is not None and not isinstance(record, TickCommitted)
