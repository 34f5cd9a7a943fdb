"""The limits of one turn: what gates at `spend` say of each question that it is about to ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.capabilities.gates.checks import asking
from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.limit import (
    NOTHING,
    ONE,
    ZERO,
    Amount,
    beyond,
    in_words,
    limits_of,
    window_of,
)
from lemming.capabilities.gates.looking import WORDS, require_seen
from lemming.capabilities.gates.reserved import Reserved
from lemming.capabilities.gates.spent_before import NotKnown, amount_lost, amount_of
from lemming.capabilities.money.prices import worst_of
from lemming.kernel.base.errors import DiskError, LimitReached, RequestOverLimit
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.records import ModelFailed, ModelReplied
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.llm.credits import most_tokens_in
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import Request
from lemming.kernel.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.capabilities.gates.spending import TickSpending


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
            yield GateVerdict(rule.line, "spend", then, about, rule.gate.because or why)
            if then != "warn":
                is_final = then == "block" and isinstance(why, OfRequest)
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
        return OfRequest(said) if gate.per == "request" and not window else said

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
        return before.plus(self._tick.before_in_tick(self._name, scope)).plus(self._own)


class OfRequest(str):
    """Why a call may not be made for its request, now or later."""


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
