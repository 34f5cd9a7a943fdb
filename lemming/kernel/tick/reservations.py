"""What is reserved for a turn's calls where limits hold: it counts as spent until it is known better.

    look at the limits < reservation < the call is made < answer

A reservation is in the journal before its call is made. The answer says what the call cost, and what of the
reservations for it is lost: those of attempts that were sent and broke off, be it with the engine. So
however often an engine is killed, what ledgers and journals count is never less than the bill.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.lost_calls import NONE_LOST, Lost, together, unsettled
from lemming.kernel.journal.records import ModelFailed, ModelReplied, ModelReserved
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.llm.credits import most_of, most_tokens_in, worst_dollars
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import Request
from lemming.kernel.turn.moments import TickLimits
from lemming.kernel.turn.places import SpendingLimits
from lemming.kernel.turn.values import TurnInputs


def find_limits(limits: TickLimits | None, journal: Journal, inputs: TurnInputs) -> SpendingLimits | None:
    """Return the limits on a turn's spending: gates, or the budget of its request; None without any."""
    if limits is not None:
        return limits.of(inputs)
    has_budget = inputs.task is not None and inputs.task.has_budget
    return Reservations(journal, inputs) if has_budget else None


class Reservations:
    """The reservations of one turn that no answer has settled, by the number of the call, and what is lost.

    They are the limits of a turn whose request has a budget, where no gate limits spending: nothing but the
    budget is looked at then, and the turn itself does that.
    """

    def __init__(self, journal: Journal, inputs: TurnInputs) -> None:
        agent = inputs.agent.name
        self._journal, self._agent, self._lost = journal, agent, NONE_LOST
        self._open = unsettled(journal.records_of(agent, inputs.turn))
        sent = {call for record in journal.records for name, call in record.sent_calls if name == agent}
        for call in sent & self._open.keys():
            self._open[call].pop()  # it is waited for, and not sent again

    @property
    def reserved(self) -> Lost:
        """What is reserved for calls that have no answer."""
        return together(lost for open_ in self._open.values() for lost in open_)

    @property
    def unsettled(self) -> Lost:
        """What the turn may have spent beside its answers: what is reserved, and what is lost for good."""
        return self._lost.plus(self.reserved)

    def look(
        self, call: int, key: str, entry: ModelEntry, request: Request, *, trust: str = ""
    ) -> Iterator[GateVerdict]:
        """Say nothing of a question: there is no gate."""
        return iter(())

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the most that a call can cost which is about to be made; nothing where no model answers."""
        if entry.provider in NO_MODELS:
            return
        tokens_in = most_tokens_in(request)
        most, dollars = most_of(entry, tokens_in), worst_dollars(entry, tokens_in)
        amounts: dict[str, Any] = {
            "credits": min(float(most.credits), LARGEST_AMOUNT),
            "cost_usd": None if dollars is None else min(dollars, LARGEST_AMOUNT),
            "tokens": most.tokens,
        }
        self._journal.append(ModelReserved(agent=self._agent, call=request.step, key=key, **amounts))
        self._open.setdefault(request.step, []).append(Lost(1, **amounts))

    def release(self, call: int) -> None:
        """Give the latest reservation for a call back: what it cost is known."""
        if open_ := self._open.get(call):
            open_.pop()

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Count what of the reservations for a call is lost, as its record says."""
        self._open.pop(record.call, None)
        self._lost = self._lost.plus(Lost.of(record.lost))

    def lost(self, call: int) -> Lost:
        """Return the lost part of the reservations for a call that has its answer or has failed."""
        return together(self._open.pop(call, ()))
