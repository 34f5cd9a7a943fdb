"""Ticks without a journal: nobody took a turn in them, or their journal is gone.

Each journal names the newest one before it (`after`, docs/formats.md), so the two can be told apart.
"""

from __future__ import annotations

from typing import Literal

from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.file import begun, journal_ticks, read_journal
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick, newest_in_ledgers


def lost_between(before: int | None, named: int | None) -> range:
    """Return the ticks whose journals are gone between two; the later one names `named` as the one before it.

    The last of them had a journal; nothing tells any more which of the others had. `before` is None when the
    later one is the oldest there is.

    >>> list(lost_between(5, 5)), list(lost_between(5, 7)), list(lost_between(None, None))
    ([], [6, 7], [])
    """
    first = 0 if before is None else before + 1
    return range(first, first if named is None else named + 1)


def state_of(base: OrgPath, tick: int) -> Literal["quiet", "gone", "not run"]:
    """Return why a tick has no journal.

    quiet: nobody took a turn in it. gone: it had a journal, or may have had one. Raises `CorruptState` when
    the journal after it cannot be read.
    """
    ticks = journal_ticks(base)
    if tick >= load_tick(base):
        return "not run"
    before = max((each for each in ticks if each < tick), default=None)
    later = min((each for each in ticks if each > tick), default=None)
    # no later journal names the one before it; ledgers were written by turns, and turns have journals
    if later is None:
        return "gone" if tick <= newest_in_ledgers(base) else "quiet"
    plan = plan_in(read_journal(base, later))
    return "gone" if tick in lost_between(before, plan.after if plan else None) else "quiet"


def no_journal(base: OrgPath, tick: int) -> UsageError:
    """Return the error for a person who asks for a tick that has no journal, or one that has not begun."""
    ticks = begun(base, journal_ticks(base))
    if not ticks:
        return UsageError("no tick has been run here", hint="`lemming run-once` runs one")
    nearest = sorted(ticks, key=lambda each: abs(each - tick))[:2]
    hint = f"the nearest that has one: {' and '.join(map(str, sorted(nearest)))}"
    match state_of(base, tick):
        case "quiet":
            return UsageError(f"nobody took a turn in tick {tick}, so it has no journal", hint=hint)
        case "gone" if tick < ticks[0] and load_config(base).org.kept_journals is not None:
            hint = f"the oldest that is kept: {ticks[0]}; config/org.json kept_journals says how many"
            return UsageError(f"the journal of tick {tick} is no longer kept", hint=hint)
        case "gone":
            return UsageError(
                f"the journal of tick {tick} is gone", hint=f"{hint}; `lemming verify` says more"
            )
        case _:
            return UsageError(
                f"tick {tick} has not been run", hint=f"the newest that has a journal: {ticks[-1]}"
            )
