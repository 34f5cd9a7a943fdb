"""Read payloads of requests and of entries about requests: numbers and references. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.kernel.base.integers import LAST_TICK, clamp_int
from lemming.kernel.base.times.parse_times import normalize_moment
from lemming.kernel.inboxes.payload_references import parse_references
from lemming.kernel.messages import OutboxEntry


def get_count(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a non-negative whole number from a payload, or None without a valid number.

    A number of ticks beyond the last possible tick is clamped to the last tick.
    """
    return clamp_int(payload.get(key), le=LAST_TICK)


def required_answers(payload: Mapping[str, Any], total: int) -> int:
    """Return the number of answers required from `total` targets, by `join`:

    "all" (default), "first" or a number.
    """
    if payload.get("join") == "first":
        return 1
    number = get_count(payload, "join")
    return total if number is None else max(1, min(number, total))


def references_entry(reference: object, entry: OutboxEntry) -> bool:
    """Return True if a reference in a payload names an entry, by id or by author/tick_id."""
    return any(name in (entry.id, entry.identity) for name in parse_references(reference))


def accepts_first_answer(request: OutboxEntry) -> bool:
    """Return True for a request with several targets of which the first answer is enough."""
    return request.payload.get("join") == "first" and len(request.targets) > 1


def refers_to_request(reference: object, request: OutboxEntry) -> bool:
    """Return True if a reference names a request or the request handed off by this entry."""
    if not (references := parse_references(reference)):
        return False
    request_names = (request.id, request.identity, *parse_references(request.payload.get("hands_on")))
    return any(name in request_names for name in references)


def is_cancellation(entry: OutboxEntry, request: OutboxEntry) -> bool:
    """Return True if an entry cancels a request."""
    return entry.kind == "status" and refers_to_request(entry.payload.get("cancels"), request)


def decision_sort_key(entry: OutboxEntry) -> tuple[int, bool, str, bool, str]:
    """Return the sort key for decisions about the same subject: the first decision counts.

    Within a tick, the earliest decision comes first, and decisions without a time come last. Among decisions
    with the same time or without a time, a rejection comes first.
    """
    decided_at = normalize_moment(entry.created_at)
    return entry.tick, not decided_at, decided_at, entry.payload.get("decision") == "approve", entry.identity
