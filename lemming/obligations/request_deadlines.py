"""Deadlines of requests: the last tick and the last time in which answers count.

Deadlines in ticks are extended for persons: burst ticks do not count. The journals record the burst ticks (`at_once` of
the first record) as long as a person has an open request with a deadline in ticks. Rules: docs/requests.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.journal_file import journal_ticks, load_tick_started
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.messages import OutboxEntry, parse_identities
from lemming.kernel.obligations.request_payloads import get_last_tick
from lemming.kernel.org.organisation import Organisation

FIRST_PLACE = -2  # before all entries of a tick
TICKS_REMEMBERED, DEADLINES_REMEMBERED = 4096, 4096
MAX_TICKS_PROBED = 16
"""Maximum ticks searched one by one; beyond that, ticks without a journal are skipped first."""

Position = tuple[int, int, int, str]
"""Position in the order of all entries: tick, rank of the author, number, id."""


def expiry_position(until: int | None) -> Position | None:
    """Return the position at which a request expires: before all entries of the tick after `until`."""
    return None if until is None else (until + 1, FIRST_PLACE, 0, "")


def is_expired(until: int | None, not_after: str, tick: int, at: str) -> bool:
    """Return True if the deadline for an answer has passed in tick `tick` at time `at`."""
    return (until is not None and tick > until) or bool(not_after and at > not_after)


def is_in_time(answer: OutboxEntry, until: int | None, not_after: str, at: str) -> bool:
    """Return True if an answer was written in time. An answer without a time counts as written at `at`."""
    if until is not None and answer.tick > until:
        return False
    return not not_after or (normalize_moment(answer.created_at) or at) <= not_after


class DeadlineExtensions:
    """Deadline extensions: the burst ticks of an organisation, loaded as needed.

    Each tick is loaded once per deadline, no matter how far away the deadline is or how often a reader asks.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._was_at_once = lru_cache(TICKS_REMEMBERED)(self._is_burst_tick)
        self._reached: dict[tuple[int, int], tuple[int, int]] = {}

    def extend_last_tick(self, request_tick: int, until: int, *, current_tick: int) -> int:
        """Return the last tick for a person's answer to a request, before tick `current_tick` runs."""
        key = request_tick, until
        checked, extended = self._reached.get(key, key)
        if checked >= current_tick:  # a view of the past, when less time had passed
            checked, extended = key
        for tick in self._ticks_between(checked, min(extended, current_tick - 1), current_tick):
            if tick > extended:
                break
            extended += self._was_at_once(tick)
        if len(self._reached) >= DEADLINES_REMEMBERED:
            del self._reached[next(iter(self._reached))]
        self._reached[key] = max(request_tick, min(extended, current_tick - 1)), extended
        return extended

    def _ticks_between(self, checked: int, last: int, current_tick: int) -> Sequence[int]:
        """Return the ticks to check after `reached`; of a long range, only ticks with a journal."""
        if last - checked <= MAX_TICKS_PROBED:
            return range(checked + 1, current_tick) if last > checked else ()
        try:
            return [tick for tick in journal_ticks(self._org.base) if checked < tick < current_tick]
        except CorruptState:  # `verify` reports the problem in the folder
            return ()

    def _is_burst_tick(self, tick: int) -> bool:
        try:
            started = load_tick_started(self._org.base, tick)
        except FILE_ERRORS:  # `verify` reports the problem
            return False
        return started is not None and started.at_once


def get_extended_last_tick(
    org: Organisation, request: OutboxEntry, *, people: Collection[str], current_tick: int
) -> int | None:
    """Return the last tick in which an answer to a request counts, with the extension for persons."""
    until = get_last_tick(request)
    if until is None or not (request.targets and request.targets.issubset(people)):
        return until
    return org.get_cache(DeadlineExtensions).extend_last_tick(request.tick, until, current_tick=current_tick)


def extend_deadlines(mail: MailView, open_request: OpenRequest) -> OpenRequest:
    """Return an open request with the tick deadlines of persons extended by the burst ticks."""
    extensions = mail.org.get_cache(DeadlineExtensions)

    def extend(sub_request: SubRequest) -> SubRequest:
        until = sub_request.until
        if sub_request.end or until is None or until >= mail.tick or sub_request.to not in mail.persons:
            return sub_request
        asked_in = next((name.tick for name in parse_identities([sub_request.request])), 0)
        return replace(sub_request, until=extensions.extend_last_tick(asked_in, until, current_tick=mail.tick))

    extended = tuple(map(extend, open_request.asked))
    return open_request if extended == open_request.asked else replace(open_request, asked=extended)
