"""What the engine does about channels between two ticks: taking in before one, handing out after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from lemming.capabilities.channels.addressed import Addressed
from lemming.capabilities.channels.channel import Channel, ChannelContext, Outgoing, edge
from lemming.capabilities.channels.log import ChannelLog, Did
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, Problem, ProviderError
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import is_channel, make_provider

Tell = Callable[[Problem], None]


class Channels:
    """The channels of one organisation that are seen to by the engine, or by `lemming serve`."""

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "engine"

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._made: dict[str, Channel] = {}
        self._left: dict[str, frozenset[str]] = {}
        self._agents: list[tuple[Agent, Channel]] = []
        self.again_s: float | None = None
        """After how many seconds another look is worth it; None: when something arrives."""
        self.has_taken_in = False
        self.stop: threading.Event | None = None
        """Set when the process is to end: what is under way with a server is then broken off."""

    def take_in(
        self, config: Config, survey: Survey, tick: int, now: Callable[[], datetime], tell: Tell
    ) -> None:
        """Turn what has arrived into entries of `tick`, which is about to begin."""
        self.has_taken_in, self.again_s = False, None
        if config.org.paused:
            return
        self._agents = [one for one in self.of(config, survey, tell) if not one[0].paused]
        for agent, channel in self._agents:
            context = self.context(agent, config, lambda: tick, now)
            with alone(agent, tell):
                before = context.log.traffic.counts["received"]
                self.collect(channel, context, tell)
                self.has_taken_in |= context.log.traffic.counts["received"] > before

    def hand_out(
        self, config: Config, survey: Survey, tick: int, now: Callable[[], datetime], tell: Tell
    ) -> None:
        """Send out what is addressed to channels, written before `tick`."""
        for agent, channel in self.of(config, survey, tell):
            if channel.sends and not (config.org.paused or agent.paused):
                context = self.context(agent, config, lambda: tick, now)
                with alone(agent, tell):
                    pending = self._org.own(Addressed).pending(agent, survey, tick)
                    self._note_wait(deliver_due(channel, context, pending, tell) if pending else None)

    def waiting(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the identities of entries that are still to go out, of ticks before `tick`."""
        addressed = self._org.own(Addressed)
        sending = [agent for agent, channel in self.all(config, survey, lambda _: None) if channel.sends]
        return frozenset(out.key for agent in sending for out in addressed.pending(agent, survey, tick))

    def has_arrived(self) -> str:
        """Return the folder in which something has arrived since the last look, or else whose channel it came
        by; empty when nothing has.
        """
        for agent, channel in self._agents:
            if set(channel.arrived(self._org.base)) - self._left.get(agent.name, frozenset()):
                return channel.watched() or agent.name
        return ""

    def of(self, config: Config, survey: Survey, tell: Tell) -> Iterator[tuple[Agent, Channel]]:
        """Yield the agents whose channels are seen to here; of one that cannot be made it is told why."""
        for agent, channel in self.all(config, survey, tell):
            if channel.seen_to_by == self.seen_to_by:
                yield agent, channel

    def all(self, config: Config, survey: Survey, tell: Tell) -> Iterator[tuple[Agent, Channel]]:
        """Yield the agents that channels speak for, with these; of one that cannot be made it is told why."""
        for agent in sorted(survey.agents.values(), key=lambda agent: agent.name):
            entry = config.models.get(agent.model.key)
            if entry is None or not is_channel(entry.provider, config.org.plugins):
                continue
            key = f"{entry.provider} {entry.options!r}"
            try:
                if key not in self._made:
                    self._made[key] = make_channel(entry.provider, entry.options, self._org.base, config)
                channel = self._made[key]
            except LemmingError as error:
                tell(_unusable(agent, error))
                continue
            yield agent, channel

    def collect(self, channel: Channel, context: ChannelContext, tell: Tell) -> None:
        """Look at a channel, unless it was out of reach a moment ago."""
        traffic, now = context.log.traffic, context.now()
        if traffic.retry_at and now < traffic.retry_at:
            self._note_wait((traffic.retry_at - now).total_seconds())
            return
        try:
            with edge():
                soon = channel.collect(context)
                left = frozenset(channel.arrived(self._org.base))
        except ProviderError as error:
            if context.is_stopping:
                return
            context.log.note("down", context.now(), why=str(error))
            tell(_out_of_reach(context.agent, error))
            if (retry_at := context.log.traffic.retry_at) is not None:
                self._note_wait((retry_at - context.now()).total_seconds())
            return
        if traffic.down_since:
            context.log.note("up", context.now())
        # What it leaves is no arrival, or its folder would wake the engine again and again.
        self._left[context.agent.name] = left
        self._note_wait(0.0 if soon.waiting else soon.again_s)

    def _note_wait(self, seconds: float | None) -> None:
        if seconds is not None:
            self.again_s = seconds if self.again_s is None else min(seconds, self.again_s)

    def context(
        self, agent: Agent, config: Config, tick: Callable[[], int], now: Callable[[], datetime]
    ) -> ChannelContext:
        """Return the place of an agent's channel in the organisation."""
        provider = config.models[agent.model.key].provider
        syncs = config.org.durability != "off"
        return ChannelContext(self._org, agent, provider, tick, now, syncs=syncs, stop=self.stop)


def make_channel(provider: str, options: dict[str, Any], base: Path, config: Config) -> Channel:
    """Return a channel with the options of its entry in `config/models.json`; raises as `make_provider`."""
    channel = make_provider(provider, options, base=base, plugins=config.org.plugins)
    assert isinstance(channel, Channel), "is_channel says so"
    return channel


@contextlib.contextmanager
def alone(agent: Agent, tell: Tell) -> Iterator[None]:
    """Tell of what goes wrong around one channel, such as in its log; the others go on."""
    try:
        with edge():
            yield
    except ProviderError as error:
        tell(_out_of_reach(agent, error))


def _unusable(agent: Agent, error: LemmingError) -> Problem:
    message = f"the channel of {agent.name} cannot be used: {error.message}"
    return Problem(message, MODELS_FILE, pointer=f"/{agent.model.key}", hint=error.hint, severity="warning")


def _not_sent(agent: Agent, error: LemmingError) -> Problem:
    message = f"what is to go out by the channel of {agent.name} does not: {error.message}"
    return Problem(message, paths.channel_log(agent.name), hint=error.hint, severity="warning")


def _out_of_reach(agent: Agent, error: LemmingError) -> Problem:
    message = f"the channel of {agent.name} is out of reach: {error.message}"
    return Problem(message, paths.channel_log(agent.name), hint=error.hint, severity="warning")


MOST_AT_ONCE = 200


def deliver_due(
    channel: Channel, context: ChannelContext, pending: Sequence[Outgoing], tell: Tell
) -> float | None:
    """Send out what is due now; return after how many seconds the next one is, None when nothing is left.

    A failure that may pass ends it for now; what has failed least often goes first the next time.
    """
    log = context.log
    for outgoing in sorted(pending, key=lambda each: _attempts(log, each))[:MOST_AT_ONCE]:
        if _wait_s(log, outgoing, context.now()) > 0:
            break
        if context.is_stopping:
            break
        _deliver(channel, context, outgoing, tell)
    left = [each for each in pending if each.key not in log.traffic.settled]
    return min((_wait_s(log, each, context.now()) for each in left), default=None)


def _attempts(log: ChannelLog, outgoing: Outgoing) -> int:
    tried = log.traffic.tried.get(outgoing.key)
    return tried.attempts if tried else 0


def _wait_s(log: ChannelLog, outgoing: Outgoing, now: datetime) -> float:
    """Return how many seconds are left until an entry may go out."""
    tried = log.traffic.tried.get(outgoing.key)
    moments = [moment for moment in (log.traffic.sends_at, tried and tried.next_at) if moment]
    return max([0.0, *((moment - now).total_seconds() for moment in moments)])


def _deliver(channel: Channel, context: ChannelContext, outgoing: Outgoing, tell: Tell) -> None:
    """Try one entry and note what came of it; a stop that broke it off is no failure."""
    try:
        with edge():
            channel.deliver(context, outgoing)
    except ProviderError as error:
        if context.is_stopping:
            return
        did: Did = "failed" if error.is_retryable else "gave_up"
        tell(_not_sent(context.agent, error))
        context.log.note(did, context.now(), entry=outgoing.key, why=str(error))
    else:
        about = {"answers": outgoing.asked} if outgoing.asked else {}
        context.log.note("delivered", context.now(), entry=outgoing.key, **about)
