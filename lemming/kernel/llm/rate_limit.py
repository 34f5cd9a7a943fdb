"""Rate limiting: the number of calls, requests and tokens sent to a backend before it must slow us down.

Calls are sent in arrival order, each as soon as its entry of `config/models.json` allows. Entries of a
backend share one count; calls of an entry without limits are neither delayed nor counted. A minute is always
the last 60 seconds.

If a provider reports an exhausted quota until some time, or a retry delay, the calls of the model wait,
instead of each being refused.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lemming.kernel.base.blocking_deadline import Deadline, MonotonicClock
from lemming.kernel.base.errors import RateLimited, TimedOut, Unavailable
from lemming.kernel.llm.call_cost import estimate_prompt_tokens, tokens_used
from lemming.kernel.providers import Reply, Request

WINDOW_S = 60.0
MAX_SLEEP_S = 0.25  # of the next call only: the delay until it notices that the engine is to stop
MAX_PAUSE_S = 3600.0
"""Maximum seconds until a provider is tried again, whatever its last answer asked for."""


@dataclass(frozen=True)
class Limits:
    """Limits of an entry of `config/models.json`; None means unlimited."""

    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


NO_LIMITS = Limits()


@dataclass(eq=False)
class PacedCall:
    """A call sent within the limits. `tokens` is an estimate until the usage is recorded."""

    at: float
    tokens: int


@dataclass(eq=False)
class RateLimiter:
    """The calls of a backend: waiting, running, and sent in the last minute. Thread-safe.

    `name` identifies the backend in errors. `clock`, `wait` and `pause` replace real time in tests.
    """

    name: str = ""
    clock: MonotonicClock = time.monotonic
    wait: Callable[[threading.Condition, float | None], object] = threading.Condition.wait
    pause: Callable[[float], object] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: deque[threading.Condition] = field(default_factory=deque)
    _sent: deque[PacedCall] = field(default_factory=deque)
    _pauses: dict[str, Deadline] = field(default_factory=dict)  # by the model's name
    _running: int = 0

    @contextlib.contextmanager
    def acquire(self, limits: Limits, request: Request, *, stop: threading.Event) -> Iterator[PacedCall]:
        """Run one call in the block, once the limits allow.

        Raises `Unavailable` if `stop` is set while the call waits, `TimedOut` if the time of its turn is
        over, `RateLimited` if the provider's pause is longer than the call may take.
        """
        # The longest answer counts until the real one is known, as it does with the hosted backends.
        tokens = estimate_prompt_tokens(request.messages) + request.max_output_tokens
        with self._lock:
            turn_deadline = Deadline(request.turn_s, clock=self.clock)
            while True:
                if request.model_name in self._pauses:
                    self._wait_for_pause(request, stop, turn_deadline)
                self._wait_for_capacity(limits, tokens, stop, turn_deadline)
                if request.model_name not in self._pauses:  # it may have begun meanwhile
                    break
            call = PacedCall(self.clock(), tokens)
            self._sent.append(call)
            self._running += 1
            # Only the first in line watches the time: whoever leaves the line must wake the next.
            self._wake_next()
        try:
            yield call
        finally:
            with self._lock:
                self._running -= 1
                self._wake_next()

    def record_usage(self, call: PacedCall, request: Request, reply: Reply) -> None:
        """Replace a call's estimated tokens by the actual usage."""
        used = tokens_used(request.messages, reply)
        with self._lock:
            call.tokens = used.input + used.output

    def pause_model(self, model_name: str, seconds: float) -> None:
        """Delay further calls of a model for `seconds`, as requested by the provider."""
        new_pause = Deadline(min(seconds, MAX_PAUSE_S), clock=self.clock)
        with self._lock:
            current_pause = self._pauses.get(model_name)
            if current_pause is None or current_pause.remaining() < new_pause.remaining():
                self._pauses[model_name] = new_pause

    def _wait_for_pause(self, request: Request, stop: threading.Event, turn_deadline: Deadline) -> None:
        name, condition = request.model_name, threading.Condition(self._lock)
        while (model_pause := self._pauses.get(name)) and (remaining_s := model_pause.remaining()) > 0:
            _refuse_late(self.name, stop, turn_deadline)
            if remaining_s > request.deadline_s:
                raise RateLimited(
                    f"not called: the provider of {name} allows no calls for {remaining_s:.0f} s",
                    where=self.name,
                    retry_after_s=remaining_s,
                )
            if self.pause:
                self.pause(min(remaining_s, turn_deadline.remaining()))
            else:
                self.wait(condition, min(remaining_s, MAX_SLEEP_S, turn_deadline.remaining()))
        self._pauses.pop(name, None)

    def _wait_for_capacity(self, limits: Limits, tokens: int, stop: threading.Event, turn_deadline: Deadline) -> None:
        condition = threading.Condition(self._lock)
        self._waiting.append(condition)
        try:
            while (wait_s := self._wait_s(limits, tokens, condition)) != 0:
                _refuse_late(self.name, stop, turn_deadline)
                remaining_s = turn_deadline.remaining()
                self.wait(condition, wait_s if remaining_s == math.inf else min(remaining_s, wait_s or remaining_s))
        finally:
            self._waiting.remove(condition)
            self._wake_next()

    def _wait_s(self, limits: Limits, tokens: int, condition: threading.Condition) -> float | None:
        """Return 0 if a call may be sent now, else the time to sleep, or None to sleep until woken.

        The first call in the queue watches the time and `stop` for all.
        """
        if self._waiting[0] is not condition:
            return None
        current_s = self.clock()
        while self._sent and self._sent[0].at <= current_s - WINDOW_S:
            self._sent.popleft()
        sent_count = len(self._sent)
        if limits.requests_per_minute is not None and sent_count >= limits.requests_per_minute:
            blocking_call = self._sent[sent_count - limits.requests_per_minute]
            return min(MAX_SLEEP_S, blocking_call.at + WINDOW_S - current_s)
        if limits.max_concurrent is not None and self._running >= limits.max_concurrent:
            return MAX_SLEEP_S
        # A call above the limit runs when no other spending counts.
        token_limit = limits.tokens_per_minute
        if token_limit is not None and min(tokens, token_limit) + sum(call.tokens for call in self._sent) > token_limit:
            return MAX_SLEEP_S
        return 0

    def _wake_next(self) -> None:
        if self._waiting:
            self._waiting[0].notify()


def _refuse_late(name: str, stop: threading.Event, turn_deadline: Deadline) -> None:
    """Raise an error for a call that may not wait any longer."""
    if stop.is_set():
        raise Unavailable("not called: the engine is stopping", where=name)
    if turn_deadline.has_passed:
        error = TimedOut("not called: the turn's time leaves no room for the call", where=name)
        error.may_be_paid = False
        raise error
