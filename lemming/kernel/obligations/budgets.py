"""Budgets of requests: the cost limit and the cost so far, in credits or in tokens, as payloads write them.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import floor
from typing import Any, Literal, NamedTuple

from lemming.kernel.files.fast_decoder import MAX_AMOUNT

Unit = Literal["credits", "tokens"]
_TOKENS = re.compile(r"([0-9]{1,15}) tokens")


class BudgetAmount(NamedTuple):
    """An amount of credits (a number in payloads) or of tokens (a text in payloads: "9000 tokens")."""

    number: float
    unit: Unit = "credits"

    @property
    def file_value(self) -> float | str:
        """The amount as written in payloads. Tokens are whole numbers."""
        return f"{int(self.number)} tokens" if self.unit == "tokens" else self.number

    def split_budget(self, parts: int) -> BudgetAmount:
        """Return one of `parts` equal parts, rounded down: the parts never exceed the whole."""
        digits = 1 if self.unit == "tokens" else 1_000_000
        return self._replace(number=floor(round(self.number / parts * digits, 3)) / digits)

    @property
    def number_text(self) -> str:
        """The number without the unit."""
        return f"{int(self.number):,}" if self.unit == "tokens" else f"{self.number:g}"

    def __str__(self) -> str:
        return f"{self.number_text} {self.unit}"


NOTHING = BudgetAmount(0.0)


def parse_amount(value: object) -> BudgetAmount | None:
    """Return the amount given by a value, or None for a value of another form.

    >>> parse_amount(2), parse_amount("9000 tokens"), parse_amount("much")
    (BudgetAmount(number=2.0, unit='credits'), BudgetAmount(number=9000.0, unit='tokens'), None)
    """
    if isinstance(value, str):
        match = _TOKENS.fullmatch(value.strip())
        return BudgetAmount(float(match[1]), "tokens") if match else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return BudgetAmount(float(value)) if 0 <= value <= MAX_AMOUNT else None


def get_budget(payload: Mapping[str, Any]) -> BudgetAmount | None:
    """Return the budget of a request, or None without a limit. An invalid budget counts as zero."""
    value = payload.get("budget")
    return None if value is None else parse_amount(value) or NOTHING
