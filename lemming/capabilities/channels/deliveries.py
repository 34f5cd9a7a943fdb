"""Sending out what is addressed to a channel's agent: at least once, with backoff, one channel at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lemming.capabilities.channels.channel import Channel, Outgoing
from lemming.capabilities.channels.context import ChannelContext
from lemming.capabilities.channels.edge import edge
from lemming.capabilities.channels.log import ChannelLog, Did
from lemming.kernel.base.errors import ProviderError

MOST_AT_ONCE = 200


def deliver_due(channel: Channel, context: ChannelContext, pending: Sequence[Outgoing]) -> float | None:
    """Send out what is due now; return after how many seconds the next one is, None when nothing is left.

    A failure that may pass ends it for now; what has failed least often goes first the next time.
    """
    log = context.log
    for outgoing in sorted(pending, key=lambda each: _attempts(log, each))[:MOST_AT_ONCE]:
        if _wait_s(log, outgoing, context.now()) > 0:
            break
        _deliver(channel, context, outgoing)
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


def _deliver(channel: Channel, context: ChannelContext, outgoing: Outgoing) -> None:
    """Try one entry and note what came of it."""
    try:
        with edge():
            channel.deliver(context, outgoing)
    except ProviderError as error:
        did: Did = "failed" if error.is_retryable else "gave_up"
        context.log.note(did, context.now(), entry=outgoing.key, why=str(error))
    else:
        about = {"answers": outgoing.asked} if outgoing.asked else {}
        context.log.note("delivered", context.now(), entry=outgoing.key, **about)
