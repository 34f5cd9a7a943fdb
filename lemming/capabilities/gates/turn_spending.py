"""The limits of one turn: what gates at `spend` say of each question that it is about to ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.base.jsontext import to_line
from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.gate import Gate, Rule
from lemming.capabilities.gates.keys import gates_in
from lemming.capabilities.gates.limit import (
    AMOUNTS,
    NOTHING,
    ONE,
    ZERO,
    Amount,
    beyond,
    in_words,
    limits_of,
    window_of,
)
from lemming.capabilities.gates.look import WORDS, require_seen
from lemming.errors import LemmingError, LimitReached, RequestOverLimit
from lemming.journal.lost import Lost
from lemming.journal.records import ModelFailed, ModelReplied
from lemming.journal.verdicts import GateVerdict
from lemming.llm.worst import most_tokens_in, size_of, worst_of
from lemming.mail.kept import raises_of
from lemming.org.models import ModelEntry
from lemming.org.verification import JUDGES
from lemming.plugins.errors import words_of
from lemming.providers import Request
from lemming.tick.reserved import Reserved
from lemming.tick.runtime import Stopped
from lemming.tick.snapshot import Snapshot
from lemming.tick.spent_before import NotKnown, amount_lost, amount_of
from lemming.turn.parts import questions_of
from lemming.turn.results import RESULTS_CHARS
from lemming.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.tick.limits import TickSpending

NO_MODELS = frozenset({"plan", "clock"})
"""Providers whose answers cost nothing, and are no calls of a model."""
OTHERS_PER_REPLY = 4
"""So many questions that are no replies a strategy that ships may ask for each: plans, judgements."""


class Scope(NamedTuple):
    """Whose spending a limit adds up: that of these agents (None: of all), for this request (empty: any)."""

    agents: frozenset[str] | None = None
    request: str = ""


class TurnSpending:
    """The limits of one turn, which has none of its own where others add up what it spends."""

    def __init__(
        self, tick: TickSpending, inputs: TurnInputs, rules: Sequence[Rule], reserved: Reserved
    ) -> None:
        self._tick, self._rules, self._reserved = tick, rules, reserved
        self._name, self.request = inputs.agent.name, inputs.task.request if inputs.task else ""
        self._settled = NOTHING
        self._given = inputs.given
        self._most = _most_of_turn(inputs, tick.snapshot)

    @property
    def _own(self) -> Amount:
        """What the turn has spent, with what is reserved for calls that have no answer."""
        return self._settled.plus(self._reserved.amount)

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Count what a call has cost, and what of the reservations for it is lost."""
        self._reserved.settle(record.call)
        self._settled = self._settled.plus(amount_lost(Lost.of(record.lost)))
        if isinstance(record, ModelReplied):
            tokens = record.input_tokens + record.output_tokens
            self._settled = self._settled.plus(amount_of(record.credits, record.cost_usd, tokens))

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the most that a call can cost which is about to be made."""
        if self._is_counted(key, entry):
            self._reserved.reserve(request.step, key, worst_of(entry, most_tokens_in(request)))

    def release(self, call: int) -> None:
        """Give back what was reserved for a call: it was not made, or what it cost is known."""
        self._reserved.release(call)

    def lost(self, call: int) -> Lost:
        """Return what of the reservations for a call is lost, now that it has its answer or has failed."""
        return self._reserved.settle(call)

    def _is_counted(self, key: str, entry: ModelEntry) -> bool:
        """Return whether a model answers: a plan, the clock and a program that judges are none."""
        return entry.provider not in NO_MODELS and key in self._tick.snapshot.config.models

    def is_held_to(self, rule: Rule) -> bool:
        """Return whether the turn may never spend more than a limit says, whatever it asks."""
        if raises_of(self._given, rule.line).keys() - self._tick.known_raises(self._name, rule.line):
            return False  # what was approved for it just now only counts for itself
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
            except Stopped:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a gate, it does not open
                why, then = f"the gate broke: {words_of(error)}", "block"
            if why is None:
                continue
            if then == "pass":
                break
            about = self._about(rule.gate) if then == "ask" else f"call {call}"
            yield GateVerdict(rule.line, "spend", then, about, rule.gate.because or why)
            if then != "warn":
                is_final = then == "block" and isinstance(why, OfRequest)
                kind = RequestOverLimit if is_final else LimitReached
                raise kind(f"{WORDS[then]}: {rule.gate.because or why} ({rule.line})")

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
        if gate.then == "ask":
            more = self._tick.raised(rule, self._about(gate), self._name, self._given)
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
        said = f"{so_far} of {most} per {gate.per}{within} are spent, and the call can cost {can_cost}"
        return OfRequest(said) if gate.per == "request" and not window else said

    def _about(self, gate: Gate) -> str:
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
        share = {key: it for key, it in self.share(left)._asdict().items() if key in limits}
        if key := beyond(share, self._own.plus(worst)):
            raise _TooMuch(f"the turn may spend {in_words(key, share[key])} of what is left")
        while True:
            others, is_over = self._tick.before_in_tick(self._name, rule, scope, left)
            if others is not None and (is_over or not beyond(limits, mine.plus(others).plus(worst))):
                return mine.plus(others)
            self._tick.wait()


class OfRequest(str):
    """Why a call may not be made for its request, now or later."""


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


def _most_of_turn(inputs: TurnInputs, snapshot: Snapshot) -> Amount:
    """Return the most that a turn can come to by its settings: so many calls, each as dear as the last."""
    agent, models = inputs.agent, snapshot.config.models
    plugins = snapshot.config.org.plugins
    asked_before = [messages for _, messages in questions_of(inputs.given, plugins)]
    calls = inputs.max_steps * (inputs.repairs + 1) + len(asked_before)
    entries = [inputs.model, *(models[key] for key in agent.model.fallback if key in models)]
    by_gates = any(gate.by for it in (snapshot.config.org, agent) for gate in gates_in(it))
    has_judges = JUDGES in inputs.given or by_gates
    if agent.turn.strategy is not None or has_judges:
        calls, entries = OTHERS_PER_REPLY * (calls + OTHERS_PER_REPLY), [*entries, *models.values()]
    shown = [*inputs.prompt, *chain.from_iterable(asked_before)]
    growth = 4 * RESULTS_CHARS + max(8 * entry.max_output_tokens for entry in entries)
    tokens = size_of(to_line(shown)) + inputs.max_steps * growth
    worst = [worst_of(entry, tokens) for entry in entries]
    dearest = Amount(max(it.credits for it in worst), max(it.dollars or ZERO for it in worst), ONE)
    return dearest.times(calls)
