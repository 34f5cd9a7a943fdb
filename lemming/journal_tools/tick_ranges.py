"""Parses ticks on the command line, such as `7`, `3-9` or `3..`, and selects ticks with a journal."""

from __future__ import annotations

import re
from typing import NamedTuple

from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath

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
    from lemming.kernel.journal.journal_file import journal_ticks

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
        hint = "no tick has run yet"
        if available:
            journal_range = f"choose among the journals of {available[0]} to {available[-1]}"
            hint = f"a tick without turns has no journal; {journal_range}"
        raise UsageError(f"no journal of tick {text}", hint=hint)
    return ticks
