"""An organisation that an engine has opened: the lock, the settings, the backends.

One engine per organisation. The lock is the kernel's and dies with its holder; its file says who that is.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from lemming.kernel.access.trust import Consent
from lemming.kernel.base.clock import Clock, SystemClock, WaitingClock, timestamp
from lemming.kernel.base.deadlines import LeftBehind, MonotonicClock
from lemming.kernel.base.errors import ConfigError, DiskError, NotAnOrg, Problem, ProviderError
from lemming.kernel.base.jsontext import pretty_words
from lemming.kernel.base.recent import RecentValues
from lemming.kernel.files.documents import once_saved
from lemming.kernel.files.fields import Json
from lemming.kernel.files.stamps import is_folder, learn_stamps
from lemming.kernel.journal.events import Event, ModelWrote, Observer, ProblemFound, ignore, tell
from lemming.kernel.journal.lost_calls import Lost
from lemming.kernel.journal.prompts import PromptWriter
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config, Org, hold_settings, read_config
from lemming.kernel.org.format import require_known_format
from lemming.kernel.org.missing_settings import load_recorded_settings
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import capability
from lemming.kernel.plugins.registry import load_installed_plugins, load_plugins
from lemming.kernel.plugins.shipped import RECORDED
from lemming.kernel.providers import Reply, Request, provider_names
from lemming.kernel.tick.backends import Backends
from lemming.kernel.tick.clock_reading import previous_reading
from lemming.kernel.tick.counter import explain_skipped_ticks
from lemming.kernel.tick.edge import Stopped
from lemming.kernel.tick.executors.turn_lock import TurnLock
from lemming.kernel.tick.holder import leaving, locked, next_epoch, parse_tick
from lemming.kernel.tick.turns_not_done import TurnsNotDone
from lemming.kernel.tools import refresh_tools, server_sources

if TYPE_CHECKING:
    from lemming.kernel.agents import Agent
    from lemming.kernel.base.contract import ToolCall
    from lemming.kernel.journal.file import Journal
    from lemming.kernel.journal.report import TickReport
    from lemming.kernel.journal.verdicts import GateVerdict
    from lemming.kernel.tick.carriers import Carriers
    from lemming.kernel.tick.snapshot import Snapshot
    from lemming.kernel.tools import ToolResult
    from lemming.kernel.tools.context import ToolContext
    from lemming.kernel.turn.places import Found, Gathering, Passed

KEPT_TOOLS = "the tools from before hold until it is mended"
KEPT_SETTINGS = "the settings from before hold until it is mended"
_MENDED = Problem("the settings can be read again, and hold from now on", severity="note")


def nobody(_: Runtime, __: Config) -> list[Observer]:
    """Return no observers."""
    return []


@dataclass
class Runtime:
    """What the turns of one engine share; safe to use from many threads.

    `stop` is set when the engine is to end: the operator wants it, or something went wrong that concerns
    every turn. `observers` hear one event at a time, and so do those that `observers_of` names for the
    settings of the tick. `before_again`, by agent: what looks, or raises, before a call that failed is made
    again. `gathered_by`: the capability that has model calls of a tick wait for each other, `gathering` where
    those of the tick under way do. `turn_lock`: of all turns the one that holds it works. `monotonic`: the
    clock of `turn.deadline_s` and of model calls. `pause`: how a model call waits, unless in real time.
    """

    org: Organisation
    clock: Clock = field(default_factory=SystemClock)
    observers: tuple[Observer, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    epoch: int = 0
    gathered_by: str = ""
    gathering: Gathering | None = None
    turn_lock: TurnLock = field(default_factory=TurnLock)
    prompts: PromptWriter = field(default_factory=PromptWriter)
    at_end: Callable[[], None] = lambda: None  # what is left to be done once the lock is free
    is_live: bool = True  # else answers come out of a recording, and no time is over
    sees_to_channels: bool = True  # else nothing is taken in or handed out: the world is a recording
    carriers: Carriers | None = None  # those who see to its channels, if it has any
    watches: bool = False  # whether observers are told of answers as they come
    chosen: tuple[str, ...] = ()  # agents that somebody named, as long as no tick was begun for them
    hurries: bool = False  # whether the tick is run at once, for what was asked, and not by the clock
    has_looked_back: bool = False  # whether earlier turns were found to be on the disk
    ran: int = -1  # the tick that it ran last
    counted: int | None = None  # the tick that is next, as this engine or the one before it left the counter
    monotonic: MonotonicClock = time.monotonic
    pause: Callable[[float], object] | None = None
    # The settings files that the newest journal names, once looked at.
    journaled_settings: Set[str] | None = None
    before_again: dict[str, Callable[[ProviderError], None]] = field(default_factory=dict)
    observers_of: Callable[[Runtime, Config], list[Observer]] = nobody
    _joined: tuple[Observer, ...] = ()
    _config: Config | None = None
    _config_problem: str = ""
    _config_file: str = ""
    _told: RecentValues = field(default_factory=RecentValues)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens; else nobody need put events together."""
        return bool(self.observers or self._joined)

    @property
    def settings(self) -> Org | None:
        """The organisation's settings as they were last read; None before that."""
        return self._config.org if self._config else None

    def notify(self, event: Event) -> None:
        """Tell an event to all observers."""
        if self.is_heard:
            with self._lock:
                tell(event, (*self.observers, *self._joined))

    @property
    def base(self) -> Path:
        """The organisation's folder."""
        return self.org.base

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Let other turns work while this one, which holds the turn lock, waits in the block."""
        return self.turn_lock.waiting

    def load_config(self) -> Config:
        """Read the settings afresh and import the plugins they name.

        A file that somebody is saving is read again in a moment. What cannot be read then is said, and the
        settings from before hold until it can; `ConfigError` is raised where there are none, and `NotTrusted`
        for what nobody has agreed to.
        """
        config = self._readable_config()
        # Before anything is imported: code that nobody agreed to must not run, not even to say what it is.
        self.require_agreed(config, None)
        if config.org.plugins:  # else an agent could run what it wrote
            from lemming.kernel.access.plugin_files import PluginFiles

            self.org.own(PluginFiles).require_unwritable(config.org.plugins)
        load_plugins(tuple(config.org.plugins))
        # Only a provider that nobody else has is worth a look at every installed package.
        if {entry.provider for entry in config.models.values()} - {*provider_names(config.org.plugins)}:
            load_installed_plugins()
        for problem in refresh_tools(config.org, self.org):
            self.tell(replace(problem, hint=f"{problem.hint}; {KEPT_TOOLS}".removeprefix("; ")))
        self.backends.settings, self._joined = config.org, tuple(self.observers_of(self, config))
        return config

    def require_agreed(self, config: Config, agents: Mapping[str, Agent] | None) -> None:
        """Raise `NotTrusted` where a command runs the organisation and nobody has agreed to all of it."""
        self.org.own(Consent).require(config, agents)

    def _readable_config(self) -> Config:
        try:
            config = once_saved(self.base, lambda: read_config(self.org), lambda _: ())
        except ConfigError as error:
            if self._config is None:
                raise
            if str(error) != self._config_problem:
                self._config_problem = str(error)
                problems = [problem for problem in error.problems if problem.severity == "error"]
                self._config_file = problems[0].file
                for problem in problems:
                    self._say(replace(problem, hint=f"{problem.hint}; {KEPT_SETTINGS}".removeprefix("; ")))
            return self._config
        if self._config_problem:
            self._say(replace(_MENDED, file=self._config_file))
        self._config, self._config_problem = config, ""
        return config

    def may_be_quiet(self, config: Config, ticks: list[int]) -> bool:
        """Return False if the newest journal lacks a settings file: a tick without turns then has one too.

        A pause that only quiet ticks have seen must hold in the next process, whatever becomes of its file.
        `ticks` have a journal; before the first one there is nothing to lose.
        """
        if ticks and config.digests and self.journaled_settings is None:
            self.journaled_settings = load_recorded_settings(self.org)
        return not ticks or not config.digests.keys() - (self.journaled_settings or set())

    def close(self) -> None:
        """Leave the cluster, if there is one, and end what is kept running for the organisation."""
        hold_settings(self.org, is_held=False)
        self.backends.close()
        self.org.close()

    def tell(self, problem: Problem, agent: str = "") -> None:
        """Say something that a person should mend, once: in the log, and to whoever watches."""
        with self._lock:
            is_new = self._told.add(problem)
        if is_new:
            self._say(problem, agent)

    def _say(self, problem: Problem, agent: str = "") -> None:
        EngineLog(self.base).warning("problem", agent=agent, problem=str(problem))
        self.notify(ProblemFound(agent=agent, problem=problem))

    def note_counter(self, tick: int) -> None:
        """Tell a person where `tick.json` is ahead of where an engine left it."""
        if problem := explain_skipped_ticks(tick, self.counted):
            self.tell(problem)
        self.counted = tick

    def noted(self, report: TickReport) -> TickReport:
        """Take note of a tick that was run, and of whose turn was not done, and why; return its report."""
        self.ran, self.counted = report.tick, report.tick + 1
        for turn in self._not_done.note(report.tick, report.turns, self.now()):
            if report.is_quiet or turn.error == "ConfigError":  # else the turn's own line says it
                EngineLog(self.base).warning("turn_not_done", **asdict(turn))
        return report

    @cached_property
    def _not_done(self) -> TurnsNotDone:
        return TurnsNotDone(self.base)

    def now(self) -> str:
        """Return the current time as it is written to files."""
        return timestamp(self.clock.now())

    def previous_reading(self, tick: int, ticks: list[int]) -> str:
        """Return the clock's reading up to which the ticks before this one went; empty: none is kept."""
        return previous_reading(self.base, tick, ticks)

    def may_ask(self, look: Callable[[], Iterator[GateVerdict]]) -> Iterator[GateVerdict]:
        """Return what a look before a question is asked gives; it raises what keeps it from being asked."""
        return look()

    def lost(self, agent: str, call: int, found: Lost) -> Lost:
        """Return what of the reservations for a turn's call is lost, as it was `found`."""
        return found

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Ask the model an entry stands for, together with others where calls are gathered, unless `live`."""
        if live or self.gathering is None:
            return self.complete_live(entry, request)
        return self.gathering.complete(entry, self.backends.suited(entry, request))

    def complete_live(
        self, entry: ModelEntry, request: Request, before_again: Callable[[ProviderError], None] | None = None
    ) -> Reply:
        """Ask the model an entry stands for: retried, within its deadline, through its circuit breaker.

        `before_again` is called before each retry, after what looks at the limits of the turn.
        """
        hear = self._hearer(request) if self.watches else None
        look = self.before_again.get(request.agent) if self.before_again else None
        if look and before_again:
            look = partial(_look_twice, look, before_again)
        return self.backends.complete(entry, request, hear, look or before_again)

    def _hearer(self, request: Request) -> Callable[[str], object]:
        """Return who tells observers of the text of an answer as it comes."""
        return lambda text: self.notify(ModelWrote(agent=request.agent, call=request.step, text=text))

    @cached_property
    def backends(self) -> Backends:
        """The model backends of the organisation."""
        stop, monotonic, pause = self.stop, self.monotonic, self.pause
        return Backends(self.base, self.clock, stop, self.tell, monotonic=monotonic, pause=pause)

    def gather(self, journal: Journal) -> None:
        """Have the calls of a tick wait for each other where the run says so.

        What an earlier attempt sent is waited for whatever this one was told: it is paid for. Raises
        `ConfigError` where the capability is not here.
        """
        began = (RECORDED[it.kind][0] for it in journal.records if it.kind in RECORDED)
        by = self.gathered_by or next(began, "")
        self.gathering = None
        if not by:
            return
        from lemming.kernel.turn.places import CallsOfTick

        calls = CallsOfTick(
            make=self.backends.bare,
            live=self.complete_live,
            journal=journal,
            now=self.clock.now,
            notify=self.notify,
            stop=self.stop,
            sends=by == self.gathered_by,
            sleep=self.stop.wait,
        )
        self.gathering = capability(by).gathers(calls)

    def look_at_servers(self, snapshot: Snapshot) -> dict[str, Json]:
        """Return what servers have that those who take a turn may call, by the capability that looks."""
        firing = [
            snapshot.survey.agents[name] for name in snapshot.plan.order if name in snapshot.survey.agents
        ]
        is_flushed = snapshot.config.org.durability != "off"
        sources = server_sources(self.org)
        return {name: it.look(firing, self.tell, sync=is_flushed) for name, it in sources.items()}

    def may_call(
        self, agent: str, index: int, call: ToolCall, look: Callable[[], Passed | ToolResult]
    ) -> Passed | ToolResult:
        """Return what a look at a turn's tool call number `index` gives, before it is made."""
        return look()

    def check(self, agent: str, number: int, name: str, ask: Callable[[], Found | None]) -> Found | None:
        """Return what a function says, the `number`th time that one is asked in the agent's turn."""
        return ask()

    def use_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a turn's tool call number `index`; whatever goes wrong inside is a failed result.

        Raises `Stopped` when the engine is to end and a tool of somebody's own does not.
        """
        from lemming.kernel.tools.calls import call_tool

        try:
            return call_tool(call.tool, call.args, context, self.stop)
        except LeftBehind as error:
            raise Stopped from error


def _look_twice(
    first: Callable[[ProviderError], None], second: Callable[[ProviderError], None], error: ProviderError
) -> None:
    first(error)
    second(error)


@contextlib.contextmanager
def open_org(
    base_path: str | os.PathLike[str],
    *,
    command: str = "",
    clock: Clock | None = None,
    notify: Observer = ignore,
    stop: threading.Event | None = None,
    gathered_by: str = "",
    observers_of: Callable[[Runtime, Config], list[Observer]] = nobody,
) -> Iterator[Runtime]:
    """Hold an organisation's lock for the length of the block.

    Raises `NotAnOrg` when the folder has no `agents/`, `ConfigError` for a format that only a newer version
    knows, and `OrgBusy` that names the engine that holds it.
    """
    org = Organisation.at(base_path)
    base = org.base
    if not is_folder(f"{base}/agents"):
        raise NotAnOrg(
            "there is no agents/ folder here", where=str(base), hint="make one with `lemming init`"
        )
    require_known_format(org)
    clock = clock or SystemClock()
    lock = locked(base)
    epoch, left = next_epoch(lock), parse_tick(lock.read())
    try:
        holder: dict[str, str | int] = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": timestamp(clock.now()),
            "command": command,
            "epoch": epoch,
        }
        lock.describe(pretty_words(holder))
        # The lock's file is at hand, on the device of all the others, and nobody goes by its stamps.
        learn_stamps(lock.restamp)
        observers = () if notify is ignore else (notify,)
        opened = Runtime(
            org, clock, observers, stop or threading.Event(), epoch, gathered_by, observers_of=observers_of
        )
        opened.counted = left
        if isinstance(clock, WaitingClock):
            opened.monotonic, opened.pause = clock.monotonic, clock.pause
        hold_settings(org, is_held=True)
        with contextlib.closing(opened) as runtime:
            yield runtime
    finally:
        try:
            with contextlib.suppress(DiskError):  # a full disk: the next holder is told of this one instead
                lock.describe(leaving(org, epoch), is_leaving=True)
        finally:
            lock.release()
