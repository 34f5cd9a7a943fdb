"""Ticks on the command line, such as `7`, `3-9` or `3..`; and the reason a tick has no journal.

Without a journal no agent took a turn, or the journal was removed. Each journal names its predecessor (`after`,
docs/formats.md), which distinguishes the two cases.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from lemming.kernel.base.errors import UsageError
from lemming.kernel.journal.journal_file import journal_ticks, read_journal
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick, newest_ledger_tick
from lemming.read_model.journal_ticks import drop_unstarted

_TICK_RANGE = re.compile(r"(\d{1,12})?(?:(-|\.\.)(\d{1,12})?)?\Z", re.ASCII)


class TickRange(NamedTuple):
    """A range of ticks, both ends included; `last` is None for an open end."""

    first: int
    last: int | None = None

    def __contains__(self, tick: object) -> bool:
        return isinstance(tick, int) and self.first <= tick and (self.last is None or tick <= self.last)


def parse_tick_range(text: str) -> TickRange:
    """Parse a range of ticks: `7`, `3..9` or `3-9`, `3..` (from 3 on), `..9`.

    Raises `UsageError` for any other text.

    >>> parse_tick_range("7"), parse_tick_range("3..9"), parse_tick_range("3..")
    (TickRange(first=7, last=7), TickRange(first=3, last=9), TickRange(first=3, last=None))
    """
    match = _TICK_RANGE.match(text.strip())
    if not match or not (match[1] or match[3]) or (match[2] == "-" and not (match[1] and match[3])):
        message = f'expected a tick or a range of ticks, got "{text[:40]}"'
        raise UsageError(message, hint="write 7, 3..9, 3.. or ..9")
    first = int(match[1] or 0)
    if not match[2]:
        return TickRange(first, first)
    last = int(match[3]) if match[3] else None
    if last is not None and last < first:
        raise UsageError(f'a range must end after it begins, got "{text}"', hint=f"write {last}..{first}")
    return TickRange(first, last)


def list_journals(base: OrgPath, text: str | None) -> list[int]:
    """Return the selected ticks with a journal, as `select_ticks` does."""
    return select_ticks(text, journal_ticks(base))


def select_ticks(text: str | None, available: list[int]) -> list[int]:
    """Return the available ticks in a range (see `parse_tick_range`), or all ticks without a text.

    Raises `UsageError` for an invalid range, and if no available tick is in the range.

    >>> select_ticks("3-9", [1, 2, 3, 5, 8, 13])
    [3, 5, 8]
    """
    if text is None:
        return available
    tick_range = parse_tick_range(text)
    ticks = [tick for tick in available if tick in tick_range]
    if not ticks:
        span = f"choose among the journals of {available[0]} to {available[-1]}" if available else ""
        hint = f"a tick without turns has no journal; {span}" if span else "no tick has run yet"
        raise UsageError(f"no journal of tick {text}", hint=hint)
    return ticks


def find_lost_ticks(previous: int | None, predecessor: int | None) -> range:
    """Return the ticks with a removed journal between two journals; the later journal names `predecessor`.

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
    started = find_tick_started(read_journal(base, later))
    return "gone" if tick in find_lost_ticks(previous, started.after if started else None) else "quiet"


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
