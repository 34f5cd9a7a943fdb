"""What a request waits for: how long, and which entries answer or cancel it. Rules: docs/requests.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.base.times.spoken import moment_of
from lemming.mail.references import named_in
from lemming.messages import OutboxEntry


def count_in(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number, 0 or more, that a payload says; None where it says none."""
    value = payload.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def last_tick(request: OutboxEntry) -> int | None:
    """Return the last tick whose answer to a request counts; None: any."""
    deadline = count_in(request.payload, "deadline")
    return None if deadline is None else request.tick + deadline


def not_after_in(payload: Mapping[str, Any]) -> str:
    """Return the moment after which no answer counts, as a payload says it; empty where it says none."""
    return moment_of(payload.get("not_after"))


def is_past(until: int | None, not_after: str, tick: int, at: str) -> bool:
    """Return whether the time for an answer is over in a tick with this reading of the clock."""
    return (until is not None and tick > until) or bool(not_after and at > not_after)


def is_in_time(answer: OutboxEntry, until: int | None, not_after: str, at: str) -> bool:
    """Return whether an answer was written in time; one that does not say when was written `at`."""
    if until is not None and answer.tick > until:
        return False
    return not not_after or (moment_of(answer.created_at) or at) <= not_after


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
