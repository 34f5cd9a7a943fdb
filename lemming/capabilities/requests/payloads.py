"""What payloads of requests say, and those that are about requests: numbers, and which is meant. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.integers import LAST_TICK, clamp_int
from lemming.kernel.base.times.spoken import moment_of
from lemming.kernel.mail.references import named_in
from lemming.kernel.messages import OutboxEntry


def count_in(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number, 0 or more, that a payload says; None where it says none.

    A number of ticks beyond the last tick there can be means no other than that one.
    """
    return clamp_int(payload.get(key), le=LAST_TICK)


def enough_in(payload: Mapping[str, Any], asked: int) -> int:
    """Return how many answers of those `asked` are enough: `join` is "all" (default), "first" or a number."""
    if payload.get("join") == "first":
        return 1
    number = count_in(payload, "join")
    return asked if number is None else max(1, min(number, asked))


def refers_to(reference: object, entry: OutboxEntry) -> bool:
    """Return whether a payload's reference means an entry: its id, or author/tick_id."""
    return any(name in (entry.id, entry.identity) for name in named_in(reference))


def is_for_any(request: OutboxEntry) -> bool:
    """Return whether a request is addressed to several, of whom the first answer is enough."""
    return request.payload.get("join") == "first" and len(request.targets) > 1


def means(reference: object, request: OutboxEntry) -> bool:
    """Return whether a reference means a request, or what was handed on by it."""
    if not (named := named_in(reference)):
        return False
    own = (request.id, request.identity, *named_in(request.payload.get("hands_on")))
    return any(name in own for name in named)


def cancels(entry: OutboxEntry, request: OutboxEntry) -> bool:
    """Return whether an entry says that nobody need answer a request any more."""
    return entry.kind == "status" and means(entry.payload.get("cancels"), request)


def order_of_decision(entry: OutboxEntry) -> tuple[int, bool, str, bool, str]:
    """Return the key that puts decisions about one thing into order: the first of them counts.

    Within a tick that is the one that was made first. One that does not say when it was made comes after
    those that do; of decisions made at the same moment, or at none, a "no" comes first.
    """
    moment = moment_of(entry.created_at)
    return entry.tick, not moment, moment, entry.payload.get("decision") == "approve", entry.identity
