"""What was spent before a tick: a view over ledgers and journals, read once and kept while an engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from lemming.capabilities.gates.limit import NOTHING, ZERO, Amount, Window
from lemming.capabilities.money.spent import SpentReader, TurnSpent
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.integers import to_int
from lemming.kernel.journal.file import journal_ticks
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.llm.credits import exact
from lemming.kernel.org.organisation import Organisation

_KEPT_TICKS = 20_000


class NotKnown(LemmingError):
    """What was spent is told by journals that are gone; the message says which."""


class _Turn(NamedTuple):
    request: str
    amount: Amount


class _Tick(NamedTuple):
    at: str
    after: int | None
    turns: dict[str, _Turn]
    total: Amount


class SpentBefore:
    """What turns of ticks that are over have spent, by tick: `org.own(SpentBefore)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._ticks: dict[int, _Tick] = {}

    def of(self, tick: int) -> _Tick:
        """Return what was spent in a tick that is over; nothing in one whose journal is gone."""
        if tick not in self._ticks:
            if len(self._ticks) >= _KEPT_TICKS:
                del self._ticks[next(iter(self._ticks))]
            self._ticks[tick] = _read(self._org, tick)
        return self._ticks[tick]

    def is_within(self, window: Window | None, request: str, tick: int, at: str) -> bool:
        """Return whether a request was asked within a window of a tick."""
        asked = tick_of(request)
        if window is None or asked >= tick:
            return True
        return asked > tick - window.ticks if window.ticks else self.of(asked).at >= _since(window, at)

    def within(self, window: Window | None, tick: int, at: str) -> Sequence[_Tick]:
        """Return the ticks before one that a window of it reaches; without one, all there were.

        Raises `NotKnown` where it reaches further back than journals are kept.
        """
        found: list[_Tick] = []
        before = [it for it in journal_ticks(self._org) if it < tick]
        since = _since(window, at)
        for number in reversed(before):
            if window and window.ticks is not None and number <= tick - window.ticks:
                return found
            it = self.of(number)
            if since and it.at < since:
                return found
            found.append(it)
        # the oldest journal there is names one before it: what that one tells is gone
        oldest = self.of(before[0]) if before else None
        gone = oldest.after if oldest else None
        if gone is not None and not (window and window.ticks is not None and gone <= tick - window.ticks):
            raise NotKnown(f"journals go back to tick {before[0]} only, and nothing tells what was before")
        return found


def _since(window: Window | None, at: str) -> str:
    """Return the moment at which a window begins, as it is written; empty where it counts ticks."""
    if window is None or window.seconds is None:
        return ""
    return timestamp(parse_timestamp(at) - timedelta(seconds=window.seconds))


def _read(org: Organisation, tick: int) -> _Tick:
    found = SpentReader(org).read(tick)
    turns = {key: _Turn(turn.request, _amount(turn)) for key, turn in found.turns.items()}
    return _Tick(found.at, found.after, turns, total(it.amount for it in turns.values()))


def _amount(turn: TurnSpent) -> Amount:
    spent = total(
        amount_of(call.credits, call.cost_usd, call.input_tokens + call.output_tokens) for call in turn.calls
    )
    return spent.plus(amount_lost(turn.lost))


def amount_of(credits: float, cost_usd: float | None, tokens: int, calls: int = 1) -> Amount:
    """Return what calls cost as limits count it; what answers without a token was no model."""
    is_model = tokens > 0 or credits > 0  # else it was worked out, as a plan's is
    count = Decimal(calls if is_model else 0)
    return Amount(_in_digits(credits, 6), _in_digits(cost_usd, 12), count, Decimal(tokens))


def amount_in(state: AgentState) -> Amount:
    """Return what a ledger says was spent, with what is lost; it does not count calls."""
    tokens = Decimal(state.input_tokens + state.output_tokens)
    spent = Amount(_in_digits(state.credits, 6), _in_digits(state.cost_usd, 12), tokens=tokens)
    return spent.plus(amount_lost(state.lost)._replace(calls=ZERO)) if state.lost else spent


def amount_lost(lost: Lost) -> Amount:
    """Return what limits count for calls whose answers never came."""
    credits, dollars = _in_digits(lost.credits, 6), _in_digits(lost.cost_usd, 12)
    return Amount(credits, dollars, Decimal(lost.calls), Decimal(lost.tokens))


def _in_digits(amount: float | None, digits: int) -> Decimal:
    """Return an amount without what adding up in floating point leaves at its end."""
    return exact(round(amount or 0.0, digits))


def total(amounts: Iterable[Amount]) -> Amount:
    """Return amounts added up."""
    return reduce(Amount.plus, amounts, NOTHING)


def tick_of(request: str) -> int:
    """Return the tick in which a request was asked, from its `author/TICK_ID`."""
    return to_int(request.partition("/")[2].partition("_")[0])
