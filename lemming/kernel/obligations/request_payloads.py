"""Read payloads of requests: numbers, budgets, deadlines and references. Pure.

A reference is text, an id or `author/TICK_ID`; a list of references is allowed. Any other value refers to nothing, for all
readers alike: payloads are written by models, programs and people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import floor
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.integers import LAST_TICK, add_ticks, clamp_int
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.messages import OutboxEntry


def get_count(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a non-negative whole number from a payload, or None without a valid number.

    A number of ticks beyond the last possible tick is clamped to the last tick.
    """
    return clamp_int(payload.get(key), le=LAST_TICK)


def required_answers(payload: Mapping[str, Any], total: int) -> int:
    """Return the number of answers required from `total` targets, by `join`: "all" (default), "first" or a number."""
    if payload.get("join") == "first":
        return 1
    number = get_count(payload, "join")
    return total if number is None else max(1, min(number, total))


_TICK = re.compile(r"[0-9]{1,12}")


def parse_references(value: object) -> tuple[str, ...]:
    """Return the normalized references in the value of a reference key.

    >>> parse_references("desk/42_3fa9c1d2e0b7"), parse_references([" a ", 7]), parse_references({"id": "a"})
    (('desk/00000042_3fa9c1d2e0b7',), ('a',), ())
    """
    if isinstance(value, str):
        return (normalize_reference(value),)
    if isinstance(value, list):
        return tuple(normalize_reference(item) for item in value if isinstance(item, str))
    return ()


def parse_reference(value: object) -> str:
    """Return the single reference in a value, or an empty string if there is none or more than one."""
    references = parse_references(value)
    return references[0] if len(references) == 1 else ""


def normalize_reference(reference: str) -> str:
    """Return a reference without surrounding white space, with its tick padded as in file names.

    >>> normalize_reference("desk/42_3fa9c1d2e0b7")
    'desk/00000042_3fa9c1d2e0b7'
    """
    reference = reference.strip()
    if "/" not in reference:
        return reference
    author, _, name = reference.partition("/")
    tick, _, id_ = name.partition("_")
    return f"{author}/{int(tick):08}_{id_}" if _TICK.fullmatch(tick) else reference


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


def get_last_tick(request: OutboxEntry) -> int | None:
    """Return the last tick in which an answer to a request counts, or None without a deadline in ticks."""
    deadline = get_count(request.payload, "deadline")
    return None if deadline is None else add_ticks(request.tick, deadline)


def parse_deadline_time(payload: Mapping[str, Any]) -> str:
    """Return the time after which no answer counts, empty if the payload has none."""
    return normalize_moment(payload.get("not_after"))
