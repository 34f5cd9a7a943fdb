"""What persons gave leave to spend beyond limits, as ledgers keep it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from lemming.gates.limit import AMOUNTS, NOTHING, Amount
from lemming.journal.begun import Asked
from lemming.leave import SPEND


def approved(asked: Iterable[Asked], line: str) -> dict[str, dict[str, Any]]:
    """Return the leave that was given to go beyond a gate's limit: its arguments, by the request for it."""
    return {
        it.request: it.leave["args"]
        for it in asked
        if it.leave and (it.leave["tool"], it.leave["gate"], it.end) == (SPEND, line, "approved")
    }


def raised(given: Iterable[dict[str, Any]]) -> Amount:
    """Return how much more may be spent by such leave."""
    more = NOTHING
    for args in given:
        more = more.plus(Amount(*(Decimal(repr(args.get(key, 0))) for key in AMOUNTS)))
    return more
