"""Limits of what is spent: amounts, windows, and what is more than a gate allows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.integers import to_int

Per = Literal["turn", "request", "agent", "organisation"]
"""What a limit adds up: one turn, a request with all that was asked for it, an agent with those that it
created, or all."""

AMOUNTS = ("credits", "dollars", "calls", "tokens")
ZERO, ONE = Decimal(0), Decimal(1)
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])", re.ASCII)
_SECONDS_IN = {"m": 60, "h": 3600, "d": 86400}


class Amount(NamedTuple):
    """What was spent, or may be; `tokens` are those of questions and answers, cached ones too."""

    credits: Decimal = ZERO
    dollars: Decimal = ZERO
    calls: Decimal = ZERO
    tokens: Decimal = ZERO

    def plus(self, other: Amount) -> Amount:
        """Return both together."""
        return Amount(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING = Amount()


class Window(NamedTuple):
    """How far back a limit looks: so many ticks, the one under way included, or so many seconds."""

    ticks: int | None = None
    seconds: int | None = None

    def __str__(self) -> str:
        if self.ticks is not None:
            return f"{self.ticks} ticks" if self.ticks > 1 else "a tick"
        for unit, name in (("d", "day"), ("h", "hour"), ("m", "minute")):
            count, rest = divmod(self.seconds or 0, _SECONDS_IN[unit])
            if not rest:
                return f"{count} {name}s" if count > 1 else f"1 {name}"
        return f"{self.seconds} s"


def window_of(said: dict[str, int] | str | None) -> Window | None:
    """Return the window that a gate says; None: for ever. Raises `ValueError` for what is none.

    >>> [str(window_of(said)) for said in ({"ticks": 20}, "24h", "90m", "1d")]
    ['20 ticks', '1 day', '90 minutes', '1 day']
    """
    if said is None:
        return None
    if isinstance(said, str):
        if found := _DURATION.fullmatch(said):
            return Window(seconds=to_int(found[1]) * _SECONDS_IN[found[2]])
    elif said.keys() == {"ticks"} and said["ticks"] >= 1:
        return Window(ticks=said["ticks"])
    raise ValueError('write {"ticks": 100}, "90m", "24h" or "7d"')


def beyond(limits: Mapping[str, Decimal], amount: Amount) -> str:
    """Return the first amount that is more than its limit; empty when none is."""
    return next((key for key, limit in limits.items() if getattr(amount, key) > limit), "")


def in_words(key: str, amount: Decimal) -> str:
    """Return an amount as people are told.

    >>> [in_words(*it) for it in (("credits", Decimal("2.50")), ("dollars", Decimal("0.1")), ("calls", ONE))]
    ['2.5 credits', '$0.1', '1 call']
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if key == "dollars":
        return f"${text}"
    return f"1 {key.removesuffix('s')}" if text == "1" else f"{text} {key}"


def limits_of(gate: Any) -> dict[str, Decimal]:
    """Return the amounts that a gate allows, by what they are."""
    said = ((key, getattr(gate, key)) for key in AMOUNTS)
    return {key: Decimal(repr(limit)) for key, limit in said if limit is not None}


def raised(given: Iterable[Mapping[str, Any]]) -> Amount:
    """Return how much more may be spent, of what persons gave beyond a limit."""
    more = NOTHING
    for args in given:
        more = more.plus(Amount(*(Decimal(repr(args.get(key, 0))) for key in AMOUNTS)))
    return more
