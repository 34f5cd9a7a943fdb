"""Spending before a call: in earlier ticks, and in earlier turns of the same tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import get_gates, rules_for_agent
from lemming.capabilities.gates.past_spending import (
    SpendingHistory,
    SpendingUnknown,
    get_request_tick,
    ledger_amount,
    make_amount,
    sum_amounts,
    write_off_amount,
)
from lemming.capabilities.gates.spending_limit import LimitWindow, SpendAmount, parse_window, sum_raises
from lemming.ext import SharedResource, TickContext, TickScope
from lemming.kernel.agents import Agent, list_agent_folders
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.turn_numbers import find_turn_number, list_turn_keys, split_key, turn_key
from lemming.kernel.journal.journal_file import Journal, journal_ticks
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.org.config import OrgSettings
from lemming.obligations.ledger_calls import find_limit_raises


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
        gates = [*get_gates(tick_context.config.org), *(gate for agent in agents for gate in get_gates(agent))]
        if not any(gate.at == "spend" for gate in gates):
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
        """Return the spending before this tick. `counts`: the number of calls matters.

        Raises: SpendingUnknown if the journals with the answer are gone.
        """
        key = scope, window, counts
        if key not in self._earlier_cache:
            self._earlier_cache[key] = self._sum_earlier_spending(scope, window, counts)
        return self._earlier_cache[key]

    def _sum_earlier_spending(self, scope: SpendingScope, window: LimitWindow | None, counts: bool) -> SpendAmount:
        tick, at = self.tick_context.tick, self.tick_context.at
        # Ledgers hold these sums; all others are in journals alone.
        if window is None and not counts and not scope.request:
            return sum_amounts(map(self._ledger_amount, sorted(scope.agents or self.initial_states)))
        if window is None and scope.request:
            first = get_request_tick(scope.request)
            tick_totals = (
                *(self.history.get_tick(item) for item in journal_ticks(self.tick_context.org) if first <= item < tick),
            )
        else:
            tick_totals = (*self.history.ticks_in_window(window, tick, at),)
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
            turn = find_turn_number(tick, author, request.rpartition("_")[2]) if turn_key(author, 1) in turns else 0
            parent_request = getattr(turns.get(turn_key(author, turn)), "request", "")
            if not parent_request:
                return request
            request = parent_request
        return request

    def sum_earlier_turns(self, name: str, turn: int, scope: SpendingScope) -> SpendAmount:
        """Return the spending counted by a scope for earlier turns of this tick, in turn order."""
        # Later turns may end first, by chance: turns in parallel must get the sums of turns in series.
        earlier_keys = (
            key for other in takewhile(name.__ne__, self.order) for key in list_turn_keys(other, self.reports)
        )
        own_keys = (turn_key(name, item) for item in range(turn))
        earlier_reports = (self.reports[key] for key in chain(earlier_keys, own_keys) if key in self.reports)
        return sum_amounts(
            _sum_turn_report(item) for item in earlier_reports if self.is_in_scope(scope, item.agent, item.request)
        )

    def get_earlier_raises(self, name: str, line: str) -> dict[str, dict[str, Any]]:
        """Return the raises of a limit for an agent at the start of the tick, by request."""
        state = self.initial_states.get(name)
        return find_limit_raises(state.kept, line) if isinstance(state, AgentState) else {}

    def sum_approved_raises(self, rule: GateRule, about: str, name: str, snapshot: Mapping[str, Any]) -> SpendAmount:
        """Return the approved raises of a limit. `snapshot`: inputs of the turn."""
        own_raises, window = find_limit_raises(snapshot, rule.line), parse_window(rule.gate.window)
        if rule.gate.per == "turn":  # another turn asks again
            earlier_raises = self.get_earlier_raises(name, rule.line)
            return sum_raises(args for request, args in own_raises.items() if request not in earlier_raises)
        names = self.get_family(name) if rule.gate.per == "agent" else self.initial_states
        family_raises = [
            raise_item
            for agent_name in names
            if agent_name != name
            for raise_item in self.get_earlier_raises(agent_name, rule.line).items()
        ]
        return sum_raises(
            args
            for request, args in ({**dict(family_raises), **own_raises}).items()
            if args["of"] == about
            and self.history.is_in_window(window, request, self.tick_context.tick, self.tick_context.at)
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

    Every other limit on spending is a resource that nobody waits for: an agent's own turns run one after another.
    """
    holders: dict[str, set[str]] = {"agent": set(), "all": set(), "own": set()}
    for name, agent in agents.items():
        for _, gate in rules_for_agent(agent, settings):
            if gate.at == "spend":
                holders["own"].add(name)
            if gate.per not in (None, "turn"):
                holders["agent" if gate.per == "agent" else "all"].add(name)
    if holders["own"]:
        yield SharedResource("a limit per turn", frozenset(), frozenset())
    if holders["all"]:
        yield SharedResource("a limit per organisation or request", holders["all"], agents.keys())
    if holders["agent"]:
        for family in {*group_families(agents).values()}:
            if holders["agent"] & family:
                first = min(family)
                yield SharedResource(f"a limit per agent, of the family of {first}", holders["agent"] & family, family)


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
