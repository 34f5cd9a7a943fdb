"""Gateway between the engine and channels: receives messages before a tick and delivers entries after a tick.

Delivered are entries with the channel's agent in `payload.target`, and each `response` to an entry of the agent, from
finished ticks and from readable authors.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from lemming.capabilities.channels.channel import Channel, ChannelContext, OutgoingEntry, wrap_provider_errors
from lemming.capabilities.channels.channel_log import ChannelLog, ChannelLogs, Did
from lemming.ext import LemmingError, Problem
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.inboxes.entry_index import EntryIndex, EntryNames
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import is_channel, make_provider

ReportProblem = Callable[[Problem], None]


class ChannelGateway:
    """Gateway of the channels of an organisation that are handled by the engine, or by `lemming channels serve`."""

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "engine"

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._channels: dict[str, Channel] = {}
        self._remaining: dict[str, frozenset[str]] = {}
        self._agents: list[tuple[Agent, Channel]] = []
        self.poll_after_s: float | None = None
        """After how many seconds another look is worth it; None: when something arrives."""
        self.has_received = False
        self.stop: threading.Event | None = None
        """Set when the process is to end: what is under way with a server is then broken off."""

    def receive(
        self, config: Config, survey: Survey, tick: int, clock: Callable[[], datetime], tell: ReportProblem
    ) -> None:
        """Turn arrived messages into entries of `tick`, the next tick."""
        self.has_received, self.poll_after_s = False, None
        if config.org.paused:
            return
        self._agents = [
            agent_channel
            for agent_channel in self.iter_served_channels(config, survey, tell)
            if not agent_channel[0].paused
        ]
        for agent, channel in self._agents:
            context = self.context(agent, config, lambda: tick, clock)
            with isolate_channel(agent, tell):
                received_before = context.log.history.counts["received"]
                self.collect(channel, context, tell)
                self.has_received |= context.log.history.counts["received"] > received_before

    def deliver(
        self, config: Config, survey: Survey, tick: int, clock: Callable[[], datetime], tell: ReportProblem
    ) -> None:
        """Deliver the entries addressed to channels, from ticks before `tick`."""
        for agent, channel in self.iter_served_channels(config, survey, tell):
            if channel.sends and not (config.org.paused or agent.paused):
                context = self.context(agent, config, lambda: tick, clock)
                with isolate_channel(agent, tell):
                    pending = self._org.get_cache(AddressedEntries).find_pending(agent, survey, tick)
                    self._update_next_poll(deliver_due(channel, context, pending, tell) if pending else None)

    def undelivered(self, config: Config, survey: Survey, tick: int) -> frozenset[str]:
        """Return the identities of undelivered entries from ticks before `tick`."""
        addressed = self._org.get_cache(AddressedEntries)
        senders = [agent for agent, channel in self.iter_channels(config, survey, lambda _: None) if channel.sends]
        return frozenset(outgoing.key for agent in senders for outgoing in addressed.find_pending(agent, survey, tick))

    def arrival_folder(self) -> str:
        """Return the folder with arrivals since the last poll, or the agent's name without a folder; "" for none."""
        for agent, channel in self._agents:
            if set(channel.pending_arrivals(self._org.base)) - self._remaining.get(agent.name, frozenset()):
                return channel.watch_folder() or agent.name
        return ""

    def iter_served_channels(
        self, config: Config, survey: Survey, tell: ReportProblem
    ) -> Iterator[tuple[Agent, Channel]]:
        """Yield the agents with channels handled by this gateway. A broken channel is reported."""
        for agent, channel in self.iter_channels(config, survey, tell):
            if channel.seen_to_by == self.seen_to_by:
                yield agent, channel

    def iter_channels(self, config: Config, survey: Survey, tell: ReportProblem) -> Iterator[tuple[Agent, Channel]]:
        """Yield all agents with channels. A broken channel is reported."""
        for agent in sorted(survey.agents.values(), key=lambda agent: agent.name):
            entry = config.models.get(agent.model.key)
            if entry is None or not is_channel(entry.provider, config.org.plugins):
                continue
            key = f"{entry.provider} {entry.options!r}"
            try:
                if key not in self._channels:
                    self._channels[key] = make_channel(entry.provider, entry.options, self._org.base, config)
                channel = self._channels[key]
            except LemmingError as error:
                message, pointer = f"the channel of {agent.name} cannot be used: {error.message}", f"/{agent.model.key}"
                tell(Problem(message, paths.MODELS_FILE, pointer=pointer, hint=error.hint, severity="warning"))
                continue
            yield agent, channel

    def collect(self, channel: Channel, context: ChannelContext, tell: ReportProblem) -> None:
        """Poll a channel, unless the channel is backing off after a failure."""
        traffic, current_time = context.log.history, context.now()
        if traffic.retry_at and current_time < traffic.retry_at:
            self._update_next_poll((traffic.retry_at - current_time).total_seconds())
            return
        try:
            with wrap_provider_errors():
                poll_result = channel.collect(context)
                remaining = frozenset(channel.pending_arrivals(self._org.base))
        except ProviderError as error:
            if context.is_stopping:
                return
            context.log.append("down", context.now(), why=str(error))
            tell(_make_problem(context.agent, "is unreachable", error))
            if (retry_at := context.log.history.retry_at) is not None:
                self._update_next_poll((retry_at - context.now()).total_seconds())
            return
        if traffic.down_since:
            context.log.append("up", context.now())
        # Its own files are no arrivals, or its folder would wake the engine again and again.
        self._remaining[context.agent.name] = remaining
        self._update_next_poll(0.0 if poll_result.waiting else poll_result.poll_after_s)

    def _update_next_poll(self, seconds: float | None) -> None:
        if seconds is not None:
            self.poll_after_s = seconds if self.poll_after_s is None else min(seconds, self.poll_after_s)

    def context(
        self, agent: Agent, config: Config, tick: Callable[[], int], clock: Callable[[], datetime]
    ) -> ChannelContext:
        """Return the context of an agent's channel."""
        provider = config.models[agent.model.key].provider
        syncs = config.org.durability != "off"
        return ChannelContext(self._org, agent, provider, tick, clock, syncs=syncs, stop=self.stop)


def make_channel(provider: str, options: dict[str, Any], base: Path, config: Config) -> Channel:
    """Return a channel with the options of its entry in `config/models.json`. Raises like `make_provider`."""
    channel = make_provider(provider, options, base=base, plugins=config.org.plugins)
    assert isinstance(channel, Channel), "only channel providers are made here"
    return channel


@contextlib.contextmanager
def isolate_channel(agent: Agent, tell: ReportProblem) -> Iterator[None]:
    """Report errors around a channel, such as in its log, without stopping other channels."""
    try:
        with wrap_provider_errors():
            yield
    except ProviderError as error:
        tell(_make_problem(agent, "is unreachable", error))


def _make_problem(agent: Agent, event: str, error: LemmingError) -> Problem:
    message = f"the channel of {agent.name} {event}: {error.message}"
    return Problem(message, paths.channel_log(agent.name), hint=error.hint, severity="warning")


MAX_BATCH = 200


def deliver_due(
    channel: Channel, context: ChannelContext, pending: Sequence[OutgoingEntry], tell: ReportProblem
) -> float | None:
    """Deliver the entries due, and return the seconds until the next delivery, or None.

    A temporary failure of the channel stops the round. Entries with the fewest failures go first.
    """
    log, failed = context.log, context.log.history.failed_deliveries
    attempts = {entry.key: failed[entry.key].attempts if entry.key in failed else 0 for entry in pending}
    for outgoing in sorted(pending, key=lambda entry: attempts[entry.key])[:MAX_BATCH]:
        if context.is_stopping or _wait_s(log, outgoing, context.now()) > 0:
            break
        _try_delivery(channel, context, outgoing, tell)
    remaining = [entry for entry in pending if entry.key not in log.history.settled]
    return min((_wait_s(log, entry, context.now()) for entry in remaining), default=None)


def _wait_s(log: ChannelLog, outgoing: OutgoingEntry, current_time: datetime) -> float:
    """Return the seconds until an entry may be delivered."""
    failed_delivery = log.history.failed_deliveries.get(outgoing.key)
    times = [time for time in (log.history.sends_at, failed_delivery and failed_delivery.next_at) if time]
    return max([0.0, *((time - current_time).total_seconds() for time in times)])


def _try_delivery(channel: Channel, context: ChannelContext, outgoing: OutgoingEntry, tell: ReportProblem) -> None:
    """Try to deliver an entry and log the outcome. An attempt cancelled by a stop is not a failure."""
    try:
        with wrap_provider_errors():
            channel.deliver(context, outgoing)
    except ProviderError as error:
        if context.is_stopping:
            return
        did: Did = "failed" if error.is_retryable else "gave_up"
        tell(_make_problem(context.agent, "could not send an entry", error))
        context.log.append(did, context.now(), entry=outgoing.key, why=str(error))
    else:
        answer_facts = {"answers": outgoing.answered_id} if outgoing.answered_id else {}
        context.log.append("delivered", context.now(), entry=outgoing.key, **answer_facts)


class _AddressedState:
    """Scan state of a channel: the names of each author, and the entries found."""

    def __init__(self) -> None:
        self.names: dict[str, EntryNames] = {}
        self.examined: dict[str, set[EntryName]] = {}
        self.pending: dict[EntryName, OutgoingEntry] = {}


class AddressedEntries:
    """Undelivered entries of an organisation: `org.own(AddressedEntries)`. Not thread-safe."""

    def __init__(self, org: Organisation) -> None:
        self._index, self._logs = org.get_cache(EntryIndex), org.get_cache(ChannelLogs)
        self._states: dict[str, _AddressedState] = {}

    def find_pending(self, agent: Agent, survey: Survey, tick: int) -> Sequence[OutgoingEntry]:
        """Return the undelivered entries of a channel from ticks before `tick`, oldest first."""
        state = self._states.setdefault(agent.name, _AddressedState())
        settled = self._logs.get_log(agent.name).history.settled
        own_names = self._index.list_outbox(agent.name)
        patterns = agent.permissions.read_outboxes
        readable = {*survey.agents, *survey.broken} if "*" in patterns else set(patterns) & {*survey.agents}
        for author in sorted(name for name in readable - {agent.name} if paths.AGENT_NAME.match(name)):
            names = self._index.list_outbox(author)
            is_known = state.names.get(author) is names
            if not is_known and self._scan_author(agent, author, names, tick, state, own_names):
                state.names[author] = names
        for name in [name for name in state.pending if name.identity in settled]:
            del state.pending[name]
        return [state.pending[name] for name in sorted(state.pending)]

    def _scan_author(
        self, agent: Agent, author: str, names: EntryNames, tick: int, state: _AddressedState, own_names: EntryNames
    ) -> bool:
        """Record the new entries of an author. Return True if all entries could be read."""
        is_complete, examined = True, state.examined.get(author, set()).intersection(names.all)
        state.examined[author] = examined
        for name in names.all:
            if name in examined:
                continue
            entry = self._index.read(name) if name.tick < tick else None
            if not isinstance(entry, OutboxEntry):
                is_complete = False
                continue
            examined.add(name)
            answers = self._find_answered(entry, own_names) if entry.kind == "response" else None
            if answers is not None or agent.name in entry.targets:
                state.pending[name] = OutgoingEntry(entry, answers)
        return is_complete

    def _find_answered(self, entry: OutboxEntry, own_names: EntryNames) -> OutboxEntry | None:
        references = parse_references(entry.payload.get("reply_to"))
        if not references:
            return None
        name = next((name for name in own_names.all if name.id in references or name.identity in references), None)
        request_entry = self._index.read(name) if name else None
        return request_entry if isinstance(request_entry, OutboxEntry) else None
