"""Spending limits: amounts, windows, and the check of amounts against limits. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.integers import to_int

Per = Literal["turn", "request", "agent", "organisation"]
"""Scope of a limit: a turn, a request with its sub-requests, an agent with its creations, or all agents."""

AMOUNTS = ("credits", "dollars", "calls", "tokens")
ZERO, ONE = Decimal(0), Decimal(1)
FREE_RUNS = "for a program that costs nothing set both prices of its line to 0"
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])", re.ASCII)
_SECONDS_IN = {"m": 60, "h": 3600, "d": 86400}


class SpendAmount(NamedTuple):
    """Amount of actual or possible spending. `tokens` counts prompts and answers, cached tokens included."""

    credits: Decimal = ZERO
    dollars: Decimal = ZERO
    calls: Decimal = ZERO
    tokens: Decimal = ZERO

    def add(self, other: SpendAmount) -> SpendAmount:
        """Return the sum of both amounts."""
        return SpendAmount(*(augend + addend for augend, addend in zip(self, other, strict=True)))


def sum_amounts(amounts: Iterable[SpendAmount]) -> SpendAmount:
    """Return the sum of amounts."""
    return reduce(SpendAmount.add, amounts, SpendAmount())


class LimitWindow(NamedTuple):
    """Window of a limit: a number of ticks, the current tick included, or a number of seconds."""

    ticks: int | None = None
    seconds: int | None = None

    def __str__(self) -> str:
        if self.ticks is not None:
            return f"{self.ticks} ticks" if self.ticks > 1 else "a tick"
        for unit, name in (("d", "day"), ("h", "hour"), ("m", "minute")):
            count, remainder = divmod(self.seconds or 0, _SECONDS_IN[unit])
            if not remainder:
                return f"{count} {name}s" if count > 1 else f"1 {name}"
        return f"{self.seconds} s"


def parse_window(value: dict[str, int] | str | None) -> LimitWindow | None:
    """Return the window of a gate, or None for an unlimited window.

    Raises: ValueError for an invalid window.

    >>> [str(parse_window(value)) for value in ({"ticks": 20}, "24h", "90m", "1d")]
    ['20 ticks', '1 day', '90 minutes', '1 day']
    """
    if value is None:
        return None
    if isinstance(value, str):
        if match := _DURATION.fullmatch(value):
            return LimitWindow(seconds=to_int(match[1]) * _SECONDS_IN[match[2]])
    elif value.keys() == {"ticks"} and value["ticks"] >= 1:
        return LimitWindow(ticks=value["ticks"])
    raise ValueError('expected {"ticks": 100}, "90m", "24h" or "7d"')


def find_exceeded(limits: Mapping[str, Decimal], amount: SpendAmount) -> str:
    """Return the key of the first amount above its limit, or the empty string."""
    return next((key for key, limit in limits.items() if getattr(amount, key) > limit), "")


def describe_amount(key: str, amount: Decimal) -> str:
    """Return an amount as text for people.

    >>> [describe_amount(*args) for args in (("credits", Decimal("2.50")), ("dollars", Decimal("0.1")), ("calls", ONE))]
    ['2.5 credits', '$0.1', '1 call']
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if key == "dollars":
        return f"${text}"
    return f"1 {key.removesuffix('s')}" if text == "1" else f"{text} {key}"


def get_limits(gate: Any) -> dict[str, Decimal]:
    """Return the amounts allowed by a gate, by key."""
    amounts = ((key, getattr(gate, key)) for key in AMOUNTS)
    # Decimals: a limit is reached exactly, which sums of floats would miss by their rounding.
    return {key: Decimal(repr(limit)) for key, limit in amounts if limit is not None}


def sum_raises(approvals: Iterable[Mapping[str, Any]]) -> SpendAmount:
    """Return the sum of approved limit raises."""
    return sum_amounts(SpendAmount(*(Decimal(repr(args.get(key, 0))) for key in AMOUNTS)) for args in approvals)
