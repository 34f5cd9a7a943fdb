"""What a request may cost and has cost, in credits or in tokens, as payloads say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import floor
from typing import Any, Literal, NamedTuple

from lemming.kernel.files.fitting import LARGEST_AMOUNT

Unit = Literal["credits", "tokens"]
_TOKENS = re.compile(r"([0-9]{1,15}) tokens")


class BudgetAmount(NamedTuple):
    """An amount of credits, which a payload has as a number, or of tokens, as a text: "9000 tokens"."""

    number: float
    unit: Unit = "credits"

    @property
    def plain(self) -> float | str:
        """The amount as payloads have it; of tokens there are no parts."""
        return f"{int(self.number)} tokens" if self.unit == "tokens" else self.number

    def split_budget(self, parts: int) -> BudgetAmount:
        """Return one of so many equal parts, rounded down: all of them are never more than the whole."""
        digits = 1 if self.unit == "tokens" else 1_000_000
        return self._replace(number=floor(round(self.number / parts * digits, 3)) / digits)

    @property
    def digits(self) -> str:
        """The number, without what it counts."""
        return f"{int(self.number):,}" if self.unit == "tokens" else f"{self.number:g}"

    def __str__(self) -> str:
        return f"{self.digits} {self.unit}"


NOTHING = BudgetAmount(0.0)


def amount_of(value: object) -> BudgetAmount | None:
    """Return the amount that a value says; None where it is none.

    >>> amount_of(2), amount_of("9000 tokens"), amount_of("much")
    (BudgetAmount(number=2.0, unit='credits'), BudgetAmount(number=9000.0, unit='tokens'), None)
    """
    if isinstance(value, str):
        found = _TOKENS.fullmatch(value.strip())
        return BudgetAmount(float(found[1]), "tokens") if found else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return BudgetAmount(float(value)) if 0 <= value <= LARGEST_AMOUNT else None


def budget_in(payload: Mapping[str, Any]) -> BudgetAmount | None:
    """Return what a request may cost; None: whatever it will. What is not understood pays for nothing."""
    value = payload.get("budget")
    return None if value is None else amount_of(value) or NOTHING
