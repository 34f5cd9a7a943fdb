"""`lemming channels serve`: an HTTP server for HTTP channels, and a poll of each channel every second.

The server writes entries like `lemming send`. Therefore an engine may run at the same time, in this process
or in another.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, ClassVar, Literal, NamedTuple

from lemming.capabilities.channels.channel import Channel, ChannelContext, OutgoingEntry
from lemming.capabilities.channels.channel_gateway import (
    AddressedEntries,
    ChannelGateway,
    ReportProblem,
    deliver_due,
    isolate_channel,
)
from lemming.capabilities.channels.http_api import LOCAL_NAMES, METRICS_TOKEN_ENV, MetricsSource, serve_http
from lemming.capabilities.channels.http_channel import HttpChannel, get_variable
from lemming.commands.command_context import CommandContext, Quiet, Trust, find_running_engine, option
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import one_line, print_json, print_notice, print_warning
from lemming.commands.trust import require_workspace_trust
from lemming.ext import ConfigError, LemmingError, Problem, load_tick
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.clock import Clock, SystemClock
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.base.problems import RecentValues
from lemming.kernel.files.folder_lock import FolderLock, load_lock_holder
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.plugin_registry import load_plugins
from lemming.kernel.tick.turn_threads import get_pool
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


def serve(
    context: CommandContext,
    port: Annotated[int, option("--port PORT", "Port to listen on; 0 picks a free port.", min=0, max=65535)] = PORT,
    host: Annotated[str, option("--host ADDRESS", "Address to listen on.")] = HOST,
    metrics: Annotated[bool, option("--metrics", "Also serve GET /metrics in Prometheus format.")] = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Serve http and mail channels: receive messages and deliver entries.

    The command runs no turns: run an engine as well (`lemming run-forever`), or use `lemming run-forever
    --serve PORT` for both.
    An incoming message is stored as an entry before the sender gets a reply. POST /hooks/AGENT accepts signed
    webhooks,
    POST /ask accepts questions with a token, and GET /requests/ID returns the state of a request. Ctrl-C,
    SIGTERM, SIGQUIT or
    SIGHUP stops the server. Killing the process is safe.

    With --metrics, channels are optional. If LEMMING_METRICS_TOKEN is set, Prometheus must send the token; a
    --host reachable from
    other machines requires the token.

    \b
    Examples:
      lemming channels serve
      lemming channels serve --port 9000 --metrics
      curl -H "Authorization: Bearer $TOKEN" -d '{"text": "How is it going?"}' http://127.0.0.1:8420/ask
    """
    base = context.org
    require_workspace_trust(base, is_trusted=trust, can_ask=sys.stdin.isatty())
    endpoint = _build_metrics_endpoint(host) if metrics else None
    with stop_on_signals(quiet=quiet) as switch:
        with open_channel_server(base.base, port, host=host, stop=switch.stop, metrics=endpoint):
            if find_running_engine(base) is None:
                print_notice("no engine is running: start `lemming run-forever` to run turns", style="yellow")
            switch.stop.wait()
        print_notice("stopped")


def _build_metrics_endpoint(host: str) -> MetricsSource:
    """Return the handler of GET /metrics. Raises `UsageError` if other machines could read metrics without a token."""
    from lemming.telemetry.metrics import CONTENT_TYPE, render_metrics

    if host not in LOCAL_NAMES and not os.environ.get(METRICS_TOKEN_ENV):
        hint = f"set {METRICS_TOKEN_ENV}, or leave out --host"
        raise UsageError(f"{host} is reachable by others, and /metrics is not protected by a token", hint=hint)
    return MetricsSource(CONTENT_TYPE, render_metrics)


@contextmanager
def open_channel_server(
    base: Path, port: int, *, host: str = HOST, stop: Event, metrics: MetricsSource | None = None
) -> Iterator[ServingStatus]:
    """Serve http and mail channels for the length of the block, and print their addresses."""
    with run_channel_server(base, host=host, port=port, stop=stop, report=_print_problem, metrics=metrics) as status:
        if metrics:
            _print_address(None, f"http://{host}:{status.port}/metrics")
        for agent, channel in status.channels:
            _print_address(agent.name, channel.endpoint(host, status.port, agent.name))
        if status.port and host not in LOCAL_NAMES:
            print_warning(f"{host} is reachable from other machines without encryption: use a TLS proxy")
        yield status


def _print_address(agent: str | None, address: str) -> None:
    print_json("listening", {"agent": agent, "place": address})
    print_notice(f"{agent or 'metrics'}: {address}")


def _print_problem(problem: Problem) -> None:
    print_json("problem", problem.as_json())
    print_warning(one_line(str(problem), 600))
