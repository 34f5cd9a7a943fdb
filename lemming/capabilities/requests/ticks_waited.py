"""How long persons are waited for, where that is said in ticks: those run at once count for none of them.

Which ticks those were is in their journals, for as long as something that a person was given had an end in
ticks (`at_once` of their first record). Rules: docs/requests.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lemming.capabilities.requests.deadlines import last_tick
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.file import read_plan
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.org.organisation import Organisation


class Patience:
    """Which ticks of an organisation were run at once, as far as that was asked for."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._at_once: dict[int, bool] = {}

    def last_tick(self, asked_in: int, until: int, *, now: int) -> int:
        """Return the last tick in which a person asked in a tick may answer, before tick `now` runs."""
        tick = asked_in
        while tick < min(until, now - 1):
            tick += 1
            until += self._was_at_once(tick)
        return until

    def _was_at_once(self, tick: int) -> bool:
        if tick not in self._at_once:
            self._at_once[tick] = self._look(tick)
        return self._at_once[tick]

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
