"""Deadlines of requests: the last tick and moment by which answers count, and whether these are past.

Persons are waited for longer where that is said in ticks: those run at once count for none of them. Which
those were is in their journals, for as long as something that a person was given had an end in ticks
(`at_once` of their first record). Rules: docs/requests.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lemming.capabilities.requests.payloads import count_in
from lemming.capabilities.requests.view import Place
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.integers import add_ticks
from lemming.kernel.base.times.spoken import moment_of
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.file import journal_ticks, read_plan
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.org.organisation import Organisation

FIRST_PLACE = -2  # before everybody's entries of a tick
TICKS_REMEMBERED, DEADLINES_REMEMBERED = 4096, 4096
TICKS_TRIED = 16
"""So many ticks are looked for one by one; for more, it is asked first which of them have a journal."""


def last_tick(request: OutboxEntry) -> int | None:
    """Return the last tick whose answer to a request counts; None: any."""
    deadline = count_in(request.payload, "deadline")
    return None if deadline is None else add_ticks(request.tick, deadline)


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


class Patience:
    """Which ticks of an organisation were run at once, as far as that was asked for.

    Each tick is looked at once for a deadline, however long it is and however often somebody looks.
    """

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._was_at_once = lru_cache(TICKS_REMEMBERED)(self._look)
        self._reached: dict[tuple[int, int], tuple[int, int]] = {}

    def last_tick(self, asked_in: int, until: int, *, now: int) -> int:
        """Return the last tick in which a person asked in a tick may answer, before tick `now` runs."""
        key = asked_in, until
        reached, moved = self._reached.get(key, key)
        if reached >= now:  # somebody looks at the past, of which less had passed
            reached, moved = key
        for tick in self._ticks_between(reached, min(moved, now - 1), now):
            if tick > moved:
                break
            moved += self._was_at_once(tick)
        if len(self._reached) >= DEADLINES_REMEMBERED:
            del self._reached[next(iter(self._reached))]
        self._reached[key] = max(asked_in, min(moved, now - 1)), moved
        return moved

    def _ticks_between(self, reached: int, last: int, now: int) -> Sequence[int]:
        """Return the ticks to look at after the one that was reached: of many, those that have a journal."""
        if last - reached <= TICKS_TRIED:
            return range(reached + 1, now) if last > reached else ()
        try:
            return [tick for tick in journal_ticks(self._org.base) if reached < tick < now]
        except CorruptState:  # `verify` says what is wrong with the folder
            return ()

    def _look(self, tick: int) -> bool:
        try:
            plan = read_plan(self._org.base, tick)
        except OF_A_FILE:  # `verify` says what is wrong with it
            return False
        return plan is not None and plan.at_once


def last_tick_for(
    org: Organisation, request: OutboxEntry, *, people: Collection[str], now: int
) -> int | None:
    """Return the last tick whose answer to a request counts; of persons as it has moved on."""
    until = last_tick(request)
    if until is None or not (request.targets and request.targets.issubset(people)):
        return until
    return org.own(Patience).last_tick(request.tick, until, now=now)


def patient(mail: Mail, begun: Begun) -> Begun:
    """Return what was begun with the ends, in ticks, of what persons were asked as they have moved on."""
    patience = mail.org.own(Patience)
    moved = tuple(
        replace(it, until=patience.last_tick(_asked_in(it.request), it.until, now=mail.tick))
        if not it.end and it.until is not None and it.until < mail.tick and it.to in mail.persons
        else it
        for it in begun.asked
    )
    return begun if moved == begun.asked else replace(begun, asked=moved)


def _asked_in(identity: str) -> int:
    return next((name.tick for name in names_of([identity])), 0)
