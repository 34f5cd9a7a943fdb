"""Ticks without a journal: no agent took a turn, or the journal was removed.

Each journal names its predecessor (`after`, docs/formats.md), which distinguishes the two cases.
"""

from __future__ import annotations

from typing import Literal

from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.journal_file import drop_unstarted, journal_ticks, read_journal
from lemming.kernel.journal.journal_parser import find_plan
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick, newest_ledger_tick


def find_lost_ticks(previous: int | None, predecessor: int | None) -> range:
    """Return the ticks with a removed journal between two journals; the later journal names `predecessor` as
    its predecessor.

    The last returned tick had a journal; for the earlier ticks this is unknown. `previous` is None if the
    later journal is the oldest.

    >>> list(find_lost_ticks(5, 5)), list(find_lost_ticks(5, 7)), list(find_lost_ticks(None, None))
    ([], [6, 7], [])
    """
    first = 0 if previous is None else previous + 1
    return range(first, first if predecessor is None else predecessor + 1)


def explain_missing_journal(base: OrgPath, tick: int) -> Literal["quiet", "gone", "not run"]:
    """Return the reason a tick has no journal.

    "quiet": no agent took a turn. "gone": there was a journal, or possibly was. Raises `CorruptState` if the
    next journal cannot be read.
    """
    ticks = journal_ticks(base)
    if tick >= load_tick(base):
        return "not run"
    previous = max((journal_tick for journal_tick in ticks if journal_tick < tick), default=None)
    later = min((journal_tick for journal_tick in ticks if journal_tick > tick), default=None)
    # no later journal names the one before it; ledgers were written by turns, and turns have journals
    if later is None:
        return "gone" if tick <= newest_ledger_tick(base) else "quiet"
    plan = find_plan(read_journal(base, later))
    return "gone" if tick in find_lost_ticks(previous, plan.after if plan else None) else "quiet"


def missing_journal_error(base: OrgPath, tick: int) -> UsageError:
    """Return the error for a request of a tick without a journal, or of a tick not yet started."""
    ticks = drop_unstarted(base, journal_ticks(base))
    if not ticks:
        return UsageError("no tick has run yet", hint="run a tick with `lemming run-once`")
    nearest = sorted(ticks, key=lambda journal_tick: abs(journal_tick - tick))[:2]
    hint = f"name the nearest tick with a journal: {' or '.join(map(str, sorted(nearest)))}"
    match explain_missing_journal(base, tick):
        case "quiet":
            return UsageError(f"no agent took a turn in tick {tick}, so it has no journal", hint=hint)
        case "gone" if tick < ticks[0] and load_config(base).org.kept_journals is not None:
            hint = f"name a tick from {ticks[0]} on; config/org.json kept_journals sets how many are kept"
            return UsageError(f"the journal of tick {tick} has been removed", hint=hint)
        case "gone":
            return UsageError(f"the journal of tick {tick} is missing", hint=f"{hint}; see also `lemming verify`")
        case _:
            return UsageError(f"tick {tick} has not run", hint=f"name a tick up to {ticks[-1]}")
