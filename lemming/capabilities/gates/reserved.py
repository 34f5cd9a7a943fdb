"""What is reserved for a turn's calls where limits hold: it counts as spent until it is known better.

    look at the limits < reservation < the call is made < answer

A reservation is in the journal before its call is made. The answer says what the call cost, and what of the
reservations for it is lost: those of attempts that were sent and broke off, be it with the engine. So
however often an engine is killed, what ledgers and journals count is never less than the bill.
"""

from __future__ import annotations

from typing import Any

from lemming.capabilities.gates.limit import Amount
from lemming.capabilities.gates.spent_before import amount_lost
from lemming.capabilities.money.prices import Worst
from lemming.kernel.files.fitting import LARGEST_AMOUNT
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.lost_calls import Lost, together, unsettled
from lemming.kernel.journal.records import ModelReserved
from lemming.kernel.turn.values import TurnInputs


class Reserved:
    """The reservations of one turn that no answer has settled, by the number of the call."""

    def __init__(self, journal: Journal, inputs: TurnInputs) -> None:
        self._journal, self._agent = journal, inputs.agent.name
        agent = self._agent
        self._open = unsettled(journal.records_of(agent, inputs.turn))
        sent = {call for record in journal.records for name, call in record.sent_calls if name == agent}
        for call in sent & self._open.keys():
            self._open[call].pop()  # it is waited for, and not sent again

    @property
    def amount(self) -> Amount:
        """What is reserved."""
        return amount_lost(together(lost for open_ in self._open.values() for lost in open_))

    def reserve(self, call: int, key: str, worst: Worst) -> None:
        """Reserve the most that a call can cost which is about to be made."""
        credits = min(float(worst.credits), LARGEST_AMOUNT)
        dollars = None if worst.dollars is None else min(float(worst.dollars), LARGEST_AMOUNT)
        most: dict[str, Any] = {"credits": credits, "cost_usd": dollars, "tokens": worst.tokens}
        self._journal.append(ModelReserved(agent=self._agent, call=call, key=key, **most))
        self._open.setdefault(call, []).append(Lost(1, **most))

    def release(self, call: int) -> None:
        """Give the latest reservation for a call back: what it cost is known."""
        if open_ := self._open.get(call):
            open_.pop()

    def settle(self, call: int) -> Lost:
        """Return what of the reservations for a call is lost, now that it has its answer or has failed."""
        return together(self._open.pop(call, ()))
