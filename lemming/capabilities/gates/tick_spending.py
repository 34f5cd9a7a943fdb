"""Spending before a call: in earlier ticks, by journals and ledgers, and in earlier turns of the same tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import iter_rules, rules_for_agent
from lemming.capabilities.gates.spending_limit import (
    ZERO,
    LimitWindow,
    SpendAmount,
    parse_window,
    sum_amounts,
    sum_raises,
)
from lemming.ext import LemmingError, SharedResource, TickContext, TickScope
from lemming.kernel.agents import Agent, list_agent_folders
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.turn_numbers import (
    DECISIONS_FROM,
    entry_id,
    list_possible_turns,
    list_turn_keys,
    split_key,
    turn_key,
)
from lemming.kernel.journal.journal_file import Journal, journal_ticks
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import to_decimal
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.ledger_calls import find_limit_raises
from lemming.read_model.tick_facts import load_tick_facts

_CACHED_TICKS = 20_000


class SpendingUnknown(LemmingError):
    """Spending is unknown because journals are gone. The message names them."""


class _TurnTotal(NamedTuple):
    request: str
    amount: SpendAmount


class _TickTotal(NamedTuple):
    at: str
    previous_tick: int | None
    turns: Mapping[str, _TurnTotal]
    total: SpendAmount


class SpendingHistory:
    """Spending of finished ticks, by tick: `org.own(SpendingHistory)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self.get_tick = lru_cache(_CACHED_TICKS)(partial(_load_tick, org))

    def is_in_window(self, window: LimitWindow | None, request: str, tick: int, at: str) -> bool:
        """Return True if a request was created within a window before a tick."""
        request_tick = get_request_tick(request)
        if window is None or request_tick >= tick:
            return True
        if window.ticks:
            return request_tick > tick - window.ticks
        return self.get_tick(request_tick).at >= _window_start(window, at)

    def ticks_in_window(self, window: LimitWindow | None, tick: int, at: str) -> Sequence[_TickTotal]:
        """Return the ticks in a window before a tick, or all earlier ticks without a window.

        Raises: SpendingUnknown if the window starts before the oldest journal.
        """
        tick_totals: list[_TickTotal] = []
        earlier_ticks = [number for number in journal_ticks(self._org) if number < tick]
        start = _window_start(window, at)
        first_tick = tick - window.ticks + 1 if window and window.ticks is not None else -1
        for number in reversed(earlier_ticks):
            if number < first_tick:
                return tick_totals
            tick_total = self.get_tick(number)
            if start and tick_total.at < start:
                return tick_totals
            tick_totals.append(tick_total)
        # The oldest journal names an earlier one: the spending recorded there is gone.
        missing_tick = tick_totals[-1].previous_tick if tick_totals else None
        if missing_tick is not None and missing_tick >= first_tick:
            # Not counted as 0: removing journals must not reset a limit.
            oldest = earlier_ticks[0]
            raise SpendingUnknown(f"journals go back to tick {oldest} only, and nothing tells what was before")
        return tick_totals


def _window_start(window: LimitWindow | None, at: str) -> str:
    """Return the timestamp of the start of a window, or the empty string for a window in ticks."""
    if window is None or window.seconds is None:
        return ""
    return timestamp(parse_timestamp(at) - timedelta(seconds=window.seconds))


def _load_tick(org: Organisation, tick: int) -> _TickTotal:
    """Return the spending of a finished tick. A tick without a journal has none."""
    facts = load_tick_facts(org, tick)  # from the journal: a limit trusts no cache
    turns = {}
    for key, turn in facts.turns.items():
        amount = write_off_amount(turn.write_off)
        for call in turn.calls:
            amount = amount.add(make_amount(call.credits, call.cost_usd, call.input_tokens + call.output_tokens))
        turns[key] = _TurnTotal(turn.request, amount)
    return _TickTotal(facts.at, facts.after, turns, sum_amounts(turn.amount for turn in turns.values()))


def make_amount(credits: float, cost_usd: float | None, tokens: int, calls: int = 1) -> SpendAmount:
    """Return the cost of calls as counted by limits. Answers without tokens came from no model."""
    is_model = tokens > 0 or credits > 0  # otherwise the answer was computed, as for a plan
    return _round_amount(credits, cost_usd, tokens, calls if is_model else 0)


def ledger_amount(state: AgentState) -> SpendAmount:
    """Return the spending in a ledger, including write-offs. Calls are not counted."""
    amount = _round_amount(state.credits, state.cost_usd, state.input_tokens + state.output_tokens, 0)
    return amount.add(write_off_amount(state.lost)._replace(calls=ZERO))


def write_off_amount(write_off: WriteOff) -> SpendAmount:
    """Return the amount of a write-off as counted by limits."""
    return _round_amount(write_off.credits, write_off.cost_usd, write_off.tokens, write_off.calls)


def _round_amount(credits: float, cost_usd: float | None, tokens: int, calls: int) -> SpendAmount:
    """Return an amount rounded to remove floating-point noise."""
    rounded = to_decimal(round(credits, 6)), to_decimal(round(cost_usd or 0.0, 12))
    return SpendAmount(*rounded, Decimal(calls), Decimal(tokens))


def get_request_tick(request: str) -> int:
    """Return the tick of a request from its identity `author/TICK_ID`."""
    return to_int(request.partition("/")[2].partition("_")[0])


class SpendingScope(NamedTuple):
    """Spending counted by a limit: of these agents (None: all agents), for this request (empty: any request)."""

    agents: frozenset[str] | None = None
    request: str = ""


@dataclass
class TickSpending:
    """Spending that the limits of one tick count. Turns call it under the turn lock, one at a time.

    `order`: turns of the tick. `reports`: finished turns. `initial_states`: the ledger state of each agent at
    the start of the tick, or the error in the ledger.
    """

    tick_context: TickContext
    journal: Journal
    order: Sequence[str]
    reports: Mapping[str, TurnReport]
    initial_states: dict[str, AgentState | CorruptState]
    _earlier_cache: dict[tuple[SpendingScope, LimitWindow | None, bool], SpendAmount] = field(default_factory=dict)

    @classmethod
    def for_tick(cls, tick: TickScope) -> TickSpending | None:
        """Return the spending limits of a tick, or None if no gate limits spending."""
        tick_context, journal = tick.tick_context, tick.journal
        agents = tick_context.mail.resumes.values()  # the limit of one agent may count the spending of others
        if not any(rule.gate.at == "spend" for rule in iter_rules(tick_context.config.org, *agents)):
            return None
        starts = (record for record in journal.records if isinstance(record, TurnStarted))
        # A resumed turn counts from the state at its start, which its record holds.
        recorded_states = {record.agent: AgentState.from_json(record.state) for record in starts if not record.turn}
        initial_states = {
            name: recorded_states.get(name) or _load_agent_state(tick_context, name)
            for name in list_agent_folders(tick_context.org)
        }
        return cls(tick_context, journal, tick.order, tick_context.reports, initial_states)

    @cached_property
    def history(self) -> SpendingHistory:
        """Spending of earlier ticks."""
        return self.tick_context.org.get_cache(SpendingHistory)

    def sum_earlier_spending(self, scope: SpendingScope, window: LimitWindow | None, *, counts: bool) -> SpendAmount:
        """Return the spending before this tick. `counts`: calls matter. Raises: SpendingUnknown for lost journals."""
        key = scope, window, counts
        if key not in self._earlier_cache:
            self._earlier_cache[key] = self._sum_earlier_spending(scope, window, counts)
        return self._earlier_cache[key]

    def _sum_earlier_spending(self, scope: SpendingScope, window: LimitWindow | None, counts: bool) -> SpendAmount:
        tick, at = self.tick_context.tick, self.tick_context.at
        # Ledgers hold these sums; all others are in journals alone.
        if window is None and not counts and not scope.request:
            return sum_amounts(map(self._ledger_amount, sorted(scope.agents or self.initial_states)))
        tick_totals: Iterable[_TickTotal]
        if window is None and scope.request:
            ticks, recorded_ticks = range(get_request_tick(scope.request), tick), journal_ticks(self.tick_context.org)
            tick_totals = (self.history.get_tick(item) for item in recorded_ticks if item in ticks)
        else:
            tick_totals = self.history.ticks_in_window(window, tick, at)
        if scope == SpendingScope():
            return sum_amounts(item.total for item in tick_totals)
        turns = ((split_key(key)[0], turn) for item in tick_totals for key, turn in item.turns.items())
        return sum_amounts(turn.amount for name, turn in turns if self.is_in_scope(scope, name, turn.request))

    def _ledger_amount(self, name: str) -> SpendAmount:
        state = self.initial_states.get(name, AgentState())
        if isinstance(state, CorruptState):
            raise SpendingUnknown(str(state))
        return ledger_amount(state)

    def is_in_scope(self, scope: SpendingScope, agent: str, request: str) -> bool:
        """Return True if the spending of an agent's turn for a request counts for a scope."""
        if scope.agents is not None:
            return agent in scope.agents
        return not scope.request or (bool(request) and self.get_root_request(request) == scope.request)

    def get_root_request(self, request: str) -> str:
        """Return the root request of a chain of sub-requests."""
        visited = set[str]()
        while request not in visited:
            visited.add(request)
            author, tick = request.partition("/")[0], get_request_tick(request)
            turns: Mapping[str, object]
            turns = self.reports if tick == self.tick_context.tick else self.history.get_tick(tick).turns
            turn = _find_turn_number(tick, author, request.rpartition("_")[2]) if turn_key(author, 1) in turns else 0
            parent_request = getattr(turns.get(turn_key(author, turn)), "request", "")
            if not parent_request:
                return request
            request = parent_request
        return request

    def sum_earlier_turns(self, name: str, turn: int, scope: SpendingScope) -> SpendAmount:
        """Return the spending counted by a scope for earlier turns of this tick, in turn order."""
        # Later turns may end first, by chance: turns in parallel must get the sums of turns in series.
        keys = [key for other in takewhile(name.__ne__, self.order) for key in list_turn_keys(other, self.reports)]
        keys += [turn_key(name, item) for item in range(turn)]
        reports = (self.reports[key] for key in keys if key in self.reports)
        counted = (report for report in reports if self.is_in_scope(scope, report.agent, report.request))
        return sum_amounts(map(_sum_turn_report, counted))

    def sum_approved_raises(self, rule: GateRule, about: str, name: str, snapshot: Mapping[str, Any]) -> SpendAmount:
        """Return the approved raises of a limit. `snapshot`: inputs of the turn."""

        def earlier_raises(agent: str) -> dict[str, dict[str, Any]]:
            state = self.initial_states.get(agent)
            return find_limit_raises(state.kept, rule.line) if isinstance(state, AgentState) else {}

        raises, window = find_limit_raises(snapshot, rule.line), parse_window(rule.gate.window)
        if rule.gate.per == "turn":  # another turn asks again
            return sum_raises(raises[request] for request in raises.keys() - earlier_raises(name).keys())
        for other in self.get_family(name) if rule.gate.per == "agent" else self.initial_states:
            if other != name:
                raises = earlier_raises(other) | raises
        now = self.tick_context.tick, self.tick_context.at
        return sum_raises(
            args
            for request, args in raises.items()
            if args["of"] == about and self.history.is_in_window(window, request, *now)
        )

    def get_family(self, name: str) -> frozenset[str]:
        """Return the agents with shared limits: the agent, its creator, and all agents created by either."""
        return self._families.get(name) or frozenset((name,))

    @cached_property
    def _families(self) -> Mapping[str, frozenset[str]]:
        return group_families(self.tick_context.mail.resumes)


def _sum_turn_report(report: TurnReport) -> SpendAmount:
    tokens = report.input_tokens + report.output_tokens
    amount = make_amount(report.credits, report.cost_usd, tokens, report.calls)
    return amount.add(write_off_amount(WriteOff.from_json(report.lost)))


def _load_agent_state(tick_context: TickContext, name: str) -> AgentState | CorruptState:
    try:
        return read_state(tick_context.org, name, before_tick=tick_context.tick)
    # Kept as a value: only limits that count this agent let nothing be spent.
    except CorruptState as error:
        return error


def find_shared_limits(agents: Mapping[str, Agent], settings: OrgSettings) -> Iterator[SharedResource]:
    """Yield the shared limits: of the organisation with all requests, and of agent families.

    No turn waits for any other limit on spending: an agent's own turns run one after another.
    """
    agents_by_scope: dict[str, set[str]] = {"agent": set(), "all": set(), "own": set()}
    for name, agent in agents.items():
        for _, gate in rules_for_agent(agent, settings):
            if gate.at == "spend":
                agents_by_scope["own"].add(name)
            if gate.per not in (None, "turn"):
                agents_by_scope["agent" if gate.per == "agent" else "all"].add(name)
    if agents_by_scope["own"]:
        yield SharedResource("a limit per turn", frozenset(), frozenset())
    if agents_by_scope["all"]:
        yield SharedResource("a limit per organisation or request", agents_by_scope["all"], agents.keys())
    if agents_by_scope["agent"]:
        for family in {*group_families(agents).values()}:
            if agents_by_scope["agent"] & family:
                first = min(family)
                yield SharedResource(
                    f"a limit per agent, of the family of {first}", agents_by_scope["agent"] & family, family
                )


def group_families(agents: Mapping[str, Agent]) -> dict[str, frozenset[str]]:
    """Return the family of each agent: agents connected by creation."""
    members = dict[str, set[str]]()
    for name, agent in agents.items():
        first, visited = name, {name}
        while first in agents and (creator := agents[first].created_by) and creator not in visited:
            visited.add(first := creator)  # the creator may be gone
        if agent.created_by:
            members.setdefault(first, {first}).add(name)
    return {name: frozenset(family) for family in members.values() for name in family}


def _find_turn_number(tick: int, agent: str, identity: str) -> int:
    """Return the number of the agent's turn in a tick that produced this id, or 0."""
    ids = (
        (turn, entry_id(tick, agent, number, turn))
        for turn in list_possible_turns(identity)[1:]
        for number in range(DECISIONS_FROM)
    )
    return next((turn for turn, derived in ids if derived == identity), 0)
