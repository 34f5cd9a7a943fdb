"""The model backends of one engine, by the lines of `config/models.json`: made when first asked, and kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lemming.kernel.base.clock import Clock
from lemming.kernel.base.deadlines import MonotonicClock
from lemming.kernel.base.errors import DiskError, LemmingError, Problem, ProviderError, Unusable
from lemming.kernel.org.config import Org
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.capabilities import executor_class, servers_class
from lemming.kernel.plugins.shipped import EXECUTORS
from lemming.kernel.providers import LLMProvider, Reply, Request, make_provider

if TYPE_CHECKING:
    from lemming.kernel.llm.circuit import Circuits
    from lemming.kernel.llm.rate_limit import Pace
    from lemming.kernel.llm.retrying import RetryingLLMProvider


class Workers(Protocol):
    """Who makes model calls elsewhere, by the `executor_address` that they were made with."""

    address: str

    def provider(
        self, inner: LLMProvider, name: str, options: dict[str, Any], *, base: Path, plugins: list[str]
    ) -> LLMProvider:
        """Return a provider that asks from elsewhere what `inner`, of `name` and `options`, would ask."""
        ...

    def close(self) -> None:
        """Leave them; calls that are under way are taken back."""
        ...


@dataclass
class Backends:
    """The backends under the settings of the tick under way; safe to use from many threads.

    `stop` is set when the engine is to end; `tell` gets what a person should know. `monotonic` is the clock
    of calls, and `pause` how they wait, unless in real time.
    """

    base: Path
    clock: Clock
    stop: threading.Event
    tell: Callable[[Problem], None]
    settings: Org = field(default_factory=Org)
    monotonic: MonotonicClock = time.monotonic
    pause: Callable[[float], object] | None = None
    _providers: dict[tuple[object, ...], RetryingLLMProvider] = field(default_factory=dict)
    _latest: tuple[ModelEntry, Org, RetryingLLMProvider] | None = None
    _circuits: Circuits | None = None
    _servers: Any = None
    _paces: dict[str, Pace] = field(default_factory=dict)
    _workers: Workers | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def complete(
        self,
        entry: ModelEntry,
        request: Request,
        hear: Callable[[str], object] | None = None,
        again: Callable[[ProviderError], None] | None = None,
    ) -> Reply:
        """Ask the model an entry stands for: retried, within its deadline, through its circuit breaker.

        `hear` gets the answer's text as it comes; `again` looks before a call that failed is made again.
        """
        return self._provider(entry).complete(request, hear, again)

    def bare(self, entry: ModelEntry) -> LLMProvider:
        """Return a new provider of an entry, with nothing around it."""
        plugins = self.settings.plugins
        provider = make_provider(entry.provider, entry.options, base=self.base, plugins=plugins)
        provider.stopping = self.stop
        if self.pause:
            provider.pause = self.pause
        return provider

    def suited(self, entry: ModelEntry, request: Request) -> Request:
        """Return a request without what the entry's server is known not to take."""
        suited: Request = self.server(entry).suited(request)
        return suited

    def ask_once(self, entry: ModelEntry, request: Request) -> Reply:
        """Ask a model an entry stands for at once, and once only; what its server refuses is left out.

        An answer closes the circuit of its backend, for whatever engine runs.
        """
        from lemming.kernel.llm.circuit import Circuits, circuit_name
        from lemming.kernel.llm.retrying import RetryingLLMProvider

        provider = self.bare(entry)
        server = self.server(entry) if provider.leaves_out else None
        once = RetryingLLMProvider(provider, attempts=1, server=server, stop=self.stop)
        reply = once.complete(request)
        Circuits(self.base, self.clock).close(circuit_name(entry.provider, entry.options))
        return reply

    def most_calls(self, entry: ModelEntry) -> int | None:
        """Return how many calls of an entry's model may be under way at once; None: as many as turns.

        Raises a `LemmingError` for an entry that stands for no backend.
        """
        if entry.calls_at_once or self.settings.max_parallel:
            return entry.calls_at_once
        return self._provider_by_key(entry).limits.max_concurrent

    def _pace(self, name: str) -> Pace:
        from lemming.kernel.llm.rate_limit import Pace

        return self._paces.setdefault(name, Pace(name, clock=self.monotonic, pause=self.pause))

    def _calls_at_once(self, entry: ModelEntry, provider: LLMProvider) -> int | None:
        """Return the limit of an entry, or of its backend: who sets `max_parallel` higher means that."""
        most = provider.max_concurrent
        if entry.calls_at_once or most is None or most == 1:
            return entry.calls_at_once or most
        return max(most, self.settings.max_parallel or 0)

    def close(self) -> None:
        """Leave those who make calls elsewhere, if there are any."""
        if self._workers is not None:
            self._workers.close()

    def _provider(self, entry: ModelEntry) -> RetryingLLMProvider:
        latest = self._latest
        if (
            latest and latest[0] is entry and latest[1] is self.settings
        ):  # as mostly, where most have one model
            return latest[2]
        provider = self._provider_by_key(entry)
        self._latest = entry, self.settings, provider
        return provider

    def _provider_by_key(self, entry: ModelEntry) -> RetryingLLMProvider:
        limits = entry.calls_at_once, entry.requests_per_minute, entry.tokens_per_minute
        where = self.settings.executor, self.settings.executor_address, self.settings.max_parallel
        key = entry.provider, repr(entry.options), entry.attempts, limits, where
        if key in self._providers:
            return self._providers[key]
        with self._lock:
            # Looked up again under the lock: two turns that ask at once must share one circuit and one pace.
            if key not in self._providers:
                try:
                    self._providers[key] = self._make(entry)
                except DiskError:
                    raise
                # One line of models.json is wrong: that fails who asks for it, and its fallbacks still stand.
                except LemmingError as error:
                    raise Unusable(error.message, where=error.where, hint=error.hint) from error
            return self._providers[key]

    def _make(self, entry: ModelEntry) -> RetryingLLMProvider:
        from lemming.kernel.llm.circuit import Circuits, circuit_name
        from lemming.kernel.llm.rate_limit import NO_LIMITS, Limits
        from lemming.kernel.llm.retrying import RetryingLLMProvider

        if self._circuits is None:
            self._circuits = Circuits(self.base, self.clock)
        provider = self.bare(entry)
        name = circuit_name(entry.provider, entry.options)
        limits = Limits(
            self._calls_at_once(entry, provider),
            entry.requests_per_minute,
            entry.tokens_per_minute,
        )
        # Models of one server share its pace: they share the account that is limited.
        pace = self._pace(name) if limits != NO_LIMITS else None
        if self.settings.executor in EXECUTORS and provider.can_be_down:  # a recording is read here
            provider = self._by_workers(provider, entry)
            name = f"{name} by {self.settings.executor_address}"  # workers may reach what this machine cannot
        circuit = self._circuits.circuit(name) if provider.can_be_down else None
        return RetryingLLMProvider(
            provider,
            attempts=entry.attempts,
            circuit=circuit,
            pace=pace,
            limits=limits,
            server=self.server(entry) if provider.leaves_out else None,
            stop=self.stop,
            sleep=self.pause,
            clock=self.monotonic,
        )

    def server(self, entry: ModelEntry) -> Any:
        """Return what is known of the server that an entry names; raise `ConfigError` where nobody knows."""
        from lemming.kernel.llm.circuit import circuit_name

        with self._lock:
            if self._servers is None:
                self._servers = servers_class()(self.base, self.clock, self.tell)
            return self._servers.server(circuit_name(entry.provider, entry.options))

    def _by_workers(self, provider: LLMProvider, entry: ModelEntry) -> LLMProvider:
        settings = self.settings
        if self._workers is None or self._workers.address != settings.executor_address:
            self.close()
            made: Workers = executor_class(settings.executor)(settings.executor_address)
            self._workers = made
        return self._workers.provider(
            provider, entry.provider, entry.options, base=self.base, plugins=settings.plugins
        )
