"""Deadlines of requests: the last tick and moment by which answers count, whether these are past. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.requests.payloads import count_in
from lemming.capabilities.requests.view import Place
from lemming.kernel.base.times.spoken import moment_of
from lemming.kernel.messages import OutboxEntry

FIRST_PLACE = -2  # before everybody's entries of a tick


def last_tick(request: OutboxEntry) -> int | None:
    """Return the last tick whose answer to a request counts; None: any."""
    deadline = count_in(request.payload, "deadline")
    return None if deadline is None else request.tick + deadline


def not_after_in(payload: Mapping[str, Any]) -> str:
    """Return the moment after which no answer counts, as a payload says it; empty where it says none."""
    return moment_of(payload.get("not_after"))


def expiry(until: int | None) -> Place | None:
    """Return where a request expires whose last tick this is: before all that is written in the next one."""
    return None if until is None else (until + 1, FIRST_PLACE, 0, "")


def is_past(until: int | None, not_after: str, tick: int, at: str) -> bool:
    """Return whether the time for an answer is over in a tick with this reading of the clock."""
    return (until is not None and tick > until) or bool(not_after and at > not_after)


def is_in_time(answer: OutboxEntry, until: int | None, not_after: str, at: str) -> bool:
    """Return whether an answer was written in time; one that does not say when was written `at`."""
    if until is not None and answer.tick > until:
        return False
    return not not_after or (moment_of(answer.created_at) or at) <= not_after
