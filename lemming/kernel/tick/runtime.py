"""The engine of an opened organisation: settings, observers and model backends, shared by all turns."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lemming.kernel.access.workspace_trust import WorkspaceTrust
from lemming.kernel.base.blocking_deadline import MonotonicClock, WorkAbandoned
from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, Problem, ProviderError
from lemming.kernel.base.problems import RecentValues
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import retry_while_saving
from lemming.kernel.journal.engine_events import Event, ModelWrote, Observer, ProblemFound, notify_observers
from lemming.kernel.journal.journal_records import ModelStarted
from lemming.kernel.journal.prompt_store import PromptWriter
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config, OrgSettings, hold_settings, reload_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import load_installed_plugins, load_plugins
from lemming.kernel.providers import Reply, Request, provider_names
from lemming.kernel.tick.error_boundary import EngineStopped
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.tick.tick_hooks import previous_reading
from lemming.kernel.tick.turn_threads import TurnLock
from lemming.kernel.tools import get_server_sources, refresh_tools

if TYPE_CHECKING:
    from lemming.kernel.agents import Agent
    from lemming.kernel.base.contract import ToolCall
    from lemming.kernel.journal.journal_file import Journal
    from lemming.kernel.llm.call_batching import CallBatcher
    from lemming.kernel.tick_context import TickContext
    from lemming.kernel.tools import ToolResult
    from lemming.kernel.tools.tool_context import ToolContext
    from lemming.kernel.turn.turn_values import CheckFinding

_SETTINGS_RESTORED = Problem("the settings are readable again and in use from now on", severity="note")


@dataclass
class Runtime:
    """Resources shared by the turns of an engine; thread-safe.

    `stop` is set when the engine is to end: the operator asked, or an error affects every turn. `observers`
    receive a single event at a time, as do the observers that `build_observers` returns for the settings of
    the tick. `before_send`, by agent: records the call as it goes out, alone or in a batch. `before_retry`, by agent:
    a check that may raise before a failed call is made again.
    `batching_capability`: the capability that batches the model calls of a tick. `batcher`: the batcher of
    the current tick. `turn_lock`: only the turn that holds the lock works. `monotonic`: the clock for
    `turn.deadline_s` and model calls. `pause`: replaces waiting in real time.
    """

    org: Organisation
    clock: Clock = field(default_factory=SystemClock)
    observers: tuple[Observer, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    epoch: int = 0
    batching_capability: str = ""
    batcher: CallBatcher | None = None
    journal: Journal | None = None  # of the running tick
    turn_lock: TurnLock = field(default_factory=TurnLock)
    prompts: PromptWriter = field(default_factory=PromptWriter)
    at_end: Callable[[], None] = lambda: None  # work to do once the lock is free
    is_live: bool = True  # False: answers come from a recording, and no deadline passes
    uses_gateways: bool = True  # False: nothing is received or delivered, as in a replay
    is_streaming: bool = False  # True if observers receive answers as they arrive
    chosen: tuple[str, ...] = ()  # agents selected by name, until a tick starts for them
    is_immediate: bool = False  # True for a tick run immediately for pending work, not by the clock
    has_checked_history: bool = False  # True once the files of earlier turns were found on the disk
    last_tick: int = -1  # the last tick it ran
    next_tick: int | None = None  # the counter as this engine, or the last one, left it
    monotonic: MonotonicClock = time.monotonic
    pause: Callable[[float], object] | None = None
    journaled_settings: Set[str] | None = None  # settings files named by the newest journal, once read
    before_send: dict[str, Callable[[], None]] = field(default_factory=dict)
    before_retry: dict[str, Callable[[ProviderError], None]] = field(default_factory=dict)
    build_observers: Callable[[Runtime, Config], list[Observer]] = lambda _, __: []
    _settings_observers: tuple[Observer, ...] = ()
    _config: Config | None = None
    _config_problem: str = ""
    _config_file: str = ""
    _reported: RecentValues = field(default_factory=RecentValues)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def has_observers(self) -> bool:
        """True with at least one observer; without observers no events need to be built."""
        return bool(self.observers or self._settings_observers)

    @property
    def settings(self) -> OrgSettings | None:
        """The organisation's settings as last read, or None before the first read."""
        return self._config.org if self._config else None

    def notify(self, event: Event) -> None:
        """Send an event to all observers."""
        if self.has_observers:
            with self._lock:
                notify_observers(event, (*self.observers, *self._settings_observers))

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    def release_turn_lock(self) -> contextlib.AbstractContextManager[None]:
        """Release the turn lock for the block, so other turns work while this turn waits."""
        return self.turn_lock.waiting

    def load_config(self) -> Config:
        """Reload the settings and import the plugins they name.

        A file being saved is read again after a moment. An unreadable file is reported, and the previous
        settings stay in force. Raises `ConfigError` without previous settings, and `NotTrusted` for
        settings without workspace trust.
        """
        config = self._load_or_reuse_config()
        # Before any import: code without workspace trust must not run, not even to describe itself.
        self.require_trusted(config, None)
        if config.org.plugins:  # else an agent could run code that it wrote
            from lemming.kernel.access.plugin_files import PluginFileGuard

            self.org.get_cache(PluginFileGuard).require_unwritable(config.org.plugins)
        load_plugins(tuple(config.org.plugins))
        # Only an unknown provider is worth scanning every installed package.
        if {entry.provider for entry in config.models.values()} - {*provider_names(config.org.plugins)}:
            load_installed_plugins()
        for problem in refresh_tools(config.org, self.org):
            self.report_problem(_add_hint(problem, "the earlier tools stay in use until the file is fixed"))
        self.backends.settings = config.org
        self._settings_observers = tuple(self.build_observers(self, config))
        return config

    def require_trusted(self, config: Config, agents: Mapping[str, Agent] | None) -> None:
        """Raise `NotTrusted` if a command runs the organisation without full workspace trust."""
        self.org.get_cache(WorkspaceTrust).require(config, agents)

    def _load_or_reuse_config(self) -> Config:
        try:
            config = retry_while_saving(self.base, lambda: reload_config(self.org), lambda _: ())
        except ConfigError as error:
            if self._config is None:
                raise
            if str(error) != self._config_problem:
                self._config_problem = str(error)
                problems = [problem for problem in error.problems if problem.severity == "error"]
                self._config_file = problems[0].file
                for problem in problems:
                    self._emit_problem(_add_hint(problem, "the earlier settings stay in use until the file is fixed"))
            return self._config
        if self._config_problem:
            self._emit_problem(replace(_SETTINGS_RESTORED, file=self._config_file))
        self._config, self._config_problem = config, ""
        return config

    def close(self) -> None:
        """Disconnect from the cluster, if any, and close resources kept open for the organisation."""
        hold_settings(self.org, is_held=False)
        self.backends.close()
        self.org.close()

    def report_problem(self, problem: Problem, agent: str = "") -> None:
        """Report a problem to the log and the observers, once."""
        with self._lock:
            is_new = self._reported.add(problem)
        if is_new:
            self._emit_problem(problem, agent)

    def _emit_problem(self, problem: Problem, agent: str = "") -> None:
        EngineLog(self.base).warning("problem", agent=agent, problem=str(problem))
        self.notify(ProblemFound(agent=agent, problem=problem))

    def now(self) -> str:
        """Return the current time in the format of files."""
        return timestamp(self.clock.now())

    def previous_reading(self, tick: int, ticks: list[int]) -> str:
        """Return the clock reading up to which earlier ticks ran, or an empty text."""
        return previous_reading(self.base, tick, ticks)

    def write_off(self, agent: str, call: int, write_off: WriteOff) -> WriteOff:
        """Return the write-off of a call's reservations."""
        return write_off

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Call an entry's model, batched with other calls in a batching run unless `live`."""
        if live or self.batcher is None:
            return self.complete_live(entry, request)
        return self.batcher.complete(entry, self.backends.adapt_request(entry, request))

    def complete_live(
        self, entry: ModelEntry, request: Request, before_again: Callable[[ProviderError], None] | None = None
    ) -> Reply:
        """Call an entry's model. Before each retry, `before_again` follows the check of the turn's limits."""

        def notify_delta(text: str) -> None:
            self.notify(ModelWrote(agent=request.agent, call=request.step, text=text))

        def run_checks(error: ProviderError) -> None:
            for check in checks:
                check(error)

        on_delta = notify_delta if self.is_streaming else None
        checks = [check for check in (self.before_retry.get(request.agent), before_again) if check]
        return self.backends.complete(entry, request, on_delta, run_checks, self._record_start)

    def record_batched(self, agent: str) -> None:
        """Record the maximum cost of an agent's model call, where limits hold, before its batch is announced."""
        if before_send := self.before_send.get(agent):
            before_send()

    def _record_start(self, request: Request, acts_outside: bool) -> None:
        """Record the start of a call: its maximum cost where limits hold, and the announcement if it may act outside.

        After a kill during the call, the next run counts the cost, and makes an announced call no more. A call waiting
        for its batch or for the rate limits has cost nothing.
        """
        if before_send := self.before_send.pop(request.agent, None):
            before_send()
        if acts_outside and self.journal is not None:
            self.journal.append(ModelStarted(agent=request.agent, call=request.step))
        if (acts_outside or before_send) and self.journal is not None:
            self.journal.sync_agent(request.agent)

    @cached_property
    def backends(self) -> Backends:
        """The model backends of the organisation."""
        stop, monotonic, pause = self.stop, self.monotonic, self.pause
        return Backends(self.base, self.clock, stop, self.report_problem, monotonic=monotonic, pause=pause)

    def scan_servers(self, tick_context: TickContext) -> dict[str, Json]:
        """Return the catalogues of the servers that firing agents may call, by capability."""
        agents = tick_context.survey.agents
        firing = [agents[name] for name in tick_context.plan.order if name in agents]
        is_flushed = tick_context.config.org.durability != "off"
        sources = get_server_sources(self.org)
        return {
            name: source.scan_servers(firing, self.report_problem, sync=is_flushed) for name, source in sources.items()
        }

    def recorded_decision(self, agent: str, index: int, call: ToolCall) -> ToolCall | ToolResult | None:
        """Return the recorded call number `index` or the result of a blocked call; None to decide now."""
        return None

    def find_urgent(self, agent: str, call: int, look: Callable[[], dict[str, str]]) -> Mapping[str, str]:
        """Return the urgent entries for call number `call` of an agent's model: what `look` finds now."""
        return look()

    def call_function(
        self, agent: str, number: int, name: str, ask: Callable[[], CheckFinding | None]
    ) -> CheckFinding | None:
        """Return the finding of check function call `number` in the agent's turn."""
        return ask()

    def call_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a turn's tool call number `index`; errors inside the tool become a failed result.

        Raises `EngineStopped` when the engine is to end and a custom tool does not return.
        """
        from lemming.kernel.tools.tool_call import call_tool

        try:
            return call_tool(call.tool, call.args, context, self.stop)
        except WorkAbandoned as error:
            raise EngineStopped from error


def _add_hint(problem: Problem, hint: str) -> Problem:
    return replace(problem, hint=f"{problem.hint}; {hint}".removeprefix("; "))
