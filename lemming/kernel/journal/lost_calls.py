"""Calls of a model that were sent and whose answers never came: what they can have cost at most. Pure.

The engine was killed, or the connection broke off: a provider may bill for them, and nobody here knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.records import ModelFailed, ModelReplied, ModelReserved, Record
from lemming.kernel.journal.report import LostJson

_BOUNDS = {"ge": 0, "le": LARGEST_AMOUNT}


@dataclass(frozen=True)
class Lost:
    """So many calls without an answer, and the most that they can have cost. False where there are none."""

    calls: int = field(default=0, metadata=_BOUNDS)
    credits: float = field(default=0.0, metadata=_BOUNDS)
    cost_usd: float | None = field(default=None, metadata=_BOUNDS)
    tokens: int = field(default=0, metadata=_BOUNDS)

    def __bool__(self) -> bool:
        return self.calls > 0

    def plus(self, other: Lost) -> Lost:
        """Return both together."""
        if not (self.calls and other.calls):  # both are asked for in every turn
            return self if self.calls else other
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        # Bounded: a ledger with a larger number would be refused when it is read.
        credits = round(min(self.credits + other.credits, LARGEST_AMOUNT), 6)
        dollars = round(min(sum(costs), LARGEST_AMOUNT), 12) if costs else None
        tokens = min(self.tokens + other.tokens, int(LARGEST_AMOUNT))
        return Lost(self.calls + other.calls, credits, dollars, tokens)

    def as_json(self) -> LostJson | None:
        """Return it as JSON; None where nothing is lost."""
        if not self.calls:
            return None
        return LostJson(calls=self.calls, credits=self.credits, cost_usd=self.cost_usd, tokens=self.tokens)

    @classmethod
    def of(cls, plain: Mapping[str, Any] | None) -> Lost:
        """Return what JSON says; a reservation is one call."""
        if not plain:
            return NONE_LOST
        return cls(plain.get("calls", 1), plain["credits"], plain["cost_usd"], plain.get("tokens", 0))


NONE_LOST = Lost()


def lost_in(records: Iterable[Record]) -> Lost:
    """Return what is lost of what was reserved for a turn that goes no further, by its records."""
    records = list(records)
    answers = (record for record in records if isinstance(record, (ModelReplied, ModelFailed)))
    told = together(Lost.of(record.lost) for record in answers)
    return told.plus(together(lost for open_ in unsettled(records).values() for lost in open_))


def unsettled(records: Iterable[Record]) -> dict[int, list[Lost]]:
    """Return what is reserved for a turn's calls that have no answer, by the number of the call."""
    found: dict[int, list[Lost]] = {}
    for record in records:
        match record:
            case ModelReserved():
                most = Lost(1, record.credits, record.cost_usd, record.tokens)
                # A call that is retried is reserved again each time, and each may be billed.
                found.setdefault(record.call, []).append(most)
            case ModelReplied() | ModelFailed():
                found.pop(record.call, None)  # its own `lost` says what remains
    return found


def together(lost: Iterable[Lost]) -> Lost:
    """Return all of it."""
    return reduce(Lost.plus, lost, NONE_LOST)
