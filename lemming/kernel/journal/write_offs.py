"""Model calls that were sent and never answered, with an upper bound of their cost. Pure.

The engine was killed, or the connection broke. A provider may bill for these calls; the engine cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ModelReserved, Record
from lemming.kernel.journal.turn_report import WriteOffJson

_BOUNDS = {"ge": 0, "le": MAX_AMOUNT}


@dataclass(frozen=True)
class WriteOff:
    """Number of unanswered calls and the upper bound of their cost. False if there are none."""

    calls: int = field(default=0, metadata=_BOUNDS)
    credits: float = field(default=0.0, metadata=_BOUNDS)
    cost_usd: float | None = field(default=None, metadata=_BOUNDS)
    tokens: int = field(default=0, metadata=_BOUNDS)

    def __bool__(self) -> bool:
        return self.calls > 0

    def add(self, other: WriteOff) -> WriteOff:
        """Return the sum of both write-offs."""
        if not (self.calls and other.calls):  # both are used in every turn
            return self if self.calls else other
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        # Bounded: a ledger with a larger number would be refused when it is read.
        credits = round(min(self.credits + other.credits, MAX_AMOUNT), 6)
        dollars = round(min(sum(costs), MAX_AMOUNT), 12) if costs else None
        tokens = min(self.tokens + other.tokens, int(MAX_AMOUNT))
        return WriteOff(self.calls + other.calls, credits, dollars, tokens)

    def as_json(self) -> WriteOffJson | None:
        """Return the write-off as JSON, or None if it is empty."""
        if not self.calls:
            return None
        return WriteOffJson(calls=self.calls, credits=self.credits, cost_usd=self.cost_usd, tokens=self.tokens)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any] | None) -> WriteOff:
        """Return the write-off described by JSON; a reservation counts as one call."""
        if not plain:
            return NO_WRITE_OFF
        return cls(plain.get("calls", 1), plain["credits"], plain["cost_usd"], plain.get("tokens", 0))


NO_WRITE_OFF = WriteOff()


def write_off_total(records: Iterable[Record]) -> WriteOff:
    """Return the write-off for reserved calls of a turn that has ended, from the turn's records."""
    records = list(records)
    answers = (record for record in records if isinstance(record, (ModelReplied, ModelFailed)))
    recorded_total = sum_write_offs(WriteOff.from_json(record.lost) for record in answers)
    return recorded_total.add(
        sum_write_offs(
            write_off for open_write_offs in find_unsettled(records).values() for write_off in open_write_offs
        )
    )


def find_unsettled(records: Iterable[Record]) -> dict[int, list[WriteOff]]:
    """Return the reservations of a turn's unanswered calls, by call number."""
    reservations: dict[int, list[WriteOff]] = {}
    for record in records:
        match record:
            case ModelReserved():
                cost_bound = WriteOff(1, record.credits, record.cost_usd, record.tokens)
                # A call that is retried is reserved again each time, and each may be billed.
                reservations.setdefault(record.call, []).append(cost_bound)
            case ModelReplied() | ModelFailed():
                reservations.pop(record.call, None)  # its own `lost` holds the rest
    return reservations


def sum_write_offs(write_offs: Iterable[WriteOff]) -> WriteOff:
    """Return the sum of write-offs."""
    return reduce(WriteOff.add, write_offs, NO_WRITE_OFF)
