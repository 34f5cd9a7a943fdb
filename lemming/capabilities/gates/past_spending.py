"""Spending before a tick: a view of ledgers and journals, read once and cached while an engine runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from lemming.capabilities.gates.spending_limit import NOTHING, ZERO, LimitWindow, SpendAmount
from lemming.ext import LemmingError
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.integers import to_int
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import to_decimal
from lemming.kernel.org.organisation import Organisation
from lemming.read_model.tick_facts import JournalTurn, load_tick_facts

_CACHED_TICKS = 20_000


class SpendingUnknown(LemmingError):
    """Spending is unknown because journals are gone. The message names them."""


class _TurnTotal(NamedTuple):
    request: str
    amount: SpendAmount


class _TickTotal(NamedTuple):
    at: str
    previous_tick: int | None
    turns: dict[str, _TurnTotal]
    total: SpendAmount


class SpendingHistory:
    """Spending of finished ticks, by tick: `org.own(SpendingHistory)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._ticks: dict[int, _TickTotal] = {}

    def get_tick(self, tick: int) -> _TickTotal:
        """Return the spending of a finished tick. A tick without a journal has none."""
        if tick not in self._ticks:
            if len(self._ticks) >= _CACHED_TICKS:
                del self._ticks[next(iter(self._ticks))]
            self._ticks[tick] = _load_tick(self._org, tick)
        return self._ticks[tick]

    def is_in_window(self, window: LimitWindow | None, request: str, tick: int, at: str) -> bool:
        """Return True if a request was created within a window before a tick."""
        request_tick = get_request_tick(request)
        if window is None or request_tick >= tick:
            return True
        return (
            request_tick > tick - window.ticks
            if window.ticks
            else self.get_tick(request_tick).at >= _window_start(window, at)
        )

    def ticks_in_window(self, window: LimitWindow | None, tick: int, at: str) -> Sequence[_TickTotal]:
        """Return the ticks in a window before a tick, or all earlier ticks without a window.

        Raises: SpendingUnknown if the window starts before the oldest journal.
        """
        tick_totals: list[_TickTotal] = []
        earlier_ticks = [tick_total for tick_total in journal_ticks(self._org) if tick_total < tick]
        start = _window_start(window, at)
        for number in reversed(earlier_ticks):
            if window and window.ticks is not None and number <= tick - window.ticks:
                return tick_totals
            tick_total = self.get_tick(number)
            if start and tick_total.at < start:
                return tick_totals
            tick_totals.append(tick_total)
        # The oldest journal names an earlier one: the spending recorded there is gone.
        oldest = self.get_tick(earlier_ticks[0]) if earlier_ticks else None
        missing_tick = oldest.previous_tick if oldest else None
        if missing_tick is not None and not (
            window and window.ticks is not None and missing_tick <= tick - window.ticks
        ):
            # Not counted as 0: removing journals must not reset a limit.
            raise SpendingUnknown(
                f"journals go back to tick {earlier_ticks[0]} only, and nothing tells what was before"
            )
        return tick_totals


def _window_start(window: LimitWindow | None, at: str) -> str:
    """Return the timestamp of the start of a window, or the empty string for a window in ticks."""
    if window is None or window.seconds is None:
        return ""
    return timestamp(parse_timestamp(at) - timedelta(seconds=window.seconds))


def _load_tick(org: Organisation, tick: int) -> _TickTotal:
    facts = load_tick_facts(org, tick)  # from the journal: a limit trusts no cache
    turns = {key: _TurnTotal(turn.request, _sum_turn(turn)) for key, turn in facts.turns.items()}
    return _TickTotal(facts.at, facts.after, turns, sum_amounts(turn_total.amount for turn_total in turns.values()))


def _sum_turn(turn: JournalTurn) -> SpendAmount:
    amount = sum_amounts(
        make_amount(call.credits, call.cost_usd, call.input_tokens + call.output_tokens) for call in turn.calls
    )
    return amount.add(write_off_amount(turn.write_off))


def make_amount(credits: float, cost_usd: float | None, tokens: int, calls: int = 1) -> SpendAmount:
    """Return the cost of calls as counted by limits. Answers without tokens came from no model."""
    is_model = tokens > 0 or credits > 0  # otherwise the answer was computed, as for a plan
    count = Decimal(calls if is_model else 0)
    return SpendAmount(_round_amount(credits, 6), _round_amount(cost_usd, 12), count, Decimal(tokens))


def ledger_amount(state: AgentState) -> SpendAmount:
    """Return the spending in a ledger, including write-offs. Calls are not counted."""
    tokens = Decimal(state.input_tokens + state.output_tokens)
    amount = SpendAmount(_round_amount(state.credits, 6), _round_amount(state.cost_usd, 12), tokens=tokens)
    return amount.add(write_off_amount(state.lost)._replace(calls=ZERO)) if state.lost else amount


def write_off_amount(write_off: WriteOff) -> SpendAmount:
    """Return the amount of a write-off as counted by limits."""
    credits, dollars = _round_amount(write_off.credits, 6), _round_amount(write_off.cost_usd, 12)
    return SpendAmount(credits, dollars, Decimal(write_off.calls), Decimal(write_off.tokens))


def _round_amount(amount: float | None, digits: int) -> Decimal:
    """Return an amount rounded to remove floating-point noise."""
    return to_decimal(round(amount or 0.0, digits))


def sum_amounts(amounts: Iterable[SpendAmount]) -> SpendAmount:
    """Return the sum of amounts."""
    return reduce(SpendAmount.add, amounts, NOTHING)


def get_request_tick(request: str) -> int:
    """Return the tick of a request from its identity `author/TICK_ID`."""
    return to_int(request.partition("/")[2].partition("_")[0])
