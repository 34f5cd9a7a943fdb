"""The past of an organisation, read from its journals: check it, run it again. Nothing here calls a model."""

from __future__ import annotations

import re

from lemming.errors import UsageError

_SPAN = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?\Z")


def parse_ticks(text: str | None, known: list[int]) -> list[int]:
    """Return the ticks that a person means by `7`, by `3-9`, or by nothing (all), out of the known ones.

    Raises `UsageError` for anything else, and when none of them is known.

    >>> parse_ticks("3-9", [1, 2, 3, 5, 8, 13])
    [3, 5, 8]
    """
    if text is None:
        return known
    match = _SPAN.match(text)
    if not match:
        raise UsageError(f'"{text[:40]}" is neither a tick nor a span of ticks', hint="write 7, or 3-9")
    first, last = int(match[1]), int(match[2] or match[1])
    ticks = [tick for tick in known if first <= tick <= last]
    if not ticks:
        span = "nothing has run here yet"
        if known:
            there = f"there are journals of {known[0]} to {known[-1]}"
            span = f"a tick in which nobody took a turn has none; {there}"
        raise UsageError(f"no journal of tick {text}", hint=span)
    return ticks
