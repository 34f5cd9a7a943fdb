"""Implement `lemming channels serve`: an HTTP server for HTTP channels, and a poll of each channel every second.

The server writes entries like `lemming send`. Therefore an engine may run at the same time, in this process
or in another.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from lemming.capabilities.channels.channel import Channel, ChannelContext, OutgoingEntry
from lemming.capabilities.channels.channel_gateway import ChannelGateway, ReportProblem, deliver_due, isolate_channel
from lemming.capabilities.channels.http_channel import HttpChannel, get_variable
from lemming.capabilities.channels.http_routes import MetricsSource, serve_http
from lemming.capabilities.channels.outgoing_entries import AddressedEntries
from lemming.ext import ConfigError, LemmingError, Problem, load_tick
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.clock import Clock, SystemClock
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.base.recent_values import RecentValues
from lemming.kernel.files.org_lock import FolderLock, load_lock_holder
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.plugin_registry import load_plugins
from lemming.kernel.tick.threads import get_pool
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread

HOST, PORT = "127.0.0.1", 8420
LOCK_FILE = ".lemming/serve"
POLL_S, SHUTDOWN_S = 1.0, 30.0
CurrentTime = Callable[[], datetime]


class ServingStatus(NamedTuple):
    """The served channels with their agents, and the port of the HTTP server (0 without a server)."""

    channels: list[tuple[Agent, Channel]]
    port: int


class ServedChannelGateway(ChannelGateway):
    """The channels not handled by the engine. A separate thread polls each channel.

    Therefore a hanging server delays no other channel. The caller's thread collects the outgoing entries.
    """

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "serve"

    def __init__(self, org: Organisation) -> None:
        super().__init__(org)
        self._running: dict[str, Future[None]] = {}

    def start_polls(self, config: Config, survey: Survey, current_time: CurrentTime, report: ReportProblem) -> None:
        """Start a poll of each idle channel. Raise the error of the channel's previous poll."""
        tick = load_tick(self._org)
        for agent, channel in self.iter_served_channels(config, survey, report):
            if config.org.paused or agent.paused or not self._has_finished(agent.name):
                continue
            context = self.context(agent, config, lambda: load_tick(self._org), current_time)
            pending: Sequence[OutgoingEntry] = ()
            with isolate_channel(agent, report):
                if channel.sends:
                    pending = self._org.get_cache(AddressedEntries).find_pending(agent, survey, tick)
            if pending or channel.can_collect:
                future = self._running[agent.name] = Future[None]()
                get_pool().start(
                    partial(_run_into_future, future, partial(self._serve_channel, channel, context, pending, report))
                )

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the running polls to finish. Raise the error of a poll."""
        wait(self._running.values(), seconds)
        for name in [*self._running]:
            self._has_finished(name)

    def _has_finished(self, name: str) -> bool:
        future = self._running.get(name)
        if future is None:
            return True
        if not future.done():
            return False
        del self._running[name]
        future.result()
        return True

    def _serve_channel(
        self, channel: Channel, context: ChannelContext, pending: Sequence[OutgoingEntry], report: ReportProblem
    ) -> None:
        with isolate_channel(context.agent, report):
            self.collect(channel, context, report)
        with isolate_channel(context.agent, report):
            deliver_due(channel, context, pending, report)


def _run_into_future(future: Future[None], work: Callable[[], None]) -> None:
    """Run work, and store its error in the future for the thread that reads the result."""
    try:
        work()
        future.set_result(None)
    except BaseException as error:  # noqa: BLE001 - carried over to the thread that asks
        future.set_exception(error)


@contextlib.contextmanager
def run_channel_server(
    base: Path,
    *,
    host: str = HOST,
    port: int = PORT,
    stop: threading.Event,
    report: ReportProblem,
    clock: Clock | None = None,
    metrics: MetricsSource | None = None,
) -> Iterator[ServingStatus]:
    """Serve HTTP and mail channels for the duration of the block; with `metrics`, serve metrics too.

    Raises `UsageError` if there is nothing to serve or the port is not available, `ConfigError` for a missing
    environment variable, and `OrgBusy` if another process serves already.
    """
    clock, ended = clock or SystemClock(), threading.Event()
    channels = _load_served_channels(base)
    if not channels and metrics is None:
        hint = "give an agent a model key whose provider is http or mail: docs/channels.md"
        raise UsageError("there is nothing to serve: no agent uses an http or mail channel", hint=hint)
    with _hold_serve_lock(base), contextlib.ExitStack() as stack:
        actual_port = 0
        if metrics or any(isinstance(channel, HttpChannel) for _, channel in channels):
            actual_port = stack.enter_context(
                serve_http(base, host, port, clock=clock, stop=stop, report=report, metrics=metrics)
            )
        work = partial(_poll_loop, Organisation(base), clock, stop, ended, report)
        worker = start_supervised_thread(work, name="lemming-serve", base=base, stopped=ended)
        try:
            yield ServingStatus(channels, actual_port)
        finally:
            ended.set()
            worker.join(SHUTDOWN_S)


def _load_served_channels(base: Path) -> list[tuple[Agent, Channel]]:
    """Return the served channels with their agents. Raise for problems that would appear at the first use."""
    org, problems = Organisation(base), list[Problem]()
    config = load_config(org)
    load_plugins(tuple(config.org.plugins))
    channels = list(
        org.get_cache(ServedChannelGateway).iter_served_channels(config, survey_agents(org), problems.append)
    )
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    for agent, channel in channels:
        for name in channel.variables:
            if not get_variable(name):
                message = f"environment variable {name} of the channel of {agent.name} is not set"
                raise ConfigError(message, where="config/models.json", hint=f"export {name}=...")
    return channels


@contextlib.contextmanager
def _hold_serve_lock(base: Path) -> Iterator[None]:
    try:
        lock = FolderLock(base, LOCK_FILE)
    except OrgBusy as error:
        hint = "run only one of `lemming channels serve` and `lemming run-forever --serve`"
        raise OrgBusy("another process already serves the channels", where=str(base), hint=hint) from error
    lock.write_holder(b"%d" % os.getpid())
    try:
        yield
    finally:
        lock.release()


def is_served(base: Path) -> bool:
    """Return True if a process serves HTTP and mail channels here. Takes no lock."""
    return load_lock_holder(base, LOCK_FILE) is not None


def _poll_loop(
    org: Organisation, clock: Clock, stop: threading.Event, ended: threading.Event, report: ReportProblem
) -> None:
    """Receive and deliver repeatedly until one of the events is set."""
    messages = RecentValues()

    def report_once(problem: Problem) -> None:
        if messages.add(str(problem)):
            report(problem)

    channels = org.get_cache(ServedChannelGateway)
    channels.stop = ended
    while not (stop.is_set() or ended.is_set()):
        try:
            channels.start_polls(load_config(org), survey_agents(org), clock.now, report_once)
        except LemmingError as error:
            report_once(Problem(error.message, error.where, hint=error.hint, code=error.code))
        ended.wait(POLL_S)
    ended.wait()
    channels.wait(SHUTDOWN_S)
