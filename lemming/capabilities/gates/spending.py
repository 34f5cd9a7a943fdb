"""Limits of what may be spent, while a tick's turns spend it: what gates at `spend` say of each call.

    spent before the tick + spent in it by turns before this one + spent by this turn + what the call can cost

is what a limit is held against: that is what it would be if turns were taken one after another, in their
order. Turns at once come to the same. A call goes ahead while turns before it are under way only where it
would whatever they spend, each of them no more than its share; else it waits until they are over. So what
a tick writes does not depend on how many turns run at once, and no call is made that could exceed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lemming.agents import agent_folders
from lemming.capabilities.gates.gate import Rule
from lemming.capabilities.gates.keys import gates_in, rules_for
from lemming.capabilities.gates.limit import NOTHING, Amount, Window, raised, window_of
from lemming.capabilities.gates.look import rules_at
from lemming.errors import CorruptState
from lemming.journal.file import Journal, journal_ticks
from lemming.journal.ledger import AgentState, read_state
from lemming.journal.lost import Lost
from lemming.journal.records import Record, TurnStarted
from lemming.journal.report import TurnReport
from lemming.mail.kept import raises_of
from lemming.tick.executors.turn_lock import TurnLock
from lemming.tick.reserved import Reserved
from lemming.tick.runtime import Runtime, Stopped
from lemming.tick.snapshot import Snapshot
from lemming.tick.spent_before import (
    NotKnown,
    SpentBefore,
    amount_in,
    amount_lost,
    amount_of,
    tick_of,
    total,
)
from lemming.tick.turn_limits import Scope, TurnSpending
from lemming.turn.values import TurnInputs

LOOKS_EVERY_S = 0.2


@dataclass
class TickSpending:
    """The limits of one tick. Its turns call it while they hold the turn lock, so one at a time.

    `began`: what ledgers said as the tick began, by agent, or what is wrong with one.
    """

    snapshot: Snapshot
    reports: Mapping[str, TurnReport]
    turn_lock: TurnLock
    stop: threading.Event
    began: dict[str, AgentState | CorruptState]
    turns: dict[str, TurnSpending] = field(default_factory=dict)
    _before: dict[tuple[Scope, Window | None, bool], Amount] = field(default_factory=dict)
    _waiting: list[threading.Event] = field(default_factory=list)

    @classmethod
    def of_tick(
        cls,
        runtime: Runtime,
        snapshot: Snapshot,
        records: Iterable[Record],
        reports: Mapping[str, TurnReport],
    ) -> TickSpending | None:
        """Return the limits of a tick with these records so far; None where nobody has any."""
        agents = snapshot.survey.agents.values()  # whoever has a limit may add up what others spend
        gates = [*gates_in(snapshot.config.org), *(gate for agent in agents for gate in gates_in(agent))]
        if not any(gate.at == "spend" for gate in gates):
            return None
        begun = {it.agent: AgentState.from_json(it.state) for it in records if isinstance(it, TurnStarted)}
        began = {name: begun.get(name) or _state_of(snapshot, name) for name in agent_folders(snapshot.org)}
        return cls(snapshot, reports, runtime.turn_lock, runtime.stop, began)

    def of(self, inputs: TurnInputs, journal: Journal) -> TurnSpending:
        """Return the limits of a turn that begins, or goes on."""
        agent = inputs.agent
        rules = rules_at(rules_for(agent, self.snapshot.config.org), "spend")
        reserved = Reserved(journal, agent.name)
        turn = self.turns[agent.name] = TurnSpending(self, inputs, rules, reserved)
        self.tell()
        return turn

    def tell(self) -> None:
        """Let turns that wait look again: another has begun, or is over."""
        while self._waiting:
            self._waiting.pop().set()

    def wait(self) -> None:
        """Wait until there is something to look at again, and hold nobody up; raise `Stopped` at an end."""
        news = threading.Event()
        self._waiting.append(news)
        with self.turn_lock.aside:
            while not (news.wait(LOOKS_EVERY_S) or self.stop.is_set()):
                pass
        if self.stop.is_set():
            raise Stopped

    @cached_property
    def spent(self) -> SpentBefore:
        """What turns of earlier ticks have spent."""
        return self.snapshot.org.own(SpentBefore)

    def before(self, scope: Scope, window: Window | None, *, counts: bool) -> Amount:
        """Return what was spent before this tick; `counts`: the number of calls matters.

        Raises `NotKnown` where that is told by journals that are gone.
        """
        key = scope, window, counts
        if key not in self._before:
            self._before[key] = self._spent_before(scope, window, counts)
        return self._before[key]

    def _spent_before(self, scope: Scope, window: Window | None, counts: bool) -> Amount:
        tick, at = self.snapshot.tick, self.snapshot.at
        if window is None and not counts and not scope.request:
            return total(map(self._in_ledger, sorted(scope.agents or self.began)))
        if window is None and scope.request:
            first = tick_of(scope.request)
            found = [self.spent.of(it) for it in journal_ticks(self.snapshot.org) if first <= it < tick]
        else:
            found = self.spent.within(window, tick, at)
        if scope == Scope():
            return total(it.total for it in found)
        turns = ((name, turn) for it in found for name, turn in it.turns.items())
        return total(turn.amount for name, turn in turns if self.is_within(scope, name, turn.request))

    def _in_ledger(self, name: str) -> Amount:
        state = self.began.get(name, AgentState())
        if isinstance(state, CorruptState):
            raise NotKnown(str(state))
        return amount_in(state)

    def is_within(self, scope: Scope, agent: str, request: str) -> bool:
        """Return whether a limit adds up what a turn of an agent, for a request, spends."""
        if scope.agents is not None:
            return agent in scope.agents
        return not scope.request or (bool(request) and self.root_of(request) == scope.request)

    def root_of(self, request: str) -> str:
        """Return the request for which a request was asked, and the one for which that was, to the first."""
        seen = set[str]()
        while request not in seen:
            seen.add(request)
            author, tick = request.partition("/")[0], tick_of(request)
            turns: Mapping[str, object]
            turns = self.reports if tick == self.snapshot.tick else self.spent.of(tick).turns
            asked_for = getattr(turns.get(author), "request", "")
            if not asked_for:
                return request
            request = asked_for
        return request

    def before_in_tick(self, name: str, rule: Rule, scope: Scope, left: Amount) -> tuple[Amount | None, bool]:
        """Return the most that turns before an agent's come to in this tick, and whether they are all over.

        None where one of them may come to anything. `left`: of the limit, as the tick began.
        """
        most, is_over = NOTHING, True
        for other in self.snapshot.plan.order:
            if other == name:
                return most, is_over
            if report := self.reports.get(other):
                if self.is_within(scope, other, report.request):
                    most = most.plus(_amount_of_turn(report))
                continue
            turn = self.turns.get(other)
            if turn is None or not turn.is_held_to(rule):
                return None, False
            is_over = False
            if self.is_within(scope, other, turn.request):
                most = most.plus(turn.share(left))
        raise AssertionError(f"{name} is not in the order of the tick")

    def known_raises(self, name: str, line: str) -> dict[str, dict[str, Any]]:
        """Return by how much persons had raised a limit for an agent as the tick began, by the request."""
        state = self.began.get(name)
        return raises_of(state.kept, line) if isinstance(state, AgentState) else {}

    def raised(self, rule: Rule, about: str, name: str, given: Mapping[str, Any]) -> Amount:
        """Return how much more than a limit may be spent, as persons approved; `given`: to its turn."""
        own, window = raises_of(given, rule.line), window_of(rule.gate.window)
        if rule.gate.per == "turn":  # another turn asks again
            before = self.known_raises(name, rule.line)
            return raised(args for request, args in own.items() if request not in before)
        names = self.family_of(name) if rule.gate.per == "agent" else self.began
        known = [it for each in names if each != name for it in self.known_raises(each, rule.line).items()]
        return raised(
            args
            for request, args in ({**dict(known), **own}).items()
            if args["of"] == about
            and self.spent.is_within(window, request, self.snapshot.tick, self.snapshot.at)
        )

    def family_of(self, name: str) -> frozenset[str]:
        """Return the agents that share an agent's limits: it, who created it, and all that they created."""
        return self._families.get(name) or frozenset((name,))

    @cached_property
    def _families(self) -> dict[str, frozenset[str]]:
        """The families of agents that were created by others, by each agent of them."""
        agents, members = self.snapshot.survey.agents, dict[str, set[str]]()
        for name, agent in agents.items():
            first, seen = name, {name}
            while first in agents and (above := agents[first].created_by) and above not in seen:
                seen.add(first := above)  # whoever created them may be gone
            if agent.created_by:
                members.setdefault(first, {first}).add(name)
        return {name: frozenset(family) for family in members.values() for name in family}


def _state_of(snapshot: Snapshot, name: str) -> AgentState | CorruptState:
    try:
        return read_state(snapshot.org, name, before=snapshot.tick)
    except CorruptState as error:
        return error


def _amount_of_turn(report: TurnReport) -> Amount:
    tokens = report.input_tokens + report.output_tokens
    spent = amount_of(report.credits, report.cost_usd, tokens, report.calls)
    return spent.plus(amount_lost(Lost.of(report.lost)))
