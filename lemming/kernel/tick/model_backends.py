"""Model backends of an engine, by entry of `config/models.json`: created on first use, then cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import MonotonicClock
from lemming.kernel.base.clock import Clock
from lemming.kernel.base.errors import DiskError, LemmingError, Problem, ProviderError, Unusable
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import load_provided
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import LLMProvider, Reply, Request, make_provider

if TYPE_CHECKING:
    from lemming.kernel.llm.circuit_breaker import Circuits
    from lemming.kernel.llm.rate_limit import RateLimiter
    from lemming.kernel.llm.retrying_provider import RetryingLLMProvider


@dataclass
class Backends:
    """Model backends under the settings of the current tick; thread-safe.

    `stop` is set when the engine is to end. `report_problem` receives problems for a person. `monotonic` is
    the clock of the calls; `pause` replaces waiting in real time.
    """

    base: Path
    clock: Clock
    stop: threading.Event
    report_problem: Callable[[Problem], None]
    settings: OrgSettings = field(default_factory=OrgSettings)
    monotonic: MonotonicClock = time.monotonic
    pause: Callable[[float], object] | None = None
    _providers: dict[tuple[object, ...], RetryingLLMProvider] = field(default_factory=dict)
    _latest: tuple[ModelEntry, OrgSettings, RetryingLLMProvider] | None = None
    _circuits: Circuits | None = None
    _servers: Any = None
    _rate_limiters: dict[str, RateLimiter] = field(default_factory=dict)
    _executor: Any = None  # makes calls on other machines, at the `executor_address`
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def complete(
        self,
        entry: ModelEntry,
        request: Request,
        on_delta: Callable[[str], object] | None = None,
        before_retry: Callable[[ProviderError], None] | None = None,
        on_start: Callable[[Request, bool], None] | None = None,
    ) -> Reply:
        """Call an entry's model with retries, a deadline and a circuit breaker (`RetryingLLMProvider.complete`)."""
        return self._get_provider(entry).complete(request, on_delta, before_retry, on_start)

    def make_provider(self, entry: ModelEntry) -> LLMProvider:
        """Return a new provider for an entry, without retries or other wrappers."""
        plugins = self.settings.plugins
        provider = make_provider(entry.provider, entry.options, base=self.base, plugins=plugins)
        provider.stopping = self.stop
        if self.pause:
            provider.pause = self.pause
        return provider

    def adapt_request(self, entry: ModelEntry, request: Request) -> Request:
        """Return the request without the fields that the entry's server is known to reject."""
        adapted: Request = self.server_profile(entry).adapt_request(request)
        return adapted

    def complete_once(self, entry: ModelEntry, request: Request) -> Reply:
        """Call an entry's model immediately, without retries. Fields rejected by the server are left out.

        A reply closes the circuit of the backend for every engine.
        """
        from lemming.kernel.llm.circuit_breaker import Circuits, circuit_name
        from lemming.kernel.llm.retrying_provider import RetryingLLMProvider

        provider = self.make_provider(entry)
        server = self.server_profile(entry) if provider.leaves_out else None
        single_attempt = RetryingLLMProvider(provider, attempts=1, server=server, stop=self.stop)
        reply = single_attempt.complete(request)
        Circuits(self.base, self.clock).close(circuit_name(entry.provider, entry.options))
        return reply

    def max_calls(self, entry: ModelEntry) -> int | None:
        """Return the maximum number of parallel calls to an entry's model, or None for one call per turn."""
        if entry.concurrency_limit or self.settings.max_parallel:
            return entry.concurrency_limit
        return self._get_provider_by_key(entry).limits.max_concurrent

    def close(self) -> None:
        """Disconnect from the remote executor, if any."""
        if self._executor is not None:
            self._executor.close()

    def _get_provider(self, entry: ModelEntry) -> RetryingLLMProvider:
        latest = self._latest
        if latest is None or latest[0] is not entry or latest[1] is not self.settings:  # else agents share one model
            latest = self._latest = entry, self.settings, self._get_provider_by_key(entry)
        return latest[2]

    def _get_provider_by_key(self, entry: ModelEntry) -> RetryingLLMProvider:
        limits = entry.concurrency_limit, entry.requests_per_minute, entry.tokens_per_minute
        executor_settings = self.settings.executor, self.settings.executor_address, self.settings.max_parallel
        key = entry.provider, repr(entry.options), entry.attempts, limits, executor_settings
        if key in self._providers:
            return self._providers[key]
        with self._lock:
            # Looked up again under the lock: two turns that ask at once must share one circuit and one pace.
            if key not in self._providers:
                try:
                    self._providers[key] = self._make_retrying_provider(entry)
                except DiskError:
                    raise
                # A wrong line of models.json fails only the agents that use it; their fallbacks still work.
                except LemmingError as error:
                    raise Unusable(error.message, where=error.where, hint=error.hint) from error
            return self._providers[key]

    def _make_retrying_provider(self, entry: ModelEntry) -> RetryingLLMProvider:
        from lemming.kernel.llm.circuit_breaker import Circuits, circuit_name
        from lemming.kernel.llm.rate_limit import NO_LIMITS, Limits, RateLimiter
        from lemming.kernel.llm.retrying_provider import RetryingLLMProvider

        if self._circuits is None:
            self._circuits = Circuits(self.base, self.clock)
        provider = self.make_provider(entry)
        if provider.remark:
            self.report_problem(Problem(provider.remark, paths.MODELS_FILE, severity="warning"))
        name = circuit_name(entry.provider, entry.options)
        max_calls = entry.concurrency_limit or provider.max_concurrent
        if not entry.concurrency_limit and max_calls is not None and max_calls > 1:
            max_calls = max(max_calls, self.settings.max_parallel or 0)  # the user knows more than the backend
        limits, limiter = Limits(max_calls, entry.requests_per_minute, entry.tokens_per_minute), None
        if limits != NO_LIMITS:  # models of one server share its pace: they share the account that is limited
            limiter = self._rate_limiters.setdefault(name, RateLimiter(name, clock=self.monotonic, pause=self.pause))
        if self.settings.executor in provided("executors") and provider.can_be_down:  # a recording is read here
            settings = self.settings
            if self._executor is None or self._executor.address != settings.executor_address:
                self.close()
                self._executor = load_provided("executors", settings.executor)(settings.executor_address)
            names = {"base": self.base, "plugins": settings.plugins}
            provider = self._executor.wrap_provider(provider, entry.provider, entry.options, **names)
            name = f"{name} by {self.settings.executor_address}"  # workers may reach servers that this machine cannot
        circuit = self._circuits.get_circuit(name) if provider.can_be_down else None
        return RetryingLLMProvider(
            provider,
            attempts=entry.attempts,
            circuit=circuit,
            rate_limiter=limiter,
            limits=limits,
            server=self.server_profile(entry) if provider.leaves_out else None,
            stop=self.stop,
            sleep=self.pause,
            clock=self.monotonic,
        )

    def server_profile(self, entry: ModelEntry) -> Any:
        """Return the server profile of an entry. Raises `ConfigError` for an unknown server."""
        from lemming.kernel.llm.circuit_breaker import circuit_name

        with self._lock:
            if self._servers is None:
                self._servers = load_provided("server_profiles", next(iter(provided("server_profiles"))))(
                    self.base, self.clock, self.report_problem
                )
            return self._servers.get_profile(circuit_name(entry.provider, entry.options))
