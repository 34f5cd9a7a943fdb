"""Pacing: how many calls, requests and tokens a backend is sent, before it has to ask for less.

Calls go in the order in which they came, each as soon as there is room for it by its own line of
`config/models.json`. Lines of one backend share one count; calls of a line that sets no limit are neither
held up nor counted. A minute is always the last 60 seconds.

Where a provider says that nothing remains until a moment, or to come back after a while, the calls of that
model wait for it, instead of each being refused.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lemming.kernel.base.deadlines import Deadline, MonotonicClock
from lemming.kernel.base.errors import RateLimited, TimedOut, Unavailable
from lemming.kernel.llm.tokens import tokens_in, tokens_used
from lemming.kernel.providers import Reply, Request

WINDOW_S = 60.0
LONGEST_SLEEP_S = 0.25  # of the one call that is next: how soon it sees that the engine is to stop
LONGEST_REST_S = 3600.0
"""After so long a provider is asked again, whatever it said before."""


@dataclass(frozen=True)
class Limits:
    """What one line of `config/models.json` allows; None is no limit."""

    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


NO_LIMITS = Limits()


@dataclass(eq=False)
class PacedCall:
    """A call that was let go. `tokens` is a guess until it is settled."""

    at: float
    tokens: int


@dataclass(eq=False)
class Pace:
    """The calls of one backend: those that wait, those under way, those of the last minute. Thread-safe.

    `name` says in errors who is meant; `clock` and `wait` are for tests. `pause`: how a rest of the provider
    passes, unless in real time.
    """

    name: str = ""
    clock: MonotonicClock = time.monotonic
    wait: Callable[[threading.Condition, float | None], object] = threading.Condition.wait
    pause: Callable[[float], object] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: deque[threading.Condition] = field(default_factory=deque)
    _sent: deque[PacedCall] = field(default_factory=deque)
    _rests: dict[str, Deadline] = field(default_factory=dict)  # by the model's name
    _under_way: int = 0

    @contextlib.contextmanager
    def turn(self, limits: Limits, request: Request, *, stop: threading.Event) -> Iterator[PacedCall]:
        """Run one call in the block, once there is room for it.

        Raises `Unavailable` when `stop` is set while the call waits, `TimedOut` when its turn's time is over,
        `RateLimited` when the provider rests for longer than the call may take.
        """
        # The longest answer counts until the real one is known, as it does with the hosted backends.
        tokens = tokens_in(request.messages) + request.max_output_tokens
        with self._lock:
            turn = Deadline(request.turn_s, clock=self.clock)
            while True:
                if request.model_name in self._rests:
                    self._await_rest(request, stop, turn)
                self._await_room(limits, tokens, stop, turn)
                if request.model_name not in self._rests:  # it may have begun meanwhile
                    break
            sent = PacedCall(self.clock(), tokens)
            self._sent.append(sent)
            self._under_way += 1
            # Only the first in line watches the time: whoever leaves the line must wake the next.
            self._wake_next()
        try:
            yield sent
        finally:
            with self._lock:
                self._under_way -= 1
                self._wake_next()

    def settle(self, sent: PacedCall, request: Request, reply: Reply) -> None:
        """Count what a call used in the place of the guess."""
        used = tokens_used(request.messages, reply)
        with self._lock:
            sent.tokens = used.input + used.output

    def rest(self, model_name: str, seconds: float) -> None:
        """Have further calls of a model wait so long: its provider says that it takes none before."""
        rest = Deadline(min(seconds, LONGEST_REST_S), clock=self.clock)
        with self._lock:
            before = self._rests.get(model_name)
            if before is None or before.remaining() < rest.remaining():
                self._rests[model_name] = rest

    def _await_rest(self, request: Request, stop: threading.Event, turn: Deadline) -> None:
        name, place = request.model_name, threading.Condition(self._lock)
        while (rest := self._rests.get(name)) and (left := rest.remaining()) > 0:
            _refuse_late(self.name, stop, turn)
            if left > request.deadline_s:
                raise RateLimited(
                    f"not asked: {name} takes no calls for {left:.0f} s, its provider said",
                    where=self.name,
                    retry_after_s=left,
                )
            if self.pause:
                self.pause(min(left, turn.remaining()))
            else:
                self.wait(place, min(left, LONGEST_SLEEP_S, turn.remaining()))
        self._rests.pop(name, None)

    def _await_room(self, limits: Limits, tokens: int, stop: threading.Event, turn: Deadline) -> None:
        place = threading.Condition(self._lock)
        self._waiting.append(place)
        try:
            while (wait_s := self._wait_s(limits, tokens, place)) != 0:
                _refuse_late(self.name, stop, turn)
                left = turn.remaining()
                self.wait(place, wait_s if left == math.inf else min(left, wait_s or left))
        finally:
            self._waiting.remove(place)
            self._wake_next()

    def _wait_s(self, limits: Limits, tokens: int, place: threading.Condition) -> float | None:
        """Return 0 for a call that may go now, else how long to sleep; None: until it is woken.

        The one that is next watches the time and `stop` for all.
        """
        if self._waiting[0] is not place:
            return None
        now = self.clock()
        while self._sent and self._sent[0].at <= now - WINDOW_S:
            self._sent.popleft()
        in_window = len(self._sent)
        if limits.requests_per_minute is not None and in_window >= limits.requests_per_minute:
            blocking = self._sent[in_window - limits.requests_per_minute]
            return min(LONGEST_SLEEP_S, blocking.at + WINDOW_S - now)
        if limits.max_concurrent is not None and self._under_way >= limits.max_concurrent:
            return LONGEST_SLEEP_S
        # A call that is larger than the limit goes when nothing else counts.
        room = limits.tokens_per_minute
        if room is not None and min(tokens, room) + sum(sent.tokens for sent in self._sent) > room:
            return LONGEST_SLEEP_S
        return 0

    def _wake_next(self) -> None:
        if self._waiting:
            self._waiting[0].notify()


def _refuse_late(name: str, stop: threading.Event, turn: Deadline) -> None:
    """Raise for a call that may wait no longer."""
    if stop.is_set():
        raise Unavailable("not asked: the engine is stopping", where=name)
    if turn.has_passed:
        late = TimedOut("not asked: there was no room in the turn's time", where=name)
        late.may_be_paid = False
        raise late
