"""Spending limits during a tick: the verdicts of gates at `spend` on each model call.

    spent before the tick + spent in the tick by earlier turns + spent by this turn + maximum cost of the call

The sum is compared with the limit, as if turns ran one after another in their order. Turns with a shared
limit do: a turn waits for the earlier turns (`find_shared_limits`). The files of a tick do not depend on the
number of concurrent turns, and no call can exceed a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, NamedTuple

from lemming.capabilities.gates.check_functions import make_check_runner
from lemming.capabilities.gates.gate_evaluation import OUTCOME_PHRASES, require_known_fields, rules_at_stage
from lemming.capabilities.gates.gate_format import Gate, GateRule
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
from lemming.capabilities.gates.shared_limits import group_families
from lemming.capabilities.gates.spending_limit import (
    NOTHING,
    ONE,
    ZERO,
    LimitWindow,
    SpendAmount,
    describe_amount,
    find_exceeded,
    get_limits,
    parse_window,
    sum_raises,
)
from lemming.capabilities.pricing.prices import max_call_cost
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.entry_ids import find_turn_number
from lemming.kernel.base.errors import CorruptState, DiskError, LimitReached, RequestOverLimit
from lemming.kernel.base.turn_numbers import list_turn_keys, split_key, turn_key
from lemming.kernel.inboxes.capability_state import find_limit_raises
from lemming.kernel.journal.journal_file import Journal, journal_ticks
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, TurnStarted
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import max_input_tokens
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.providers import Request
from lemming.kernel.tick.reservations import Reservations
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_values import TurnInputs


class SpendingScope(NamedTuple):
    """Spending counted by a limit: of these agents (None: all agents), for this request (empty: any request)."""

    agents: frozenset[str] | None = None
    request: str = ""


@dataclass
class TickSpendingLimits:
    """Spending limits of one tick. Turns call the limits under the turn lock, one at a time.

    `order`: turns of the tick. `reports`: finished turns. `initial_states`: the ledger state of each agent at
    the start of the tick, or the error in the ledger.
    """

    tick_context: TickContext
    journal: Journal
    order: Sequence[str]
    reports: Mapping[str, TurnReport]
    initial_states: dict[str, AgentState | CorruptState]
    _earlier_cache: dict[tuple[SpendingScope, LimitWindow | None, bool], SpendAmount] = field(
        default_factory=dict
    )

    @classmethod
    def for_tick(
        cls,
        tick_context: TickContext,
        journal: Journal,
        order: Sequence[str],
        reports: Mapping[str, TurnReport],
    ) -> TickSpendingLimits | None:
        """Return the spending limits of a tick with this journal, or None if no gate limits spending."""
        agents = tick_context.mail.resumes.values()  # whoever has a limit may add up what others spend
        gates = [
            *get_gates(tick_context.config.org),
            *(gate for agent in agents for gate in get_gates(agent)),
        ]
        if not any(gate.at == "spend" for gate in gates):
            return None
        starts = (record for record in journal.records if isinstance(record, TurnStarted))
        # A turn under way counts from the ledger as it was when it began, which its record has.
        recorded_states = {
            record.agent: AgentState.from_json(record.state) for record in starts if not record.turn
        }
        initial_states = {
            name: recorded_states.get(name) or _load_agent_state(tick_context, name)
            for name in list_agent_folders(tick_context.org)
        }
        return cls(tick_context, journal, order, reports, initial_states)

    def limits_for_turn(self, inputs: TurnInputs) -> TurnSpendingLimits:
        """Return the spending limits of a new or resumed turn."""
        rules = rules_at_stage(rules_for_agent(inputs.agent, self.tick_context.config.org), "spend")
        return TurnSpendingLimits(self, inputs, rules, Reservations(self.journal, inputs))

    @cached_property
    def history(self) -> SpendingHistory:
        """Spending of earlier ticks."""
        return self.tick_context.org.get_cache(SpendingHistory)

    def sum_earlier_spending(
        self, scope: SpendingScope, window: LimitWindow | None, *, counts: bool
    ) -> SpendAmount:
        """Return the spending before this tick. `counts`: the number of calls matters.

        Raises: SpendingUnknown if the journals with the answer are gone.
        """
        key = scope, window, counts
        if key not in self._earlier_cache:
            self._earlier_cache[key] = self._sum_earlier_spending(scope, window, counts)
        return self._earlier_cache[key]

    def _sum_earlier_spending(
        self, scope: SpendingScope, window: LimitWindow | None, counts: bool
    ) -> SpendAmount:
        tick, at = self.tick_context.tick, self.tick_context.at
        # Ledgers keep these sums; anything else is in journals alone.
        if window is None and not counts and not scope.request:
            return sum_amounts(map(self._ledger_amount, sorted(scope.agents or self.initial_states)))
        if window is None and scope.request:
            first = get_request_tick(scope.request)
            tick_totals = (
                *(
                    self.history.get_tick(item)
                    for item in journal_ticks(self.tick_context.org)
                    if first <= item < tick
                ),
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
            turn = (
                find_turn_number(tick, author, request.rpartition("_")[2])
                if turn_key(author, 1) in turns
                else 0
            )
            parent_request = getattr(turns.get(turn_key(author, turn)), "request", "")
            if not parent_request:
                return request
            request = parent_request
        return request

    def sum_earlier_turns(self, name: str, turn: int, scope: SpendingScope) -> SpendAmount:
        """Return the spending counted by a scope for earlier turns of this tick, in turn order."""
        # Those behind it may be over sooner, by chance: turns at once must come to what turns in a row would.
        earlier_keys = (
            key for other in takewhile(name.__ne__, self.order) for key in list_turn_keys(other, self.reports)
        )
        own_keys = (turn_key(name, item) for item in range(turn))
        earlier_reports = (self.reports[key] for key in chain(earlier_keys, own_keys) if key in self.reports)
        return sum_amounts(
            _sum_turn_report(item)
            for item in earlier_reports
            if self.is_in_scope(scope, item.agent, item.request)
        )

    def get_earlier_raises(self, name: str, line: str) -> dict[str, dict[str, Any]]:
        """Return the raises of a limit for an agent at the start of the tick, by request."""
        state = self.initial_states.get(name)
        return find_limit_raises(state.kept, line) if isinstance(state, AgentState) else {}

    def sum_approved_raises(
        self, rule: GateRule, about: str, name: str, snapshot: Mapping[str, Any]
    ) -> SpendAmount:
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


def _load_agent_state(tick_context: TickContext, name: str) -> AgentState | CorruptState:
    try:
        return read_state(tick_context.org, name, before_tick=tick_context.tick)
    except CorruptState as error:
        return error


def _sum_turn_report(report: TurnReport) -> SpendAmount:
    tokens = report.input_tokens + report.output_tokens
    amount = make_amount(report.credits, report.cost_usd, tokens, report.calls)
    return amount.add(write_off_amount(WriteOff.from_json(report.lost)))


class TurnSpendingLimits:
    """Spending limits of one turn. A turn without own limits is still counted for limits of other turns."""

    def __init__(
        self,
        tick_limits: TickSpendingLimits,
        inputs: TurnInputs,
        rules: Sequence[GateRule],
        reservations: Reservations,
    ) -> None:
        self._tick_limits, self._rules, self._reservations = tick_limits, rules, reservations
        self._name, self.request = inputs.agent.name, inputs.task.request if inputs.task else ""
        self._turn = inputs.turn
        self._settled = NOTHING
        self._snapshot = inputs.given

    @property
    def _own_spending(self) -> SpendAmount:
        """Spending of the turn, including reservations for unanswered calls."""
        return self._settled.add(write_off_amount(self._reservations.reserved))

    @property
    def unsettled(self) -> WriteOff:
        """Possible spending of the turn beyond its answers."""
        return self._reservations.unsettled

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Charge the cost of a call, and the write-off of its reservations."""
        self._reservations.settle(record)
        self._settled = self._settled.add(write_off_amount(WriteOff.from_json(record.lost)))
        if isinstance(record, ModelReplied):
            tokens = record.input_tokens + record.output_tokens
            self._settled = self._settled.add(make_amount(record.credits, record.cost_usd, tokens))

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the maximum cost of the next call."""
        if self._is_model_call(key, entry):
            self._reservations.reserve(key, entry, request)

    def release(self, call: int) -> None:
        """Release the reservation of a call that was not made or has a known cost."""
        self._reservations.release(call)

    def write_off(self, call: int) -> WriteOff:
        """Return the write-off of a call after its answer or failure."""
        return self._reservations.write_off(call)

    def _is_model_call(self, key: str, entry: ModelEntry) -> bool:
        """Return True if a model answers. Plans, the clock and judge programs are not counted."""
        return entry.provider not in NO_MODELS and key in self._tick_limits.tick_context.config.models

    def check_call(
        self, call: int, key: str, entry: ModelEntry, request: Request, *, trust: str = ""
    ) -> Iterator[GateVerdict]:
        """Yield the verdicts of gates on a call before it is made.

        `key`: the model of the call. `trust`: the trust label of the turn, if tracked.

        Raises: LimitReached if the call is not allowed.
        """
        if not self._is_model_call(key, entry):
            return
        planned_call = _PlannedCall.from_request(key, entry, request)
        facts = {"agent": self._name, "call": call, "request": self.request, **planned_call.facts}
        facts |= {"trust": trust} if trust else {}
        for rule in self._rules:
            then = rule.gate.then
            try:
                require_known_fields(rule.gate, facts)
                finding = self._check_limit(rule, planned_call, facts) if rule.gate.predicate(facts) else None
            except DiskError:  # nobody knows what was spent: the run ends
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with a gate, it does not open
                finding, then = f"the gate broke: {describe_exception(error)}", "block"
            if finding is None:
                continue
            if then == "pass":
                break
            about = self._describe_scope(rule.gate) if then == "ask" else f"call {call}"
            amounts = finding.amounts if isinstance(finding, OverLimit) else None
            yield GateVerdict(rule.line, "spend", then, about, rule.gate.because or str(finding), amounts)
            if then != "warn":
                is_final = then == "block" and isinstance(finding, OverLimit) and finding.is_final
                error_type = RequestOverLimit if is_final else LimitReached
                raise error_type(f"{OUTCOME_PHRASES[then]}: {rule.gate.because or finding} ({rule.line})")

    def _check_limit(self, rule: GateRule, planned_call: _PlannedCall, facts: dict[str, Any]) -> str | None:
        """Return the objection of a gate to a call, or None."""
        gate = rule.gate
        if gate.check:
            check_finding = make_check_runner(tuple(self._tick_limits.tick_context.config.org.plugins))(
                gate.check, facts
            )
            return None if check_finding is None else check_finding.why
        if gate.models:
            allowed = ", ".join(gate.models)
            return (
                None
                if planned_call.key in gate.models
                else f'"{planned_call.key}" is none of the models {allowed}'
            )
        limits = get_limits(gate)
        if not limits:
            return ""
        if gate.then == "ask":
            raises = self._tick_limits.sum_approved_raises(
                rule, self._describe_scope(gate), self._name, self._snapshot
            )
            limits = {key: limit + getattr(raises, key) for key, limit in limits.items()}
        if "dollars" in limits and not planned_call.is_priced:
            return (
                f'the price of model "{planned_call.key}" is unknown, so that a limit in dollars cannot hold: '
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json"
            )
        scope = self._get_scope(gate)
        if scope is None:
            return None
        try:
            spent = self._total_spending(gate, scope, counts="calls" in limits)
        except SpendingUnknown as error:
            return f"what was spent is not known: {error.message}"
        key = find_exceeded(limits, spent.add(planned_call.max_cost))
        if not key:
            return None
        spent_text, limit_text = describe_amount(key, getattr(spent, key)), describe_amount(key, limits[key])
        cost_text = describe_amount(key, getattr(planned_call.max_cost, key))
        window = parse_window(gate.window)
        within = f" within {window}" if window else ""
        message = f"{spent_text} of {limit_text} per {gate.per}{within} are spent, and the call can cost {cost_text}"
        amounts = {
            "unit": key,
            "spent": float(getattr(spent, key)),
            "limit": float(limits[key]),
            "call": float(getattr(planned_call.max_cost, key)),
        }
        return OverLimit(message, amounts, is_final=gate.per == "request" and not window)

    def _describe_scope(self, gate: Gate) -> str:
        """Return the scope of an approval for more spending, as text."""
        return (
            f"request {self._tick_limits.get_root_request(self.request)}"
            if gate.per == "request"
            else str(gate.per)
        )

    def _get_scope(self, gate: Gate) -> SpendingScope | None:
        """Return the scope of a limit, or None if the limit does not concern the turn."""
        match gate.per:
            case "request":
                return (
                    SpendingScope(request=self._tick_limits.get_root_request(self.request))
                    if self.request
                    else None
                )
            case "organisation":
                return SpendingScope()
            case _:
                return SpendingScope(agents=self._tick_limits.get_family(self._name))

    def _total_spending(self, gate: Gate, scope: SpendingScope, *, counts: bool) -> SpendAmount:
        """Return the spending counted by a limit: before the tick, by earlier turns of the tick, and by this
        turn.
        """
        if gate.per == "turn":
            return self._own_spending
        earlier = self._tick_limits.sum_earlier_spending(scope, parse_window(gate.window), counts=counts)
        return earlier.add(self._tick_limits.sum_earlier_turns(self._name, self._turn, scope)).add(
            self._own_spending
        )


class OverLimit(str):
    """Reason for rejecting a call over a limit, with the figures (`GateVerdict.amounts`).

    `is_final`: no later call for the same request is possible either.
    """

    amounts: Mapping[str, Any]
    is_final: bool

    def __new__(cls, reason: str, amounts: Mapping[str, Any], *, is_final: bool) -> OverLimit:
        """Return a reason with the value of the text."""
        reason_text = super().__new__(cls, reason)
        reason_text.amounts, reason_text.is_final = amounts, is_final
        return reason_text


class _PlannedCall(NamedTuple):
    """Planned call: the key of its model, and its maximum cost."""

    key: str
    max_cost: SpendAmount
    is_priced: bool
    facts: dict[str, Any]

    @classmethod
    def from_request(cls, key: str, entry: ModelEntry, request: Request) -> _PlannedCall:
        bound = max_call_cost(entry, max_input_tokens(request))
        dollars = None if bound.dollars is None else float(bound.dollars)
        facts = {
            "model": key,
            "provider": entry.provider,
            "credits": float(bound.credits),
            "dollars": dollars,
            "tokens": bound.tokens,
        }
        max_amount = SpendAmount(bound.credits, bound.dollars or ZERO, ONE, Decimal(bound.tokens))
        return cls(key, max_amount, dollars is not None, facts)
