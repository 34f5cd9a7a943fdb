"""What the steps of a run have asked of others, and what came of it. Pure.

A request is told apart by its `payload.step`. A gate may have a person asked first: then the request is
not written yet, and a result says what the person decided about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.answers.fitting import FittedAnswer
from lemming.capabilities.plans.call_results import CallResults, is_deferred, is_written
from lemming.capabilities.plans.format import Member
from lemming.capabilities.plans.outcomes import of_approving, of_asking

Json = dict[str, Any]


class StepRequests:
    """The requests of one turn's run: those of earlier turns, from the turn's values, and those it makes."""

    def __init__(self, values: Mapping[str, Any], results: CallResults) -> None:
        self._results = results
        self._now: set[str] = set()
        self._before = {
            payload["step"]: asked
            for asked in values.get("asked") or ()
            if isinstance(payload := asked.get("payload"), dict) and isinstance(payload.get("step"), str)
        }

    def add(self, tag: str) -> None:
        """Note that this turn asks."""
        self._now.add(tag)

    def find_open(self) -> list[Json]:
        """Return the requests of earlier turns that have no answer."""
        return [asked for asked in self._before.values() if not asked.get("end")]

    def is_postponed(self, tag: str) -> bool:
        """Return True for what is to be asked again: persons had other things to approve first."""
        result = self._result(tag)
        return result is not None and is_deferred(result)

    def answer(self, member: Member, tag: str, who: str) -> FittedAnswer | None:
        """Return the outcome of a request; None while it is open."""
        if asked := self._before.get(tag):
            return of_asking(member, asked, who) if asked.get("end") else None
        if tag in self._now:
            return None
        if result := self._result(tag):
            return None if is_written(result) else of_approving(member, result)
        why = "; ".join(self._results.of_entries()) or f"nothing is asked of {who} any more"
        return FittedAnswer(None, why)

    def _result(self, tag: str) -> Mapping[str, Any] | None:
        """Return a person's decision about a request that was to be approved first."""
        return None if tag in self._now or tag in self._before else self._results.of_asking(tag)
