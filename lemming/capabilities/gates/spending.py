"""Limits of what may be spent, while a tick's turns spend it: what gates at `spend` say of each call.

    spent before the tick + spent in it by turns before this one + spent by this turn + what the call can cost

is what a limit is held against: that is what it would be if turns were taken one after another, in their
order. Turns that share a limit are: one waits until those before it are over (`shared_limits`). So what a
tick writes does not depend on how many turns run at once, and no call is made that could exceed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, NamedTuple

from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.keys import gates_in, rules_for
from lemming.capabilities.gates.limit import (
    NOTHING,
    ONE,
    ZERO,
    Amount,
    Window,
    beyond,
    in_words,
    limits_of,
    raised,
    window_of,
)
from lemming.capabilities.gates.looking import WORDS, require_seen, rules_at
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
from lemming.capabilities.money.prices import worst_of
from lemming.kernel.agents import agent_folders
from lemming.kernel.base.entry_ids import turn_of
from lemming.kernel.base.errors import CorruptState, DiskError, LimitReached, RequestOverLimit
from lemming.kernel.base.turn_numbers import keys_of, split_key, turn_key
from lemming.kernel.journal.file import Journal, journal_ticks
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.records import ModelFailed, ModelReplied, TurnStarted
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.llm.credits import most_tokens_in
from lemming.kernel.mail.capability_notes import raises_of
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import Request
from lemming.kernel.tick.reservations import Reservations
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.values import TurnInputs


class Scope(NamedTuple):
    """Whose spending a limit adds up: that of these agents (None: of all), for this request (empty: any)."""

    agents: frozenset[str] | None = None
    request: str = ""


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
        begun = {it.agent: AgentState.from_json(it.state) for it in starts if not it.turn}
        began = {name: begun.get(name) or _state_of(now, name) for name in agent_folders(now.org)}
        return cls(now, journal, order, reports, began)

    def of(self, inputs: TurnInputs) -> TurnSpending:
        """Return the limits of a turn that begins, or goes on."""
        rules = rules_at(rules_for(inputs.agent, self.now.config.org), "spend")
        return TurnSpending(self, inputs, rules, Reservations(self.journal, inputs))

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
        # Ledgers keep these sums; anything else is in journals alone.
        if window is None and not counts and not scope.request:
            return total(map(self._in_ledger, sorted(scope.agents or self.began)))
        if window is None and scope.request:
            first = tick_of(scope.request)
            found = (*(self.spent.of(it) for it in journal_ticks(self.now.org) if first <= it < tick),)
        else:
            found = (*self.spent.within(window, tick, at),)
        if scope == Scope():
            return total(it.total for it in found)
        turns = ((split_key(key)[0], turn) for it in found for key, turn in it.turns.items())
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
            turn = turn_of(tick, author, request.rpartition("_")[2]) if turn_key(author, 1) in turns else 0
            asked_for = getattr(turns.get(turn_key(author, turn)), "request", "")
            if not asked_for:
                return request
            request = asked_for
        return request

    def before_in_tick(self, name: str, turn: int, scope: Scope) -> Amount:
        """Return the spending of the agent's earlier turns in this tick."""
        # Those behind it may be over sooner, by chance: turns at once must come to what turns in a row would.
        others = (key for other in takewhile(name.__ne__, self.order) for key in keys_of(other, self.reports))
        own = (turn_key(name, it) for it in range(turn))
        before = (self.reports[key] for key in chain(others, own) if key in self.reports)
        return total(_amount_of_turn(it) for it in before if self.is_within(scope, it.agent, it.request))

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


class TurnSpending:
    """The limits of one turn, which has none of its own where others add up what it spends."""

    def __init__(
        self, tick: TickSpending, inputs: TurnInputs, rules: Sequence[Rule], reserved: Reservations
    ) -> None:
        self._tick, self._rules, self._reserved = tick, rules, reserved
        self._name, self.request = inputs.agent.name, inputs.task.request if inputs.task else ""
        self._turn = inputs.turn
        self._settled = NOTHING
        self._given = inputs.given

    @property
    def _own(self) -> Amount:
        """What the turn has spent, with what is reserved for calls that have no answer."""
        return self._settled.plus(amount_lost(self._reserved.reserved))

    @property
    def unsettled(self) -> Lost:
        """What the turn may have spent beside its answers."""
        return self._reserved.unsettled

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Count what a call has cost, and what of the reservations for it is lost."""
        self._reserved.settle(record)
        self._settled = self._settled.plus(amount_lost(Lost.of(record.lost)))
        if isinstance(record, ModelReplied):
            tokens = record.input_tokens + record.output_tokens
            self._settled = self._settled.plus(amount_of(record.credits, record.cost_usd, tokens))

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the most that a call can cost which is about to be made."""
        if self._is_counted(key, entry):
            self._reserved.reserve(key, entry, request)

    def release(self, call: int) -> None:
        """Give back what was reserved for a call: it was not made, or what it cost is known."""
        self._reserved.release(call)

    def lost(self, call: int) -> Lost:
        """Return what of the reservations for a call is lost, now that it has its answer or has failed."""
        return self._reserved.lost(call)

    def _is_counted(self, key: str, entry: ModelEntry) -> bool:
        """Return whether a model answers: a plan, the clock and a program that judges are none."""
        return entry.provider not in NO_MODELS and key in self._tick.now.config.models

    def look(
        self, call: int, key: str, entry: ModelEntry, request: Request, *, trust: str = ""
    ) -> Iterator[GateVerdict]:
        """Yield what gates say of a call about to be made; raise `LimitReached` when it may not be.

        `key` is that of the model to be asked, `trust` how far the turn is trusted, where that is tracked.
        """
        if not self._is_counted(key, entry):
            return
        asked = _Asked.of(key, entry, request)
        facts = {"agent": self._name, "call": call, "request": self.request, **asked.facts}
        facts |= {"trust": trust} if trust else {}
        for rule in self._rules:
            then = rule.gate.then
            try:
                require_seen(rule.gate, facts)
                why = self._finding(rule, asked, facts) if rule.gate.condition(facts) else None
            except DiskError:  # nobody knows what was spent: the run ends
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a gate, it does not open
                why, then = f"the gate broke: {words_of(error)}", "block"
            if why is None:
                continue
            if then == "pass":
                break
            about = self._scope_in_words(rule.gate) if then == "ask" else f"call {call}"
            amounts = why.amounts if isinstance(why, OverLimit) else None
            yield GateVerdict(rule.line, "spend", then, about, rule.gate.because or str(why), amounts)
            if then != "warn":
                is_final = then == "block" and isinstance(why, OverLimit) and why.is_final
                kind = RequestOverLimit if is_final else LimitReached
                raise kind(f"{WORDS[then]}: {rule.gate.because or why} ({rule.line})")

    def _finding(self, rule: Rule, asked: _Asked, facts: dict[str, Any]) -> str | None:
        """Return what a gate has against a call; None when it finds nothing."""
        gate = rule.gate
        if gate.check:
            found = asking(tuple(self._tick.now.config.org.plugins))(gate.check, facts)
            return None if found is None else found.why
        if gate.models:
            allowed = ", ".join(gate.models)
            return None if asked.key in gate.models else f'"{asked.key}" is none of the models {allowed}'
        limits = limits_of(gate)
        if not limits:
            return ""
        if gate.then == "ask":
            more = self._tick.raised(rule, self._scope_in_words(gate), self._name, self._given)
            limits = {key: limit + getattr(more, key) for key, limit in limits.items()}
        if "dollars" in limits and not asked.is_priced:
            return (
                f'the price of model "{asked.key}" is unknown, so that a limit in dollars cannot hold: '
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json"
            )
        scope = self._scope_of(gate)
        if scope is None:
            return None
        try:
            spent = self._spent(gate, scope, counts="calls" in limits)
        except NotKnown as error:
            return f"what was spent is not known: {error.message}"
        key = beyond(limits, spent.plus(asked.worst))
        if not key:
            return None
        so_far, most = in_words(key, getattr(spent, key)), in_words(key, limits[key])
        can_cost = in_words(key, getattr(asked.worst, key))
        window = window_of(gate.window)
        within = f" within {window}" if window else ""
        said = f"{so_far} of {most} per {gate.per}{within} are spent, and the call can cost {can_cost}"
        amounts = {
            "unit": key,
            "spent": float(getattr(spent, key)),
            "limit": float(limits[key]),
            "call": float(getattr(asked.worst, key)),
        }
        return OverLimit(said, amounts, is_final=gate.per == "request" and not window)

    def _scope_in_words(self, gate: Gate) -> str:
        """Return what an approval to spend more is for: what a limit adds up."""
        return f"request {self._tick.root_of(self.request)}" if gate.per == "request" else str(gate.per)

    def _scope_of(self, gate: Gate) -> Scope | None:
        """Return whose spending a limit adds up; None where it does not concern the turn."""
        match gate.per:
            case "request":
                return Scope(request=self._tick.root_of(self.request)) if self.request else None
            case "organisation":
                return Scope()
            case _:
                return Scope(agents=self._tick.family_of(self._name))

    def _spent(self, gate: Gate, scope: Scope, *, counts: bool) -> Amount:
        """Return what is spent of a limit: before the tick, in it before this turn, and by this turn."""
        if gate.per == "turn":
            return self._own
        before = self._tick.before(scope, window_of(gate.window), counts=counts)
        return before.plus(self._tick.before_in_tick(self._name, self._turn, scope)).plus(self._own)


class OverLimit(str):
    """The reason why a call would exceed a limit, with its numbers (`GateVerdict.amounts`).

    `is_final`: no later call for the same request is possible either.
    """

    amounts: Mapping[str, Any]
    is_final: bool

    def __new__(cls, reason: str, amounts: Mapping[str, Any], *, is_final: bool) -> OverLimit:
        """Return a reason that reads as the text itself."""
        over = super().__new__(cls, reason)
        over.amounts, over.is_final = amounts, is_final
        return over


class _Asked(NamedTuple):
    """A call about to be made: the key of its model, and what it can cost."""

    key: str
    worst: Amount
    is_priced: bool
    facts: dict[str, Any]

    @classmethod
    def of(cls, key: str, entry: ModelEntry, request: Request) -> _Asked:
        worst = worst_of(entry, most_tokens_in(request))
        dollars = None if worst.dollars is None else float(worst.dollars)
        facts = {
            "model": key,
            "provider": entry.provider,
            "credits": float(worst.credits),
            "dollars": dollars,
            "tokens": worst.tokens,
        }
        most = Amount(worst.credits, worst.dollars or ZERO, ONE, Decimal(worst.tokens))
        return cls(key, most, dollars is not None, facts)
