"""Limits of what may be spent, while a tick's turns spend it: what gates at `spend` say of each call.

    spent before the tick + spent in it by turns before this one + spent by this turn + what the call can cost

is what a limit is held against: that is what it would be if turns were taken one after another, in their
order. Turns at once come to the same. A call goes ahead while turns before it are under way only where it
would whatever they spend, each of them no more than its share; else it waits until they are over. So what
a tick writes does not depend on how many turns run at once, and no call is made that could exceed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from lemming import paths
from lemming.agents import agent_folders
from lemming.config import ORG_FILE
from lemming.errors import CorruptState, LemmingError, LimitReached
from lemming.files.jsontext import to_line
from lemming.gates.checks import asking
from lemming.gates.gate import Gate, GateVerdict, Rule, rules_of
from lemming.gates.limit import (
    AMOUNTS,
    NOTHING,
    ONE,
    ZERO,
    Amount,
    Window,
    beyond,
    in_words,
    limits_of,
    window_of,
)
from lemming.gates.look import WORDS, rules_at
from lemming.journal.file import journal_ticks
from lemming.journal.ledger import AgentState, read_state
from lemming.journal.records import Record, TurnStarted
from lemming.llm.worst import most_tokens_in, size_of, worst_of
from lemming.models import ModelEntry
from lemming.plugins.errors import words_of
from lemming.providers import Request
from lemming.report import TurnReport
from lemming.tick.executors.turn_lock import TurnLock
from lemming.tick.runtime import Runtime, Stopped
from lemming.tick.snapshot import Snapshot
from lemming.tick.spent_before import NotKnown, SpentBefore, amount_in, amount_of, total
from lemming.turn.results import RESULTS_CHARS
from lemming.turn.values import Answer, TurnInputs

NO_MODELS = frozenset({"plan", "clock"})
"""Providers whose answers cost nothing, and are no calls of a model."""
LOOKS_EVERY_S = 0.2
OTHERS_PER_REPLY = 4
"""So many questions that are no replies a strategy that ships may ask for each: plans, judgements."""


class Scope(NamedTuple):
    """Whose spending a limit adds up: that of these agents (None: of all), for this request (empty: any)."""

    agents: frozenset[str] | None = None
    request: str = ""


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
        agents = (snapshot.survey.agents.get(name) for name in snapshot.plan.order)
        gates = [*snapshot.config.org.gates, *(gate for agent in agents if agent for gate in agent.gates)]
        if not any(gate.at == "spend" for gate in gates):
            return None
        begun = {it.agent: AgentState.from_json(it.state) for it in records if isinstance(it, TurnStarted)}
        began = {name: begun.get(name) or _state_of(snapshot, name) for name in agent_folders(snapshot.org)}
        return cls(snapshot, reports, runtime.turn_lock, runtime.stop, began)

    def of(self, inputs: TurnInputs) -> TurnSpending | None:
        """Return the limits of a turn that begins, or goes on; None where it has none."""
        agent = inputs.agent
        own_file = paths.resume_file(agent.name)
        rules = rules_at(rules_of(ORG_FILE, self.snapshot.config.org.gates, own_file, agent.gates), "spend")
        turn = self.turns[agent.name] = TurnSpending(self, inputs, rules)
        self.tell()
        return turn if rules else None

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


class TurnSpending:
    """The limits of one turn: `own` is what it has spent, `most` what a turn of such settings can."""

    def __init__(self, tick: TickSpending, inputs: TurnInputs, rules: Sequence[Rule]) -> None:
        self._tick, self._rules = tick, rules
        self._name, self.request = inputs.agent.name, inputs.task.request if inputs.task else ""
        self._own = NOTHING
        self._most = _most_of_turn(inputs, tick.snapshot)

    def settle(self, answer: Answer) -> None:
        """Count what an answer has cost."""
        tokens = answer.input_tokens + answer.output_tokens
        self._own = self._own.plus(amount_of(answer.credits, answer.cost_usd, tokens))

    def is_held_to(self, rule: Rule) -> bool:
        """Return whether the turn may never spend more than a limit says, whatever it asks."""
        for own in self._rules:
            if own.gate.then == "pass":
                return False
            if own.line == rule.line:
                return own.gate.then != "warn" and own.gate.when is None
        return False

    def share(self, left: Amount) -> Amount:
        """Return the most that the turn may spend of what is left of a limit: no turn takes it from others.

        That is what it can come to by its settings, or an even part, whatever is more.
        """
        count = len(self._tick.snapshot.plan.order)
        return Amount(*(max(mine, all_ / count) for mine, all_ in zip(self._most, left, strict=True)))

    def look(self, call: int, key: str, entry: ModelEntry, request: Request) -> Iterator[GateVerdict]:
        """Yield what gates say of a call about to be made; raise `LimitReached` when it may not be.

        `key` is that of the model to be asked.
        """
        if entry.provider in NO_MODELS or key not in self._tick.snapshot.config.models:
            return  # what answers is no model: a plan, the clock, a program that judges
        asked = _Asked.of(key, entry, request)
        facts = {"agent": self._name, "call": call, "request": self.request, **asked.facts}
        for rule in self._rules:
            then = rule.gate.then
            try:
                why = self._finding(rule, asked, facts) if rule.gate.condition(facts) else None
            except Stopped:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a gate, it does not open
                why, then = f"the gate broke: {words_of(error)}", "block"
            if why is None:
                continue
            if then == "pass":
                break
            yield GateVerdict(rule.line, "spend", then, f"call {call}", rule.gate.because or why)
            if then != "warn":
                raise LimitReached(f"{WORDS[then]}: {rule.gate.because or why} ({rule.line})")

    def _finding(self, rule: Rule, asked: _Asked, facts: dict[str, Any]) -> str | None:
        """Return what a gate has against a call; None when it finds nothing."""
        gate = rule.gate
        if gate.check:
            found = asking(tuple(self._tick.snapshot.config.org.plugins))(gate.check, facts)
            return None if found is None else found.why
        if gate.models:
            allowed = ", ".join(gate.models)
            return None if asked.key in gate.models else f'"{asked.key}" is none of the models {allowed}'
        limits = limits_of(gate)
        if not limits:
            return ""
        if "dollars" in limits and not asked.is_priced:
            return (
                f'the price of model "{asked.key}" is unknown, so that a limit in dollars cannot hold: '
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json"
            )
        scope = self._scope_of(gate)
        if scope is None:
            return None
        try:
            spent = self._spent(rule, scope, limits, asked.worst)
        except NotKnown as error:
            return f"what was spent is not known: {error.message}"
        except _TooMuch as error:
            return error.message
        key = beyond(limits, spent.plus(asked.worst))
        if not key:
            return None
        so_far, most = in_words(key, getattr(spent, key)), in_words(key, limits[key])
        can_cost = in_words(key, getattr(asked.worst, key))
        window = window_of(gate.window)
        within = f" within {window}" if window else ""
        return f"{so_far} of {most} per {gate.per}{within} are spent, and the call can cost {can_cost}"

    def _scope_of(self, gate: Gate) -> Scope | None:
        """Return whose spending a limit adds up; None where it does not concern the turn."""
        match gate.per:
            case "request":
                return Scope(request=self._tick.root_of(self.request)) if self.request else None
            case "organisation":
                return Scope()
            case _:
                return Scope(agents=self._tick.family_of(self._name))

    def _spent(self, rule: Rule, scope: Scope, limits: Mapping[str, Decimal], worst: Amount) -> Amount:
        """Return what is spent of a limit; where that is not known yet, wait, unless it does not matter."""
        gate = rule.gate
        if gate.per == "turn":
            return self._own
        before = self._tick.before(scope, window_of(gate.window), counts="calls" in limits)
        mine = before.plus(self._own)
        if scope.agents is not None and len(scope.agents) == 1:
            return mine
        left = Amount(*(max(limits.get(key, ZERO) - getattr(before, key), ZERO) for key in AMOUNTS))
        if key := beyond(self.share(left)._asdict(), self._own.plus(worst)):
            raise _TooMuch(
                f"the turn may spend {in_words(key, getattr(self.share(left), key))} of what is left"
            )
        while True:
            others, is_over = self._tick.before_in_tick(self._name, rule, scope, left)
            if others is not None and (is_over or not beyond(limits, mine.plus(others).plus(worst))):
                return mine.plus(others)
            self._tick.wait()


class _TooMuch(LemmingError):
    """A call for more than the turn's share; the message says how much that is."""


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
        }
        return cls(key, Amount(worst.credits, worst.dollars or ZERO, ONE), dollars is not None, facts)


def tick_of(request: str) -> int:
    """Return the tick in which a request was asked, from its `author/TICK_ID`."""
    return int(request.partition("/")[2].partition("_")[0])


def _state_of(snapshot: Snapshot, name: str) -> AgentState | CorruptState:
    try:
        return read_state(snapshot.org, name, before=snapshot.tick)
    except CorruptState as error:
        return error


def _amount_of_turn(report: TurnReport) -> Amount:
    tokens = report.input_tokens + report.output_tokens
    return amount_of(report.credits, report.cost_usd, tokens, report.calls)


def _most_of_turn(inputs: TurnInputs, snapshot: Snapshot) -> Amount:
    """Return the most that a turn can come to by its settings: so many calls, each as dear as the last."""
    agent, models = inputs.agent, snapshot.config.models
    calls = inputs.max_steps * (inputs.repairs + 1) + bool(inputs.recap)
    entries = [inputs.model, *(models[key] for key in agent.model.fallback if key in models)]
    if agent.turn.strategy is not None or inputs.verify:
        calls, entries = OTHERS_PER_REPLY * (calls + OTHERS_PER_REPLY), [*entries, *models.values()]
    shown = [*inputs.prompt, *inputs.recap.get("messages", ())]
    growth = 4 * RESULTS_CHARS + max(8 * entry.max_output_tokens for entry in entries)
    tokens = size_of(to_line(shown)) + inputs.max_steps * growth
    worst = [worst_of(entry, tokens) for entry in entries]
    dearest = Amount(max(it.credits for it in worst), max(it.dollars or ZERO for it in worst), ONE)
    return dearest.times(calls)
