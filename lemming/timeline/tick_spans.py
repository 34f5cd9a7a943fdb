"""Which ticks a person means by `7`, `3-9` or `3..`, of those that have a journal."""

from __future__ import annotations

import re
from typing import NamedTuple

from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import OrgPath

_SPAN = re.compile(r"(\d{1,12})?(?:(-|\.\.)(\d{1,12})?)?\Z", re.ASCII)


class TickSpan(NamedTuple):
    """Ticks from a first to a last one, both in it; `last` is None where there is no end."""

    first: int
    last: int | None = None

    def __contains__(self, tick: object) -> bool:
        return isinstance(tick, int) and self.first <= tick and (self.last is None or tick <= self.last)


def span_of(text: str) -> TickSpan:
    """Return the ticks that a person means by `7`, `3..9` or `3-9`, `3..` (from there on), `..9`.

    Raises `UsageError` for anything else.

    >>> span_of("7"), span_of("3..9"), span_of("3..")
    (TickSpan(first=7, last=7), TickSpan(first=3, last=9), TickSpan(first=3, last=None))
    """
    match = _SPAN.match(text.strip())
    if not match or not (match[1] or match[3]) or (match[2] == "-" and not (match[1] and match[3])):
        why = f'"{text[:40]}" is neither a tick nor a span of ticks'
        raise UsageError(why, hint="write 7, 3..9, 3.. or ..9")
    first = int(match[1] or 0)
    if not match[2]:
        return TickSpan(first, first)
    last = int(match[3]) if match[3] else None
    if last is not None and last < first:
        raise UsageError(f'"{text}" ends before it begins', hint=f"write {last}..{first}")
    return TickSpan(first, last)


def journals_of(base: OrgPath, text: str | None) -> list[int]:
    """Return the ticks with a journal that a person means, as `parse_ticks`."""
    from lemming.kernel.journal.file import journal_ticks

    return parse_ticks(text, journal_ticks(base))


def parse_ticks(text: str | None, known: list[int]) -> list[int]:
    """Return the ticks that a person means (`span_of`; by nothing: all), out of the known ones.

    Raises `UsageError` for what names no ticks, and when none of them is known.

    >>> parse_ticks("3-9", [1, 2, 3, 5, 8, 13])
    [3, 5, 8]
    """
    if text is None:
        return known
    wanted = span_of(text)
    ticks = [tick for tick in known if tick in wanted]
    if not ticks:
        span = "nothing has run here yet"
        if known:
            there = f"there are journals of {known[0]} to {known[-1]}"
            span = f"a tick in which nobody took a turn has none; {there}"
        raise UsageError(f"no journal of tick {text}", hint=span)
    return ticks
