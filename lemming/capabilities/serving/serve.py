"""What `lemming serve` does: an HTTP server for http channels, and a look at each channel every second.

It writes entries as `lemming send` does, so an engine may run beside it, in this process or in another.
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

from lemming.capabilities.background.threads import keep_alive
from lemming.capabilities.channels.addressed import Addressed
from lemming.capabilities.channels.between import Channels, Tell, alone, deliver_due
from lemming.capabilities.channels.channel import Channel, ChannelContext, Outgoing
from lemming.capabilities.channels.http import HttpChannel, value_of
from lemming.capabilities.serving.http_server import Metrics, listening
from lemming.kernel.agents import Survey, survey_agents
from lemming.kernel.base.clock import Clock, SystemClock
from lemming.kernel.base.errors import ConfigError, LemmingError, OrgBusy, Problem, UsageError
from lemming.kernel.base.recent import RecentValues
from lemming.kernel.files.lock import FolderLock, description
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.registry import load_plugins
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.executors.pool import pool

HOST, PORT = "127.0.0.1", 8420
LOCK_FILE = ".lemming/serve"
LOOK_S, ENDS_WITHIN_S = 1.0, 30.0
Now = Callable[[], datetime]


class Served(NamedTuple):
    """What is seen to: agents with their channels, and the port on which web ones listen (0: none)."""

    channels: list[tuple[Agent, Channel]]
    port: int


class ServedChannels(Channels):
    """The channels that are not the engine's. Each is looked at by a thread of its own.

    So one whose server hangs keeps no other waiting. What is to go out is found by the caller's thread.
    """

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "serve"

    def __init__(self, org: Organisation) -> None:
        super().__init__(org)
        self._under_way: dict[str, Future[None]] = {}

    def look(self, config: Config, survey: Survey, now: Now, tell: Tell) -> None:
        """Begin a look at each channel whose last one is over; raise what went wrong in that one."""
        tick = load_tick(self._org)
        for agent, channel in self.of(config, survey, tell):
            if config.org.paused or agent.paused or not self._is_over(agent.name):
                continue
            context = self.context(agent, config, lambda: load_tick(self._org), now)
            pending: Sequence[Outgoing] = ()
            with alone(agent, tell):
                if channel.sends:
                    pending = self._org.own(Addressed).pending(agent, survey, tick)
            if pending or channel.can_collect:
                done = self._under_way[agent.name] = Future[None]()
                pool().start(
                    partial(_settle, done, partial(self._serve_channel, channel, context, pending, tell))
                )

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the looks under way are over; raise what went wrong in one."""
        wait(self._under_way.values(), seconds)
        for name in [*self._under_way]:
            self._is_over(name)

    def _is_over(self, name: str) -> bool:
        done = self._under_way.get(name)
        if done is None:
            return True
        if not done.done():
            return False
        del self._under_way[name]
        done.result()
        return True

    def _serve_channel(
        self, channel: Channel, context: ChannelContext, pending: Sequence[Outgoing], tell: Tell
    ) -> None:
        with alone(context.agent, tell):
            self.collect(channel, context, tell)
        with alone(context.agent, tell):
            deliver_due(channel, context, pending, tell)


def _settle(done: Future[None], work: Callable[[], None]) -> None:
    """Do work, and leave what it raises to whoever looks at its end."""
    try:
        work()
        done.set_result(None)
    except BaseException as error:  # noqa: BLE001 - carried over to the thread that asks
        done.set_exception(error)


@contextlib.contextmanager
def serving(
    base: Path,
    *,
    host: str = HOST,
    port: int = PORT,
    stop: threading.Event,
    tell: Tell,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
) -> Iterator[Served]:
    """See to http and mail channels for the length of the block; with `metrics`, tell of them too.

    Raises `UsageError` where there is nothing to do or the port cannot be had, `ConfigError` for an
    environment variable that is not set, and `OrgBusy` when another process does it already.
    """
    clock, ended = clock or SystemClock(), threading.Event()
    found = _channels_to_serve(base)
    if not found and metrics is None:
        hint = "give an agent a model key whose provider is http or mail: docs/channels.md"
        raise UsageError("there is nothing to serve: no agent is an http or mail channel", hint=hint)
    with _held(base), contextlib.ExitStack() as stack:
        heard = 0
        if metrics or any(isinstance(channel, HttpChannel) for _, channel in found):
            heard = stack.enter_context(
                listening(base, host, port, clock=clock, stop=stop, tell=tell, metrics=metrics)
            )
        work = partial(_work, Organisation(base), clock, stop, ended, tell)
        worker = keep_alive(work, name="lemming-serve", base=base, over=ended)
        try:
            yield Served(found, heard)
        finally:
            ended.set()
            worker.join(ENDS_WITHIN_S)


def _channels_to_serve(base: Path) -> list[tuple[Agent, Channel]]:
    """Return what is to be seen to; raise for what would fail at its first use."""
    org, problems = Organisation(base), list[Problem]()
    config = load_config(org)
    load_plugins(tuple(config.org.plugins))
    found = list(org.own(ServedChannels).of(config, survey_agents(org), problems.append))
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    for agent, channel in found:
        for name in channel.variables:
            if not value_of(name):
                message = (
                    f"the channel of {agent.name} needs the environment variable {name}, which is not set"
                )
                raise ConfigError(message, where="config/models.json", hint=f"export {name}=...")
    return found


@contextlib.contextmanager
def _held(base: Path) -> Iterator[None]:
    try:
        lock = FolderLock(base, LOCK_FILE)
    except OrgBusy as error:
        hint = "one process sees to http and mail: `lemming serve`, or `lemming run-forever --serve`"
        raise OrgBusy("the channels here are served already", where=str(base), hint=hint) from error
    lock.describe(b"%d" % os.getpid())
    try:
        yield
    finally:
        lock.release()


def is_served(base: Path) -> bool:
    """Return whether a process sees to http and mail channels here. Takes no lock."""
    return description(base, LOCK_FILE) is not None


def _work(org: Organisation, clock: Clock, stop: threading.Event, ended: threading.Event, tell: Tell) -> None:
    """Take in and hand out, again and again, until one of the events is set."""
    messages = RecentValues()

    def report_once(problem: Problem) -> None:
        if messages.add(str(problem)):
            tell(problem)

    channels = org.own(ServedChannels)
    channels.stop = ended
    while not (stop.is_set() or ended.is_set()):
        try:
            channels.look(load_config(org), survey_agents(org), clock.now, report_once)
        except LemmingError as error:
            report_once(Problem(error.message, error.where, hint=error.hint, code=error.code))
        ended.wait(LOOK_S)
    ended.wait()
    channels.wait(ENDS_WITHIN_S)


def look(org: Organisation, now: Now, tell: Tell) -> None:
    """Look once at everything that is not the engine's, and wait for the end: what arrived, what goes out."""
    channels = org.own(ServedChannels)
    channels.look(load_config(org), survey_agents(org), now, tell)
    channels.wait()
