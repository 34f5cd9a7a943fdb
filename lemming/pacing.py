"""Pacing: how many calls, requests and tokens a backend is sent, before it has to ask for less.

Calls go in the order in which they came, each as soon as there is room for it by its own line of
`config/models.json`. Lines of one backend share one count; calls of a line that sets no limit are neither
held up nor counted. A minute is always the last 60 seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lemming.config import ModelEntry
from lemming.errors import RateLimited, Unavailable
from lemming.providers import Reply, Request, tokens_in, tokens_used

WINDOW_S = 60.0
LONGEST_SLEEP_S = 0.25  # of the one call that is next: how soon it sees that the engine is to stop
UNKNOWN_S = 0.0  # the least a wait takes that ends when another call does


@dataclass(frozen=True)
class Limits:
    """What one line of `config/models.json` allows; None is no limit."""

    max_concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @classmethod
    def of(cls, entry: ModelEntry) -> Limits:
        """Return the limits of a line."""
        return cls(entry.max_concurrency, entry.requests_per_minute, entry.tokens_per_minute)


NO_LIMITS = Limits()


@dataclass(eq=False)
class Sent:
    """A call that was let go. While it is under way, `tokens` is a guess."""

    at: float
    tokens: int
    is_under_way: bool = True


@dataclass(eq=False)
class Pace:
    """The calls of one backend: those that wait, those under way, those of the last minute. Thread-safe.

    `name` says in errors who is meant; `clock` and `wait` are for tests.
    """

    name: str = ""
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Condition, float], object] = threading.Condition.wait
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: deque[threading.Condition] = field(default_factory=deque)
    _sent: deque[Sent] = field(default_factory=deque)
    _under_way: int = 0
    _held_up_by: str = ""

    @contextlib.contextmanager
    def turn(
        self, limits: Limits, request: Request, *, within_s: float, stop: threading.Event
    ) -> Iterator[Sent]:
        """Run one call in the block, once there is room for it.

        Raises `RateLimited` that names the setting as soon as it is certain that there will be none within
        `within_s`, and `Unavailable` when `stop` is set while the call waits.
        """
        # The longest answer counts until the real one is known, as it does with the hosted backends.
        tokens = tokens_in(request.messages) + request.max_output_tokens
        with self._lock:
            self._await_room(limits, tokens, self.clock() + within_s, stop)
            sent = Sent(self.clock(), tokens)
            self._sent.append(sent)
            self._under_way += 1
            self._wake_next()
        try:
            yield sent
        finally:
            with self._lock:
                sent.is_under_way = False
                self._under_way -= 1
                self._wake_next()

    def settle(self, sent: Sent, request: Request, reply: Reply) -> None:
        """Count what a call used in the place of the guess."""
        used = tokens_used(request.messages, reply)
        with self._lock:
            sent.tokens = used.input + used.output

    def _await_room(self, limits: Limits, tokens: int, ends: float, stop: threading.Event) -> None:
        place = threading.Condition(self._lock)
        self._waiting.append(place)
        try:
            while (held_up := self._held_up(limits, tokens, self._waiting.index(place))) is not None:
                remaining_s = ends - self.clock()
                setting, least_s = held_up
                if least_s >= remaining_s:
                    raise self._no_room(setting, max(least_s, 0.0))
                if stop.is_set():
                    raise Unavailable("not asked: the engine is stopping", where=self.name)
                # One watches the time for all: the others are woken when it has gone.
                is_next = self._waiting[0] is place
                self.wait(place, min(remaining_s, LONGEST_SLEEP_S) if is_next else remaining_s)
        finally:
            self._waiting.remove(place)
            self._wake_next()

    def _held_up(self, limits: Limits, tokens: int, ahead: int) -> tuple[str, float] | None:
        """Return the setting that holds up a call with `ahead` calls before it, and the least it has to wait.

        None means that it may go.
        """
        now = self.clock()
        while self._sent and self._sent[0].at <= now - WINDOW_S:
            self._sent.popleft()
        if (wait_s := self._until_request(limits.requests_per_minute, ahead, now)) is not None:
            setting = "requests_per_minute"
        elif (wait_s := self._until_tokens(limits.tokens_per_minute, tokens, now)) is not None:
            setting = "tokens_per_minute"
        elif limits.max_concurrency is not None and self._under_way >= limits.max_concurrency:
            setting, wait_s = "max_concurrency", UNKNOWN_S
        elif ahead:
            return self._held_up_by, UNKNOWN_S
        else:
            return None
        if not ahead:
            self._held_up_by = setting
        return setting, wait_s

    def _until_request(self, limit: int | None, ahead: int, now: float) -> float | None:
        """Return how long until one more request may follow those sent and those ahead; None: no wait.

        A request may go 60 s after the one that is `limit` places before it.
        """
        if limit is None or (before := len(self._sent) + ahead - limit) < 0:
            return None
        minutes = 0
        while before >= len(self._sent):
            before, minutes = before - limit, minutes + 1
        first_s = max(0.0, self._sent[before].at + WINDOW_S - now) if before >= 0 else 0.0
        return first_s + minutes * WINDOW_S

    def _until_tokens(self, limit: int | None, tokens: int, now: float) -> float | None:
        """Return the least time until there is room for that many tokens; None: there is."""
        if limit is None:
            return None
        # A call that is larger than the limit goes when nothing else counts.
        excess = min(tokens, limit) + sum(sent.tokens for sent in self._sent) - limit
        if excess <= 0:
            return None
        excess -= sum(sent.tokens for sent in self._sent if sent.is_under_way)  # may turn out to be less
        wait_s = UNKNOWN_S
        for sent in self._sent:
            if excess <= 0:
                break
            if not sent.is_under_way:
                excess -= sent.tokens
                wait_s = sent.at + WINDOW_S - now
        return wait_s

    def _no_room(self, setting: str, least_s: float) -> RateLimited:
        return RateLimited(
            f"the line's {setting} leaves no room for the call before its deadline",
            where=self.name,
            hint=f"raise {setting} or deadline_s in config/models.json",
            retry_after_s=least_s,
        )

    def _wake_next(self) -> None:
        if self._waiting:
            self._waiting[0].notify()
