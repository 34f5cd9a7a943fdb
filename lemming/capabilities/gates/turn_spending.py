"""Spending limits during a tick: the verdicts of gates at `spend` on each model call.

    spent before the tick + spent in the tick by earlier turns + spent by this turn + maximum cost of the call

The sum is compared with the limit, as if turns ran in series, in order. Turns with a shared
limit do: a turn waits for the earlier turns (`find_shared_limits`). The files of a tick do not depend on the
number of concurrent turns, and no call can exceed a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_evaluation import (
    OUTCOME_PHRASES,
    make_check_runner,
    require_known_fields,
    rules_at_stage,
)
from lemming.capabilities.gates.gate_format import Gate, GateRule
from lemming.capabilities.gates.gate_settings import rules_for_agent
from lemming.capabilities.gates.spending_limit import (
    FREE_RUNS,
    ONE,
    ZERO,
    SpendAmount,
    describe_amount,
    find_exceeded,
    get_limits,
    parse_window,
    sum_amounts,
)
from lemming.capabilities.gates.tick_spending import (
    SpendingScope,
    SpendingUnknown,
    TickSpending,
    make_amount,
    write_off_amount,
)
from lemming.capabilities.pricing.prices import max_call_cost
from lemming.ext import Interception, LivePhase, Rejected, SendRequest
from lemming.kernel.base.errors import DiskError
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import max_input_tokens, to_decimal
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.providers import get_provider_class


class TurnSpendingLimits:
    """Spending limits of a turn. A turn without own limits is still counted for limits of other turns."""

    def __init__(self, tick_limits: TickSpending, phase: LivePhase) -> None:
        assert phase.count_spending, "spending limits are only made for a turn that runs"
        inputs, settings = phase.inputs, tick_limits.tick_context.config.org
        self._tick_limits, self._answers = tick_limits, phase.answers
        self._get_reserved = phase.count_spending()
        self._rules = rules_at_stage(rules_for_agent(inputs.agent, settings), "spend")
        self._name, self.request = inputs.agent.name, inputs.request_identity
        self._turn, self._plugins = inputs.turn, tuple(settings.plugins)
        self._lower_limits: list[float] = []  # dollars that limits leave for the current call
        self._snapshot = inputs.given

    def intercept(self, effect: SendRequest, phase: LivePhase) -> Interception:
        """Reject a call over a limit, before the call."""
        # Plans, the clock and judge programs are not counted.
        if effect.entry.provider in NO_MODELS or effect.key not in self._tick_limits.tick_context.config.models:
            return None
        planned_call = _PlannedCall(effect, self._plugins)
        self._lower_limits = []
        call, trust = effect.number, effect.facts.get("trust", "")
        facts = {"agent": self._name, "call": call, "request": self.request, **planned_call.facts}
        facts |= {"trust": trust} if trust else {}
        for rule in self._rules:
            then = rule.gate.then
            try:
                require_known_fields(rule.gate, facts)
                finding = self._check_limit(rule, planned_call, facts) if rule.gate.predicate(facts) else None
            except DiskError:  # the disk gave no answer: the run ends
                raise
            except Exception as error:  # noqa: BLE001 - a broken gate blocks
                finding, then = _Objection(f"the gate broke: {describe_exception(error)}"), "block"
            if finding is None:
                continue
            if then == "pass":
                break
            about = self._describe_scope(rule.gate) if then == "ask" else f"call {call}"
            reason = rule.gate.because or finding.reason
            phase.add_verdicts([GateVerdict(rule.line, "spend", then, about, reason, finding.amounts)])
            if then != "warn":
                is_final = then == "block" and finding.is_final
                return Rejected(f"{OUTCOME_PHRASES[then]}: {reason} ({rule.line})", is_final=is_final)
        return self._lower_cost_limit(effect) if self._lower_limits else None

    def _lower_cost_limit(self, effect: SendRequest) -> Interception:
        """Pass on a call with the remaining amount as the limit."""
        request = effect.request._replace(max_cost_usd=min(self._lower_limits))
        return (yield replace(effect, request=request))

    def _check_limit(self, rule: GateRule, planned_call: _PlannedCall, facts: dict[str, Any]) -> _Objection | None:
        """Return the objection of a gate to a call, or None."""
        gate = rule.gate
        if gate.check:
            check_finding = make_check_runner(self._plugins)(gate.check, facts)
            return None if check_finding is None else _Objection(check_finding.why)
        if gate.models:
            reason = f'"{planned_call.key}" is none of the models {", ".join(gate.models)}'
            return None if planned_call.key in gate.models else _Objection(reason)
        limits = get_limits(gate)
        if not limits:
            return _Objection("")
        if gate.then == "ask":
            about = self._describe_scope(gate)
            raises = self._tick_limits.sum_approved_raises(rule, about, self._name, self._snapshot)
            limits = {key: limit + getattr(raises, key) for key, limit in limits.items()}
        # A call without a price would count as free, and pass every limit in dollars.
        if "dollars" in limits and not planned_call.is_priced:
            return _Objection(
                f'the price of model "{planned_call.key}" is unknown, so that a limit in dollars cannot hold: '
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json"
            )
        if unit := planned_call.find_unbounded(limits):
            return _Objection(
                f'the {unit} of "{planned_call.key}" have no bound, because a run makes any number of calls: set '
                f"options.max_cost_usd in config/models.json, and limit dollars; {FREE_RUNS}"
            )
        scope = self._get_scope(gate)
        if scope is None:
            return None
        try:
            spent = self._sum_spent(gate, scope, counts="calls" in limits)
        except SpendingUnknown as error:
            return _Objection(f"what was spent is not known: {error.message}")
        return self._compare(gate, planned_call, spent, limits)

    def _sum_spent(self, gate: Gate, scope: SpendingScope, *, counts: bool) -> SpendAmount:
        """Return the spending that a limit counts, with the reservations for unanswered calls of the turn."""
        tick_limits = self._tick_limits
        spent = sum_amounts(map(_sum_answer, self._answers.values())).add(write_off_amount(self._get_reserved()))
        if gate.per == "turn":
            return spent
        earlier = tick_limits.sum_earlier_spending(scope, parse_window(gate.window), counts=counts)
        return earlier.add(tick_limits.sum_earlier_turns(self._name, self._turn, scope)).add(spent)

    def _compare(
        self, gate: Gate, planned_call: _PlannedCall, spent: SpendAmount, limits: Mapping[str, Any]
    ) -> _Objection | None:
        """Return the objection to a call that can exceed a limit, or None."""
        # The most that the call can cost: after the answer it would be too late to refuse.
        key = find_exceeded(limits, spent.add(planned_call.max_cost))
        if not key:
            return None
        used, limit, cost = getattr(spent, key), limits[key], getattr(planned_call.max_cost, key)
        left = float(limit) - float(used)
        if key == "dollars" and planned_call.keeps_cost_limit and left > 0:
            # The harness keeps to what is left, instead of not beginning at all.
            self._lower_limits.append(left)
            return None
        spent_text, limit_text, cost_text = (describe_amount(key, amount) for amount in (used, limit, cost))
        window = parse_window(gate.window)
        within = f" within {window}" if window else ""
        message = f"{spent_text} of {limit_text} per {gate.per}{within} are spent, and the call can cost {cost_text}"
        amounts = {"unit": key, "spent": float(used), "limit": float(limit), "call": float(cost)}
        # A limit per request without a window gets no room again: the whole request fails.
        return _Objection(message, amounts, is_final=gate.per == "request" and not window)

    def _describe_scope(self, gate: Gate) -> str:
        """Return the scope of an approval for more spending, as text."""
        return f"request {self._tick_limits.get_root_request(self.request)}" if gate.per == "request" else str(gate.per)

    def _get_scope(self, gate: Gate) -> SpendingScope | None:
        """Return the scope of a limit, or None if the limit does not concern the turn."""
        match gate.per:
            case "request":
                return SpendingScope(request=self._tick_limits.get_root_request(self.request)) if self.request else None
            case "organisation":
                return SpendingScope()
            case _:
                return SpendingScope(agents=self._tick_limits.get_family(self._name))


def find_turn_limits(phase: LivePhase) -> TurnSpendingLimits | None:
    """Return the spending limits of a turn, or None if nothing limits spending in its tick."""
    limits = phase.tick.get_cache(TickSpending.for_tick) if phase.tick else None
    return TurnSpendingLimits(limits, phase) if limits else None


def _sum_answer(record: ModelReplied | ModelFailed) -> SpendAmount:
    """Return the cost of a call, and the write-off of its reservations."""
    write_off = write_off_amount(WriteOff.from_json(record.lost))
    if not isinstance(record, ModelReplied):
        return write_off
    return write_off.add(make_amount(record.credits, record.cost_usd, record.input_tokens + record.output_tokens))


class _Objection(NamedTuple):
    """Objection of a gate to a call, with the figures of a limit (`GateVerdict.amounts`).

    `is_final`: no later call for the same request is possible either.
    """

    reason: str
    amounts: Mapping[str, Any] | None = None
    is_final: bool = False


class _PlannedCall:
    """Planned call: the key of its model, and its maximum cost.

    `makes_many_calls`: the provider runs a program that asks its model any number of times. `keeps_cost_limit`: the
    provider keeps to a limit in dollars.
    """

    def __init__(self, effect: SendRequest, plugins: tuple[str, ...]) -> None:
        entry, request, self.key = effect.entry, effect.request, effect.key
        bound = max_call_cost(entry, max_input_tokens(request))
        self.is_priced, dollars = bound.dollars is not None, bound.dollars
        self.makes_many_calls = get_provider_class(entry.provider, plugins).makes_many_calls
        limit = entry.max_cost_usd if request.max_cost_usd is None else request.max_cost_usd
        self.keeps_cost_limit = self.makes_many_calls and limit is not None
        self._is_free = dollars == ZERO  # for any number of tokens, and so of calls
        if self.makes_many_calls and not self._is_free:
            dollars = None if limit is None else to_decimal(limit)
        self.max_cost = SpendAmount(bound.credits, dollars or ZERO, ONE, Decimal(bound.tokens))
        self.facts = {
            "model": effect.key,
            "provider": entry.provider,
            "credits": float(bound.credits),
            "dollars": None if dollars is None else float(dollars),
            "tokens": bound.tokens,
        }

    def find_unbounded(self, limits: Mapping[str, Any]) -> str:
        """Return the first limited unit of which a run may use any amount, or an empty text."""
        if not self.makes_many_calls:
            return ""
        has_bound = self.keeps_cost_limit or self._is_free
        units = {"tokens", "credits"} if has_bound else {"tokens", "credits", "dollars"}
        return next((unit for unit in limits if unit in units), "")
