"""Limits of what may be spent, while a tick's turns spend it: what gates at `spend` say of each call.

    spent before the tick + spent in it by turns before this one + spent by this turn + what the call can cost

is what a limit is held against: that is what it would be if turns were taken one after another, in their
order. Turns that share a limit are: one waits until those before it are over (`shared_limits`). So what a
tick writes does not depend on how many turns run at once, and no call is made that could exceed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any

from lemming.capabilities.gates.format import Rule
from lemming.capabilities.gates.keys import gates_in, rules_for
from lemming.capabilities.gates.limit import Amount, Window, raised, window_of
from lemming.capabilities.gates.looking import rules_at
from lemming.capabilities.gates.reserved import Reserved
from lemming.capabilities.gates.shared_limits import families_among
from lemming.capabilities.gates.spent_before import (
    NotKnown,
    SpentBefore,
    amount_in,
    amount_lost,
    amount_of,
    tick_of,
    total,
)
from lemming.capabilities.gates.turn_spending import Scope, TurnSpending
from lemming.kernel.agents import agent_folders
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.file import Journal, journal_ticks
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.mail.capability_notes import raises_of
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.values import TurnInputs


@dataclass
class TickSpending:
    """The limits of one tick. Its turns call it while they hold the turn lock, so one at a time.

    `order`: of its turns, `reports`: of those that are over. `began`: what ledgers said as the tick began, by
    agent, or what is wrong with one.
    """

    now: Surroundings
    journal: Journal
    order: Sequence[str]
    reports: Mapping[str, TurnReport]
    began: dict[str, AgentState | CorruptState]
    _before: dict[tuple[Scope, Window | None, bool], Amount] = field(default_factory=dict)

    @classmethod
    def of_tick(
        cls,
        now: Surroundings,
        journal: Journal,
        order: Sequence[str],
        reports: Mapping[str, TurnReport],
    ) -> TickSpending | None:
        """Return the limits of a tick with this journal so far; None where nobody has any."""
        agents = now.mail.resumes.values()  # whoever has a limit may add up what others spend
        gates = [*gates_in(now.config.org), *(gate for agent in agents for gate in gates_in(agent))]
        if not any(gate.at == "spend" for gate in gates):
            return None
        starts = (it for it in journal.records if isinstance(it, TurnStarted))
        # A turn under way counts from the ledger as it was when it began, which its record has.
        begun = {it.agent: AgentState.from_json(it.state) for it in starts}
        began = {name: begun.get(name) or _state_of(now, name) for name in agent_folders(now.org)}
        return cls(now, journal, order, reports, began)

    def of(self, inputs: TurnInputs) -> TurnSpending:
        """Return the limits of a turn that begins, or goes on."""
        rules = rules_at(rules_for(inputs.agent, self.now.config.org), "spend")
        return TurnSpending(self, inputs, rules, Reserved(self.journal, inputs.agent.name))

    @cached_property
    def spent(self) -> SpentBefore:
        """What turns of earlier ticks have spent."""
        return self.now.org.own(SpentBefore)

    def before(self, scope: Scope, window: Window | None, *, counts: bool) -> Amount:
        """Return what was spent before this tick; `counts`: the number of calls matters.

        Raises `NotKnown` where that is told by journals that are gone.
        """
        key = scope, window, counts
        if key not in self._before:
            self._before[key] = self._spent_before(scope, window, counts)
        return self._before[key]

    def _spent_before(self, scope: Scope, window: Window | None, counts: bool) -> Amount:
        tick, at = self.now.tick, self.now.at
        if window is None and not counts and not scope.request:
            return total(map(self._in_ledger, sorted(scope.agents or self.began)))
        if window is None and scope.request:
            first = tick_of(scope.request)
            found = [self.spent.of(it) for it in journal_ticks(self.now.org) if first <= it < tick]
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
            turns = self.reports if tick == self.now.tick else self.spent.of(tick).turns
            asked_for = getattr(turns.get(author), "request", "")
            if not asked_for:
                return request
            request = asked_for
        return request

    def before_in_tick(self, name: str, scope: Scope) -> Amount:
        """Return what turns before an agent's have spent in this tick."""
        before = (self.reports.get(other) for other in takewhile(name.__ne__, self.order))
        return total(
            _amount_of_turn(it) for it in before if it and self.is_within(scope, it.agent, it.request)
        )

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
            if args["of"] == about and self.spent.is_within(window, request, self.now.tick, self.now.at)
        )

    def family_of(self, name: str) -> frozenset[str]:
        """Return the agents that share an agent's limits: it, who created it, and all that they created."""
        return self._families.get(name) or frozenset((name,))

    @cached_property
    def _families(self) -> Mapping[str, frozenset[str]]:
        return families_among(self.now.mail.resumes)


def _state_of(now: Surroundings, name: str) -> AgentState | CorruptState:
    try:
        return read_state(now.org, name, before=now.tick)
    except CorruptState as error:
        return error


def _amount_of_turn(report: TurnReport) -> Amount:
    tokens = report.input_tokens + report.output_tokens
    spent = amount_of(report.credits, report.cost_usd, tokens, report.calls)
    return spent.plus(amount_lost(Lost.of(report.lost)))
