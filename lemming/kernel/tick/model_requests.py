"""Build a model request, and check it against pauses and limits before the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.errors import (
    LemmingError,
    LimitReached,
    MayHaveActed,
    OutOfCredits,
    Paused,
    ProviderError,
    RequestOverLimit,
    TurnTooLong,
)
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.capability_queries import StateQuery
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ModelReserved
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff, find_unsettled, sum_write_offs
from lemming.kernel.llm.call_cost import check_credits, cost_bound, max_dollars, max_input_tokens
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import Message, Reply, Request
from lemming.kernel.tick.firing_plan import PauseCheck
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.turn_effects import Allowed, Deferred, Outcome, Rejected
from lemming.kernel.turn.turn_values import TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.journal.turn_report import GateVerdict
    from lemming.kernel.tick.live_chain import LiveChain
    from lemming.kernel.tick.runtime import Runtime
    from lemming.kernel.turn.effect_chain import Steps


def build_request(
    inputs: TurnInputs, entry: ModelEntry, call: int, messages: list[Message], schema: dict[str, Any] | None
) -> Request:
    """Return model request number `call` of a turn; `schema` as in `lemming.kernel.turn.strategy.Ask`."""
    name, temperature = inputs.agent.name, inputs.agent.model.temperature
    digest = blake2b(f"{name}/{inputs.tick}/{call}".encode(), digest_size=4).digest()
    # True if the agent's own model accepts one: the turn may omit it.
    takes_schema = inputs.form.takes_schema if inputs.form else inputs.schema is not None
    return Request(
        model_name=entry.model,
        messages=messages,
        temperature=entry.temperature if temperature is None else temperature,
        schema=inputs.schema if schema is None else (schema or None) if takes_schema else None,
        max_output_tokens=entry.max_output_tokens,
        seed=int.from_bytes(digest, "big") >> 1,  # in [0, 2^31), derived only from agent, tick and call number
        deadline_s=entry.deadline_s,
        agent=name,
        tick=inputs.tick,
        step=call,
    )


def require_not_paused(tick_context: TickContext, agent: str) -> None:
    """Raise `Paused` if an agent has been paused since the tick began."""
    check = tick_context.get_cache(PauseCheck)
    if not check.has_no_pause(agent):
        raise Paused(check.pause_reason(agent), hint="end it with `lemming unpause`")


class ModelRequests:
    """Checks and reservations of a turn's model calls. `verdicts`: of gates on the current call.

    `get_chain` returns the interceptors of live effects, or None.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        tick_context: TickContext,
        inputs: TurnInputs,
        answers: Mapping[int, ModelReplied | ModelFailed],
        get_chain: Callable[[], LiveChain | None],
    ) -> None:
        self._runtime, self._journal, self._tick_context, self._inputs = runtime, journal, tick_context, inputs
        self._answers, self._get_chain = answers, get_chain
        has_budget = inputs.current_request is not None and inputs.current_request.has_budget
        self._reservations = Reservations(journal, inputs) if has_budget else None
        self._counts_models = False  # True: a limit counts the models of the settings, and no other program
        self._steps: Steps | None = None  # interceptors that await the current call
        self.verdicts: list[GateVerdict] = []

    def count_spending(self) -> Callable[[], WriteOff]:
        """Reserve the highest cost of each call of a model from now on; return what is reserved at any time."""
        self._counts_models = True
        if (reservations := self._reservations) is None:
            reservations = self._reservations = Reservations(self._journal, self._inputs)
            for record in self._answers.values():
                reservations.settle(record)
        return lambda: reservations.reserved

    def require_payment(self, entry: ModelEntry, request: Request, used: float) -> None:
        """Raise `OutOfCredits` if an agent that has `used` credits, or its turn's request, cannot pay for a model call."""
        inputs = self._inputs
        check_credits(entry, inputs.allocation, used)
        if inputs.current_request is None:
            return
        replied = (answer for answer in self._answers.values() if isinstance(answer, ModelReplied))
        unsettled = NO_WRITE_OFF
        if self._reservations:  # possible spending of the turn beside its answers
            unsettled = self._reservations.write_off_total.add(self._reservations.reserved)
        if reason := inputs.current_request.over_budget_reason(
            replied, unsettled, cost_bound(entry, max_input_tokens(request))
        ):
            raise RequestOverLimit(reason)

    def admit(self, key: str, entry: ModelEntry, request: Request, used: float) -> Request:
        """Check a call, and return the request to send.

        Under limits, reserve its maximum cost, now and at each retry; `Runtime.before_send` records the amount.
        Raises `Paused` or `LimitReached`.
        """
        if self._runtime.is_live:  # a recording contains the prevented calls
            require_not_paused(self._tick_context, request.agent)
            request = self._pass_interceptors(key, entry, request)
        if self._reservations is None:
            return request
        is_counted = not self._counts_models or key in self._tick_context.config.models
        reserved = self._reservations.reserve(key, entry, request) if is_counted else None

        def before_send() -> None:
            if reserved:
                self._journal.append(reserved)

        def before_retry(error: ProviderError) -> None:
            if error.may_be_paid:
                # The turn waits meanwhile, so others may work; what they spend counts against the same limits.
                with self._runtime.turn_lock:
                    self.require_payment(entry, request, used)
                    self.admit(key, entry, request, used)

        self._runtime.before_send[request.agent] = before_send
        self._runtime.before_retry[request.agent] = before_retry
        return request

    def _pass_interceptors(self, key: str, entry: ModelEntry, request: Request) -> Request:
        """Take a request through its interceptors, and return the request to send. Raises `LimitReached`."""
        chain, self._steps = self._get_chain(), None
        if chain is None:
            return request
        from lemming.kernel.turn.live_phase import SendRequest  # imported only if needed

        if SendRequest not in chain.handled:
            return request
        chain.phase.verdicts = []
        try:
            agreed, steps = chain.start(SendRequest(key=key, entry=entry, request=request, number=request.step))
        finally:
            self.verdicts += chain.phase.verdicts
        if not isinstance(agreed, SendRequest):
            raise _to_error(agreed)
        self._steps = steps
        return agreed.request

    def finish(self, call: int, reply: Reply) -> Reply:
        """Release the reservation of an answered call, and return its reply as the interceptors let it pass."""
        self.release(call)
        chain = self._get_chain() if self._steps else None
        if chain is None or self._steps is None:
            return reply
        outcome = chain.finish(self._steps, reply)
        if not isinstance(outcome, Allowed):
            raise _to_error(outcome)
        passed: Reply = outcome.answer
        return passed

    def release(self, call: int) -> None:
        """Release the reservation of a call: its cost is known, or it was not made."""
        if self._reservations:
            self._reservations.release(call)

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Close the reservations of a recorded call."""
        if self._reservations:
            self._reservations.settle(record)

    def write_off(self, call: int) -> dict[str, Any]:
        """Return the write-off of a call's reservations as a record field, if any."""
        write_off = self._reservations.write_off(call) if self._reservations else NO_WRITE_OFF
        write_off = self._runtime.write_off(self._inputs.agent.name, call, write_off)
        return {"lost": write_off.as_json()} if write_off.calls else {}


def _to_error(outcome: Outcome) -> LimitReached:
    """Return the error of a model call that an interceptor prevents."""
    if isinstance(outcome, Rejected):
        # A final rejection ends the whole request, not only the turn.
        return (RequestOverLimit if outcome.is_final else LimitReached)(outcome.reason)
    if isinstance(outcome, Deferred):
        return LimitReached(outcome.reason)
    return LimitReached("no person can be asked about a model call")


class Reservations:
    """The unsettled reservations of a turn by call number, and the write-off."""

    def __init__(self, journal: Journal, inputs: TurnInputs) -> None:
        agent = inputs.agent.name
        self._agent, self.write_off_total = agent, NO_WRITE_OFF
        self._open = find_unsettled(journal.find_agent_records(agent, inputs.turn))
        sent = {call for record in journal.records for name, call in record.submitted_calls if name == agent}
        for call in sent & self._open.keys():
            self._open[call].pop()  # a submitted batch is waited for, not sent again

    @property
    def reserved(self) -> WriteOff:
        """Total reserved for calls without an answer."""
        return sum_write_offs(reservation for reservations in self._open.values() for reservation in reservations)

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> ModelReserved | None:
        """Reserve the maximum cost of a call, and return its record; None for a provider without a model."""
        if entry.provider in NO_MODELS:
            return None
        tokens_in = max_input_tokens(request)
        max_cost = cost_bound(entry, tokens_in)
        dollars = request.max_cost_usd or entry.max_cost_usd or max_dollars(entry, tokens_in)
        amounts: dict[str, Any] = {
            "credits": min(float(max_cost.credits), MAX_AMOUNT),
            "cost_usd": None if dollars is None else min(dollars, MAX_AMOUNT),
            "tokens": max_cost.tokens,
        }
        self._open.setdefault(request.step, []).append(WriteOff(1, **amounts))
        return ModelReserved(agent=self._agent, call=request.step, key=key, **amounts)

    def release(self, call: int) -> None:
        """Release the latest reservation of a call with a known cost."""
        if reservations := self._open.get(call):
            reservations.pop()

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Add the write-off in a call's record, and close its reservations."""
        self._open.pop(record.call, None)
        self.write_off_total = self.write_off_total.add(WriteOff.from_json(record.lost))

    def write_off(self, call: int) -> WriteOff:
        """Close the reservations of a finished call, and return their total as a write-off."""
        return sum_write_offs(self._open.pop(call, ()))


FallbackReply = tuple[str, ModelEntry, Reply]
"""The model key of a reply, and the reply. The key is empty for the resume's own `model.key`."""


def complete_with_fallbacks(
    inputs: TurnInputs, config: Config, model: str, complete: Callable[[str, ModelEntry], Reply]
) -> FallbackReply:
    """Call the agent's model, then its fallbacks, until a model replies.

    Failures before the result are its `earlier`. Another `model`, given by key, has no fallbacks. Each model
    is resolved when its turn comes. Raises the last `ProviderError` when all models fail (preferring errors
    after which a retry may help), and `OutOfCredits` when the agent's own model is not affordable; for a
    fallback, `OutOfCredits` counts as a failure. Raises `TurnTooLong` without further calls when the turn's
    time is over, and `MayHaveActed` without further calls: the question may have been acted on.
    """
    failures: list[LemmingError] = []
    provider_errors: list[ProviderError] = []
    for key in (model,) if model else ("", *inputs.agent.model.fallback):
        try:
            entry = resolve_entry(inputs, config, key)
            reply = complete(key, entry)
            if reply.key:  # in a replay another model may have answered
                key, entry = reply.key, resolve_entry(inputs, config, reply.key)
            if failures:
                reply = reply._replace(earlier=(*failures, *reply.earlier))
            return key, entry, reply
        except (ProviderError, OutOfCredits) as error:
            if isinstance(error, (TurnTooLong, MayHaveActed)) or (
                key in ("", model) and isinstance(error, OutOfCredits)
            ):
                error.earlier = (*failures, *error.earlier)
                raise
            failures += [*getattr(error, "earlier", ()), error]
            provider_errors += [error] if isinstance(error, ProviderError) else []
    last = next((failure for failure in reversed(provider_errors) if not failure.is_for_good), provider_errors[-1])
    last.earlier = tuple(failure for failure in failures if failure is not last)
    raise last


def resolve_entry(inputs: TurnInputs, config: Config, key: str) -> ModelEntry:
    """Return the model entry of a key; a model of a capability needs no entry in a file."""
    if not key:
        return inputs.model
    for name, snapshot in inputs.given.items():
        for entry in StateQuery(ModelEntry, snapshot).ask(get_capability(name, config.org.plugins)):
            if entry.model == key:
                return entry
    return config.model(key)
