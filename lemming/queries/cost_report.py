"""Cost reports by agent, model, request, tick or day; the sums equal the sums of the ledgers.

Ledgers add dollars in floating point. The cost of a turn is therefore the exact growth of its agent's ledger,
and sums of turn costs are exact for every grouping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal, localcontext
from functools import reduce
from typing import Any, Literal, NamedTuple

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.times import get_zone
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.llm.call_cost import to_decimal
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_table import JUDGES
from lemming.read_model.tick_facts import CallCost, LedgerCosts, ModelKeys, TickFacts, TurnFacts
from lemming.read_model.tick_queries import load_ticks

By = Literal["agent", "model", "request", "tick", "day"]
REMOVED = " (removed)"
"""Suffix of an agent without a ledger."""
ZERO = Decimal(0)
_DIGITS = 60  # more than amounts and their sums have


class Cost(NamedTuple):
    """An amount spent. `cost_usd` excludes calls of unknown price; `unpriced_calls` is their number.

    `cached_tokens`: input tokens served from provider caches, as far as journals record them.
    `recorded_tokens`: input tokens of the recorded calls.
    """

    turns: int = 0
    calls: int = 0
    credits: Decimal = ZERO
    cost_usd: Decimal | None = None
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    recorded_tokens: int = 0

    @property
    def cached_share(self) -> float | None:
        """The cached share of the recorded input, from 0 to 1, or None without any input.

        >>> Cost(input_tokens=5000, recorded_tokens=2000, cached_tokens=1600).cached_share
        0.8
        """
        return round(self.cached_tokens / self.recorded_tokens, 4) if self.recorded_tokens else None

    def add(self, other: Cost) -> Cost:
        """Return the sum of both costs."""
        return Cost._make(one if two is None else (one or 0) + two for one, two in zip(self, other, strict=True))

    def subtract(self, part: Cost) -> Cost:
        """Return the remainder of a ledger after subtracting a part; ledgers count neither turns nor calls."""
        dollars = None
        if self.cost_usd is not None or part.cost_usd is not None:
            dollars = (self.cost_usd or ZERO) - (part.cost_usd or ZERO)
        return Cost(
            credits=self.credits - part.credits,
            cost_usd=dollars,
            unpriced_calls=self.unpriced_calls - part.unpriced_calls,
            input_tokens=self.input_tokens - part.input_tokens,
            output_tokens=self.output_tokens - part.output_tokens,
        )

    @property
    def ledger_amounts(self) -> tuple[Decimal | int, ...]:
        """The amounts a ledger records."""
        dollars = self.cost_usd or ZERO
        return self.credits, dollars, self.unpriced_calls, self.input_tokens, self.output_tokens

    def as_json(self) -> dict[str, Any]:
        """Return the cost as JSON values."""
        dollars = None if self.cost_usd is None else float(self.cost_usd)
        numbers = {"credits": float(self.credits), "cost_usd": dollars, "cached_share": self.cached_share}
        return {**self._asdict(), **numbers}


NOTHING = Cost()


@dataclass
class CostReport:
    """A cost report with a row per group. `total`: the ledgers and `removed_total` together.

    `unrecorded`: amounts in ledgers without a journal. `first_tick`: the oldest tick with a journal;
    `is_pruned` is set if older journals existed. `removed`: spending of agents without a ledger, by name.
    `open`: spending of unfinished turns, which no ledger contains yet. `damaged`: ticks with unreadable
    journals. `judged`: credits in the ledgers spent on judges; zero with `since`. `write_off`: amounts for
    calls without an answer; spending limits count these amounts in addition to the total.
    """

    by: By
    rows: dict[str, Cost] = field(default_factory=dict)
    total: Cost = NOTHING
    unrecorded: Cost = NOTHING
    removed: dict[str, Cost] = field(default_factory=dict)
    open: Cost = NOTHING
    first_tick: int | None = None
    is_pruned: bool = False
    damaged: list[int] = field(default_factory=list)
    judged: Decimal = ZERO
    write_off: WriteOff = NO_WRITE_OFF

    @property
    def removed_total(self) -> Cost:
        """The total spending of all removed agents."""
        return _sum_costs(self.removed.values())


@dataclass
class _TurnCost:
    """A turn with model calls, and the amounts in its agent's ledger before and after."""

    agent: str
    tick: int
    at: str
    request: str
    ledger_before: Cost
    ledger_after: Cost
    calls: list[tuple[str, Cost]]

    @property
    def cost(self) -> Cost:
        """The cost of the turn, equal to the growth of the ledger."""
        return _sum_costs((cost for _, cost in self.calls), Cost(turns=1))


@dataclass
class _AgentLifetime:
    """Consecutive turns of an agent with continuous ledger amounts. `owner`: the agent of the ledger, or empty."""

    agent: str
    turns: list[_TurnCost]
    owner: str = ""


def compute_costs(base: OrgPath, by: By, *, since: int = 0) -> CostReport:
    """Return the cost report, of turns from tick `since` if given. Raises `CorruptState` for an unreadable ledger."""
    with localcontext(prec=_DIGITS):
        states = {name: read_state(base, name) for name in list_ledger_agents(base)}
        return _aggregate_costs(base, CostReport(by), since, states)


def list_ledger_agents(base: OrgPath) -> list[str]:
    """Return the names of agent folders that can have a ledger, including agents with a broken or missing resume."""
    return [name for name in list_agent_folders(base) if paths.AGENT_NAME.match(name)]


def load_removed_costs(base: OrgPath) -> Mapping[str, Cost]:
    """Return the spending of agents without a ledger, by name, as far as journals record it.

    Spending of agents with a damaged ledger is not included; `load_accounts` reports damaged ledgers. An `Organisation`
    caches the result until a folder appears or disappears, or a ledger is restarted, damaged or repaired.
    """
    return Organisation.from_path(base).get_cache(_RemovedCostCache).get_costs()


class _RemovedCostCache:
    """Cache of the spending of removed agents, with the inputs of the calculation."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._oldest: list[int] | None = None
        self._ledgers: dict[str, Cost | None] = {}
        self._costs: dict[str, Cost] = {}

    def get_costs(self) -> Mapping[str, Cost]:
        oldest = journal_ticks(self._org)[:1]
        states = dict[str, AgentState | None]()
        for name in list_ledger_agents(self._org):
            states[name] = None
            with suppress(CorruptState):
                states[name] = read_state(self._org, name)
        ledgers = {name: _from_state(state) if state else None for name, state in states.items()}
        is_unchanged = oldest == self._oldest and ledgers.keys() == self._ledgers.keys()
        if not is_unchanged or any(_has_restarted(previous, ledgers[name]) for name, previous in self._ledgers.items()):
            with localcontext(prec=_DIGITS):
                self._costs = _aggregate_costs(self._org, CostReport("agent"), 0, states).removed
        self._oldest, self._ledgers = oldest, ledgers
        return self._costs


def _has_restarted(previous: Cost | None, current: Cost | None) -> bool:
    """Return True if a ledger does not continue its previous amounts; None stands for a damaged ledger."""
    if previous is None or current is None:
        return (previous is None) != (current is None)
    return _has_decreased(current, previous)


def _aggregate_costs(
    base: OrgPath, costs: CostReport, since: int, states: Mapping[str, AgentState | None]
) -> CostReport:
    """Fill in and return the report. `states`: agents to ledgers; a damaged ledger is None and gets all spending."""
    valid_states = {name: state for name, state in states.items() if state}
    ledgers = {name: _from_state(state) if state else NOTHING for name, state in states.items()}
    zone_name = load_config(base).org.timezone
    costs.write_off = reduce(WriteOff.add, (state.lost for state in valid_states.values()), NO_WRITE_OFF)
    turns, time_zone = [], get_zone(zone_name) if zone_name else UTC
    for turn in _iter_turns(base, costs):
        if (state := valid_states.get(turn.agent)) and turn.tick > state.tick:
            costs.open = costs.open.add(turn.cost)
        else:
            turns.append(turn)
    remainders = dict(ledgers)
    for lifetime in _group_lifetimes(turns, ledgers):
        if lifetime.owner:
            costs_of_turns = (turn.cost for turn in lifetime.turns)
            remainders[lifetime.owner] = reduce(Cost.subtract, costs_of_turns, remainders[lifetime.owner])
        for turn in lifetime.turns:
            if turn.tick >= since:
                for name, cost in _list_rows(costs.by, turn, lifetime.owner, time_zone):
                    costs.rows[name] = costs.rows.get(name, NOTHING).add(cost)
                if not lifetime.owner:
                    costs.removed[turn.agent] = costs.removed.get(turn.agent, NOTHING).add(turn.cost)
    if not since:
        costs.judged = sum((Decimal(str(state.aside.get(JUDGES, 0.0))) for state in valid_states.values()), ZERO)
        costs.unrecorded = _sum_costs(remainder for remainder in remainders.values() if any(remainder.ledger_amounts))
        if costs.by == "agent":
            for name, remainder in remainders.items():
                if name in costs.rows or any(remainder.ledger_amounts):
                    costs.rows[name] = costs.rows.get(name, NOTHING).add(remainder)
    if costs.by in ("agent", "model"):  # the others come in the order of their ticks
        costs.rows = dict(sorted(costs.rows.items()))
    costs.total = _sum_costs(costs.rows.values(), NOTHING if costs.by == "agent" else costs.unrecorded)
    return costs


def _iter_turns(base: OrgPath, costs: CostReport) -> Iterator[_TurnCost]:
    """Yield the turns with model calls, in tick order."""
    keys = ModelKeys()
    for facts in load_ticks(base, with_reports=False):
        if facts.problem:
            costs.damaged.append(facts.tick)
            continue
        if costs.first_tick is None:
            costs.first_tick, costs.is_pruned = facts.tick, facts.after is not None
        for turn_facts in keys.resolve(facts).turns.values():
            if turn_facts.calls:
                yield _build_turn(facts, turn_facts)


def _build_turn(tick: TickFacts, turn_facts: TurnFacts) -> _TurnCost:
    """Return a turn with its calls, rounded so that the calls add up to the growth of the ledger."""
    state, calls = turn_facts.ledger, turn_facts.calls
    ledger_before, call_costs = _from_state(state), [_from_call(call) for call in calls]
    credits = round(min(state.credits + sum(call.credits for call in calls), MAX_AMOUNT), 6)
    growth = to_decimal(credits) - ledger_before.credits
    # the last call takes the rounding error: so the sum equals the growth of the ledger
    call_costs[-1] = call_costs[-1]._replace(credits=growth - sum((cost.credits for cost in call_costs[:-1]), ZERO))
    priced = [index for index, call in enumerate(calls) if call.cost_usd is not None]
    if priced:
        priced_dollars = sum(call.cost_usd for call in calls if call.cost_usd is not None)
        dollars_after = to_decimal(min((state.cost_usd or 0.0) + priced_dollars, MAX_AMOUNT))
        growth = dollars_after - (ledger_before.cost_usd or ZERO)
        other_dollars = sum((call_costs[index].cost_usd or ZERO for index in priced[:-1]), ZERO)
        call_costs[priced[-1]] = call_costs[priced[-1]]._replace(cost_usd=growth - other_dollars)
    costs = [(call.model, cost) for call, cost in zip(calls, call_costs, strict=True)]
    ledger_after, agent = _sum_costs(call_costs, ledger_before), turn_facts.agent
    return _TurnCost(agent, tick.tick, tick.at, turn_facts.request, ledger_before, ledger_after, costs)


def _group_lifetimes(turns: list[_TurnCost], ledgers: Mapping[str, Cost]) -> list[_AgentLifetime]:
    """Group turns into lifetimes and find the owner of the ledger that now counts each lifetime.

    A recreated agent starts at zero; a renamed agent continues the amounts of its old name.
    """
    lifetimes: list[_AgentLifetime] = []
    latest: dict[str, _AgentLifetime] = {}
    for turn in turns:
        lifetime = latest.get(turn.agent)
        if lifetime is None or _has_decreased(turn.ledger_before, lifetime.turns[-1].ledger_after):
            lifetime = latest[turn.agent] = _AgentLifetime(turn.agent, [])
            lifetimes.append(lifetime)
        lifetime.turns.append(turn)
    lifetimes_by_start = {lifetime.turns[0].ledger_before.ledger_amounts: lifetime for lifetime in lifetimes}
    unclaimed = {ledger.ledger_amounts: name for name, ledger in ledgers.items() if name not in latest}
    for lifetime in reversed(lifetimes):  # successors come before their predecessors
        end = lifetime.turns[-1].ledger_after.ledger_amounts
        is_own = latest[lifetime.agent] is lifetime and lifetime.agent in ledgers
        successor = lifetimes_by_start.get(end)
        heir = successor.owner if successor else unclaimed.get(end, "")
        lifetime.owner = lifetime.agent if is_own else heir
    return lifetimes


def _has_decreased(current: Cost, previous: Cost) -> bool:
    """Return True if any amount is smaller than in the other cost: amounts in a ledger only grow."""
    amounts = zip(current.ledger_amounts, previous.ledger_amounts, strict=True)
    return any(current_amount < previous_amount for current_amount, previous_amount in amounts)


def _list_rows(by: By, turn: _TurnCost, owner: str, time_zone: tzinfo) -> list[tuple[str, Cost]]:
    """Return the rows that count a turn, each with the turn's part of it."""
    match by:
        case "model":
            return turn.calls
        case "agent":
            name = owner or f"{turn.agent}{REMOVED}"
        case "request":
            name = turn.request
        case "tick":
            name = str(turn.tick)
        case "day":
            name = parse_timestamp(turn.at).astimezone(time_zone).strftime("%Y-%m-%d")
    return [(name, turn.cost)]


def _from_state(state: AgentState | LedgerCosts) -> Cost:
    return Cost(
        credits=to_decimal(state.credits),
        cost_usd=None if state.cost_usd is None else to_decimal(state.cost_usd),
        unpriced_calls=state.unpriced_calls,
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
    )


def _from_call(call: CallCost) -> Cost:
    dollars = None if call.cost_usd is None else to_decimal(call.cost_usd)
    tokens = call.input_tokens, call.output_tokens, call.cached_tokens, call.input_tokens
    return Cost(0, 1, to_decimal(call.credits), dollars, int(dollars is None), *tokens)


def _sum_costs(costs: Iterable[Cost], initial: Cost = NOTHING) -> Cost:
    return reduce(Cost.add, costs, initial)
