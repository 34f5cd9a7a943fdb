"""Retries of model calls, within the call's own deadline.

A rejection may concern one conversation and say nothing about the server. A part that the server rejects in a minimal
prompt too is not supported.
"""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.blocking_deadline import NEVER, Deadline, MonotonicClock
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import OutOfCredits, ProviderError, RateLimited, RequestRejected, Unavailable
from lemming.kernel.llm.circuit_breaker import Circuit, Circuits
from lemming.kernel.llm.model_call import call_provider, timeout_error, to_acting_error
from lemming.kernel.llm.rate_limit import NO_LIMITS, Limits, RateLimiter
from lemming.kernel.providers import Backend, LLMProvider, Message, Reply, Request

if TYPE_CHECKING:
    from tenacity import RetryCallState

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0


@dataclasses.dataclass(slots=True)
class _Call:
    """A call with all its attempts. Waiting for capacity extends the deadline, up to the turn's deadline."""

    deadline: Deadline  # within the turn's deadline, if it has one
    failures: list[ProviderError]
    on_delta: Callable[[str], object] | None = None
    on_retry: Callable[[ProviderError], None] | None = None
    on_start: Callable[[Request, bool], None] | None = None
    waited_s: float = 0.0


class RetryingLLMProvider(Backend):
    """A provider with exponential backoff, a rate limiter and a circuit breaker. Raises only `ProviderError`s.

    `Request.deadline_s` covers all attempts and delays together. A delay is the time requested by the server,
    or 1 s, 2 s, 4 s, ... up to 30 s, each shortened by up to half at random. An error is raised at once if
    its delay would exceed the deadline. Each attempt waits for capacity in the `rate_limiter` under the
    `limits` without a time limit: the deadline covers the backend, not our own queue. An optional part of a
    request that the server rejects is left out at once, and permanently, in the profile `server`, if the server
    rejects the minimal prompt too. Without a `circuit`, the provider gets its own circuit for its lifetime, unless
    `can_be_down` is false.

    A call of a provider that acts outside is made at most once: if the call fails once it has started, it
    raises `MayHaveActed` and is not retried.

    Setting `stop` ends a delay or a wait for capacity. The call then fails, because the process is about to
    end.
    """

    keeps_deadline = True

    def __init__(
        self,
        provider: LLMProvider,
        *,
        attempts: int = 4,
        circuit: Circuit | None = None,
        rate_limiter: RateLimiter | None = None,
        limits: Limits = NO_LIMITS,
        server: Any = None,
        stop: threading.Event | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: MonotonicClock = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.takes_extra = getattr(provider, "takes_extra", True)
        self.takes_schema, self.takes_tools = provider.takes_schema, provider.takes_tools
        self.is_person, self.prefers_tools = provider.is_person, provider.prefers_tools
        self.acts_outside = provider.acts_outside
        if circuit is None and provider.can_be_down:
            circuit = Circuits(None, SystemClock()).get_circuit(type(provider).__name__)
        self._provider, self._attempts, self._circuit = provider, attempts, circuit
        self._pace, self.limits, self._server = rate_limiter, limits, server
        self._stop = stop or threading.Event()
        self._sleep, self._clock, self._jitter = sleep or self._stop.wait, clock, jitter

    def complete(
        self,
        request: Request,
        on_delta: Callable[[str], object] | None = None,
        on_retry: Callable[[ProviderError], None] | None = None,
        on_start: Callable[[Request, bool], None] | None = None,
    ) -> Reply:
        """Return the first reply. Raise the last attempt's `ProviderError` if all attempts fail.

        `on_delta` receives the text of each attempt as it is streamed. `on_retry` receives the error of a
        failed attempt before the next attempt, and its exceptions are passed on. `on_start` receives the request
        just before each call, after all waits, and True for a provider that acts outside.
        """
        turn = Deadline(request.turn_s, clock=self._clock) if request.turn_s < math.inf else None
        call = _Call(Deadline(request.deadline_s, clock=self._clock, outer=turn), [], on_delta, on_retry, on_start)
        try:
            reply = self._attempt(request, call)
            return reply._replace(earlier=tuple(call.failures)) if call.failures else reply
        except ProviderError as error:
            failed = [error]
        from tenacity import Retrying, retry_if_exception  # costs as much as a short command: only for a retry

        def retry() -> Reply:
            if failed:  # the first attempt's error
                raise failed.pop()
            if call.on_retry and call.failures:
                call.on_retry(call.failures[-1])
            return self._attempt(request._replace(deadline_s=call.deadline.remaining()), call)

        def is_last(state: RetryCallState) -> bool:
            is_over = state.attempt_number >= self._attempts or self._stop.is_set()
            return is_over or state.upcoming_sleep >= call.deadline.remaining()

        def pause(seconds: float) -> None:
            self._sleep(seconds)
            if self._stop.is_set():
                raise Unavailable("not called again: the engine is stopping")

        can_retry = retry_if_exception(lambda error: isinstance(error, ProviderError) and error.is_retryable)
        try:
            reply = Retrying(retry=can_retry, wait=self._pause_s, stop=is_last, sleep=pause, reraise=True)(retry)
        except (ProviderError, OutOfCredits) as error:
            error.earlier = tuple(failure for failure in call.failures if failure is not error)
            raise
        return reply._replace(earlier=tuple(call.failures))

    def complete_streaming(self, request: Request, on_delta: Callable[[str], object]) -> Reply:
        """Return the first reply, streaming the text of each attempt."""
        return self.complete(request, on_delta)

    def _attempt(self, request: Request, call: _Call) -> Reply:
        """Call the provider; retry without each optional part of the request the server rejects."""
        if self._server:
            request = self._server.adapt_request(request)
        refusals: list[tuple[Request, RequestRejected]] = []
        while True:
            try:
                reply = self._call_guarded(request, call)
                return self._confirm(reply, refusals, call) if refusals else reply
            except RequestRejected as error:
                # Left out before and refused again: there is nothing more that could be left out.
                if error.refused in ("", *request.without):
                    raise
                refusals.append((request, error))
                without, left_s = (*request.without, error.refused), call.deadline.remaining()
                request = request._replace(without=without, deadline_s=left_s)

    def _confirm(self, reply: Reply, refusals: list[tuple[Request, RequestRejected]], call: _Call) -> Reply:
        """Record the parts that the server rejects in the minimal prompt too. Return the reply with that usage added."""
        if self._server is None:
            return reply
        for request, error in refusals:
            if not self._server.may_learn(request.model_name, error):
                continue
            answer, is_confirmed = self._ask_smallest(request, error.refused, call)
            if is_confirmed:
                self._server.learn_rejection(request.model_name, error)
            elif answer:
                reply = _add_usage(reply, answer)
        return reply

    def _ask_smallest(self, request: Request, part: str, call: _Call) -> tuple[Reply | None, bool]:
        """Send the minimal prompt with one part. Return its answer, and True if the part was rejected again."""
        if part == "stream":  # which is not part of the prompt
            return None, True
        separate_call = dataclasses.replace(call, on_delta=None, on_retry=None, failures=[])
        smallest = _minimal_prompt(request, part)._replace(deadline_s=call.deadline.remaining())
        try:
            return self._call_guarded(smallest, separate_call), False
        except ProviderError as error:
            return None, isinstance(error, RequestRejected) and error.refused == part
        finally:
            call.waited_s = separate_call.waited_s

    def _call_guarded(self, request: Request, call: _Call) -> Reply:
        if request.deadline_s <= 0:
            timeout = timeout_error(call.deadline.seconds)
            timeout.may_be_paid = False  # it was not sent
            raise timeout
        if self._pace is None:
            return self._ask(request, call)
        start_s, turn_deadline = call.deadline.elapsed(), call.deadline.outer or NEVER
        request = request._replace(turn_s=turn_deadline.remaining())
        with self._pace.acquire(self.limits, request, stop=self._stop) as sent:
            waited_s = call.deadline.elapsed() - start_s
            # The wait was for our own pace, not for the backend, so the deadline moves with it.
            call.deadline.extend(waited_s)
            call.waited_s += waited_s
            request = request._replace(deadline_s=min(request.deadline_s, turn_deadline.remaining()))
            try:
                reply = self._ask(request, call)
            except RateLimited as error:
                if error.retry_after_s:
                    self._pace.pause_model(request.model_name, error.retry_after_s)
                raise
            if reply.rest_s:
                self._pace.pause_model(request.model_name, reply.rest_s)
            self._pace.record_usage(sent, request, reply)
        return reply._replace(waited_s=call.waited_s)

    def _ask(self, request: Request, call: _Call) -> Reply:
        try:
            if self._circuit is None:
                return self._call_backend(request, call)
            with self._circuit.guard():
                return self._call_backend(request, call)
        except ProviderError as error:
            # A call that was never sent has not acted either.
            if self.acts_outside and error.may_be_paid:
                error = to_acting_error(error)
            call.failures.append(error)
            raise error from None

    def _call_backend(self, request: Request, call: _Call) -> Reply:
        if call.on_start:
            call.on_start(request, self.acts_outside)
        reply = call_provider(self._provider, request, call.on_delta)
        return reply._replace(acted=True) if self.acts_outside else reply

    def _pause_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ProviderError) and error.retry_after_s is not None:
            return error.retry_after_s
        longest = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (state.attempt_number - 1))
        # At random, so that turns that failed together do not come back together.
        return longest * (1 - self._jitter() / 2)


def _add_usage(reply: Reply, other: Reply) -> Reply:
    """Return a reply with the usage of another reply added."""
    counts = {key: (getattr(reply, key), getattr(other, key)) for key in ("input_tokens", "output_tokens")}
    return reply._replace(**{key: sum(pair) for key, pair in counts.items() if None not in pair})


_TOOL = {
    "name": "note",
    "description": "Write a word down.",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_SCHEMA_PARTS = ("json_schema", "json_object")
_TOOL_PARTS = ("tools", "encrypted_content")
_MAX_TOKENS = 16


def _minimal_prompt(request: Request, part: str) -> Request:
    """Return the smallest request with one part of a request, without the parts already left out."""
    message: Message = {"role": "user", "content": 'Reply with {"ok": true}.'}
    if part in _TOOL_PARTS:
        message["tools"] = [_TOOL]
    return Request(
        request.model_name,
        [message],
        temperature=request.temperature if part == "temperature" else None,
        schema=_SCHEMA if part in _SCHEMA_PARTS else None,
        max_output_tokens=min(_MAX_TOKENS, request.max_output_tokens),
        deadline_s=request.deadline_s,
        agent=request.agent,
        tick=request.tick,
        step=request.step,
        without=request.without,
        turn_s=request.turn_s,
    )
