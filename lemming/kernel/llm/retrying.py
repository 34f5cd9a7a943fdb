"""Asks again when that may help, for as long as the call's own deadline lasts."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.deadlines import NEVER, Deadline, MonotonicClock
from lemming.kernel.base.errors import (
    OutOfCredits,
    ProviderError,
    RateLimited,
    RequestRejected,
    Unavailable,
)
from lemming.kernel.llm.calls import ask, timed_out
from lemming.kernel.llm.circuit import Circuit, CircuitsInMemory
from lemming.kernel.llm.minimal_question import minimal_question
from lemming.kernel.llm.rate_limit import NO_LIMITS, Limits, Pace
from lemming.kernel.providers import Backend, LLMProvider, Reply, Request

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Server(Protocol):
    """What is known of one server."""

    def suited(self, request: Request) -> Request:
        """Return a request as the server takes it."""
        ...

    def may_learn(self, model_name: str, error: RequestRejected) -> bool:
        """Return True if a refusal could teach anything that is neither known nor asked about."""
        ...

    def learn(self, model_name: str, error: RequestRejected) -> None:
        """Take note of what was refused when a model was asked."""


@dataclasses.dataclass(slots=True)
class _Call:
    """A call and all its attempts. A wait for room extends its deadline, as far as that of its turn."""

    deadline: Deadline  # within that of the turn, where it has one
    failures: list[ProviderError]
    hear: Callable[[str], object] | None = None
    again: Callable[[ProviderError], None] | None = None
    waited_s: float = 0.0


class RetryingLLMProvider(Backend):
    """A provider behind exponential backoff, a pace and a circuit breaker. Only `ProviderError`s come out.

    `Request.deadline_s` holds for all attempts and pauses together. A pause is what the server asked
    for, or 1 s, 2 s, 4 s, ... up to 30 s, each shortened by up to half at random. An error whose pause
    would outlast the deadline is raised at once. Each attempt waits for room in the `pace` by the `limits`,
    for as long as it takes: the deadline is the backend's, not ours. What the `server` refuses of a request
    and can do without is left out at once, and from then on if it refuses that of the smallest question too.
    Without a `circuit` it has its own, as long as
    it lives, unless the provider cannot be down.

    Setting `stop` ends a pause or a wait for room; the call then fails, for the process is about to end.
    """

    keeps_deadline = True

    def __init__(
        self,
        provider: LLMProvider,
        *,
        attempts: int = 4,
        circuit: Circuit | None = None,
        pace: Pace | None = None,
        limits: Limits = NO_LIMITS,
        server: Server | None = None,
        stop: threading.Event | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: MonotonicClock = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.takes_extra = getattr(provider, "takes_extra", True)
        self.takes_schema, self.takes_tools = provider.takes_schema, provider.takes_tools
        self.is_person, self.prefers_tools = provider.is_person, provider.prefers_tools
        if circuit is None and provider.can_be_down:
            circuit = CircuitsInMemory(SystemClock()).circuit(type(provider).__name__)
        self._provider, self._attempts, self._circuit = provider, attempts, circuit
        self._pace, self.limits, self._server = pace, limits, server
        self._stop = stop or threading.Event()
        self._sleep, self._clock, self._jitter = sleep or self._stop.wait, clock, jitter

    def complete(
        self,
        request: Request,
        hear: Callable[[str], object] | None = None,
        again: Callable[[ProviderError], None] | None = None,
    ) -> Reply:
        """Return the first reply; raise the last attempt's `ProviderError` when there is none.

        `hear` gets the text of each attempt as it comes. `again` gets the error of one that failed before
        the next is made, and what it raises comes out.
        """
        turn = Deadline(request.turn_s, clock=self._clock) if request.turn_s < math.inf else None
        call = _Call(Deadline(request.deadline_s, clock=self._clock, outer=turn), [], hear, again)
        try:
            reply = self._attempt(request, call)
            return reply._replace(earlier=tuple(call.failures)) if call.failures else reply
        except ProviderError as error:  # only now there is something to retry
            first = error
        try:
            reply = self._retrying()(self._again, [first], request, call)
        except (ProviderError, OutOfCredits) as error:
            error.earlier = tuple(failure for failure in call.failures if failure is not error)
            raise
        return reply._replace(earlier=tuple(call.failures))

    def complete_heard(self, request: Request, hear: Callable[[str], object]) -> Reply:
        """Return the first reply, each attempt heard as it comes."""
        return self.complete(request, hear)

    def _retrying(self) -> Retrying:
        from tenacity import Retrying, retry_if_exception  # costs as much as a short command: not before

        return Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ProviderError) and error.is_retryable),
            wait=self._pause_s,
            stop=self._gives_up,
            sleep=self._pause,
            reraise=True,
        )

    def _again(self, failed: list[ProviderError], request: Request, call: _Call) -> Reply:
        """Ask in the time that is left; `failed` holds the first attempt's error until that is raised."""
        if failed:
            raise failed.pop()
        if call.again and call.failures:
            call.again(call.failures[-1])
        return self._attempt(request._replace(deadline_s=call.deadline.remaining()), call)

    def _attempt(self, request: Request, call: _Call) -> Reply:
        """Ask, and again without each part of the request that the server refuses and can do without."""
        if self._server:
            request = self._server.suited(request)
        refusals: list[tuple[Request, RequestRejected]] = []
        while True:
            try:
                reply = self._once(request, call)
                return self._confirm(reply, refusals, call) if refusals else reply
            except RequestRejected as error:
                # Left out before and refused again: there is nothing more that could be left out.
                if error.refused in ("", *request.without):
                    raise
                refusals.append((request, error))
                without, left_s = (*request.without, error.refused), call.deadline.remaining()
                request = request._replace(without=without, deadline_s=left_s)

    def _confirm(self, reply: Reply, refusals: list[tuple[Request, RequestRejected]], call: _Call) -> Reply:
        """Have it learned what a server does not take, if it refuses that of the smallest question too.

        Return the reply; what a question that was answered has used is added to it.
        """
        if self._server is None:
            return reply
        for request, error in refusals:
            if not self._server.may_learn(request.model_name, error):
                continue
            answer, confirms = self._ask_smallest(request, error.refused, call)
            if confirms:
                self._server.learn(request.model_name, error)
            elif answer:
                reply = _add_usage(reply, answer)
        return reply

    def _ask_smallest(self, request: Request, part: str, call: _Call) -> tuple[Reply | None, bool]:
        """Ask the smallest question with a part in it; return its answer, and whether it was refused too."""
        if part == "stream":  # which is no part of what is asked
            return None, True
        apart = dataclasses.replace(call, hear=None, again=None, failures=[])
        smallest = minimal_question(request, part)._replace(deadline_s=call.deadline.remaining())
        try:
            return self._once(smallest, apart), False
        except ProviderError as error:
            return None, isinstance(error, RequestRejected) and error.refused == part
        finally:
            call.waited_s = apart.waited_s

    def _once(self, request: Request, call: _Call) -> Reply:
        if request.deadline_s <= 0:
            late = timed_out(call.deadline.seconds)
            late.may_be_paid = False  # it was not sent
            raise late
        if self._pace is None:
            return self._ask(request, call)
        came_s, turn = call.deadline.elapsed(), call.deadline.outer or NEVER
        request = request._replace(turn_s=turn.remaining())
        with self._pace.turn(self.limits, request, stop=self._stop) as sent:
            waited_s = call.deadline.elapsed() - came_s
            # The wait was for our own pace, not for the backend, so the deadline moves with it.
            call.deadline.extend(waited_s)
            call.waited_s += waited_s
            request = request._replace(deadline_s=min(request.deadline_s, turn.remaining()))
            try:
                reply = self._ask(request, call)
            except RateLimited as error:
                if error.retry_after_s:
                    self._pace.rest(request.model_name, error.retry_after_s)
                raise
            if reply.rest_s:
                self._pace.rest(request.model_name, reply.rest_s)
            self._pace.settle(sent, request, reply)
        return reply._replace(waited_s=call.waited_s)

    def _ask(self, request: Request, call: _Call) -> Reply:
        try:
            if self._circuit is None:
                return ask(self._provider, request, call.hear)
            with self._circuit.guard():
                return ask(self._provider, request, call.hear)
        except ProviderError as error:
            call.failures.append(error)
            raise

    def _gives_up(self, state: RetryCallState) -> bool:
        call: _Call = state.args[2]  # of `_again`
        is_last = state.attempt_number >= self._attempts
        return is_last or self._stop.is_set() or state.upcoming_sleep >= call.deadline.remaining()

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ProviderError) and error.retry_after_s is not None:
            return error.retry_after_s
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (state.attempt_number - 1))
        # At random, so that turns that failed together do not come back together.
        return longest * (1 - self._jitter() / 2)

    def _pause(self, seconds: float) -> None:
        self._sleep(seconds)
        if self._stop.is_set():
            raise Unavailable("not asked again: the engine is stopping")


def _add_usage(reply: Reply, other: Reply) -> Reply:
    """Return a reply that has used what another one used, too."""
    return reply._replace(
        input_tokens=_add_counts(reply.input_tokens, other.input_tokens),
        output_tokens=_add_counts(reply.output_tokens, other.output_tokens),
    )


def _add_counts(one: int | None, other: int | None) -> int | None:
    return one if one is None or other is None else one + other
