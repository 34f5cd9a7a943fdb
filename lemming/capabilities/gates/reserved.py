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
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.journal.file import Journal
from lemming.journal.lost import Lost, together, unsettled
from lemming.journal.records import BatchAnnounced, BatchSent, ModelReserved
from lemming.llm.prices import Worst


class Reserved:
    """The reservations of one turn that no answer has settled, by the number of the call."""

    def __init__(self, journal: Journal, agent: str) -> None:
        self._journal, self._agent = journal, agent
        self._open = unsettled(journal.records_of(agent))
        for call in _in_batches(journal, agent) & self._open.keys():
            self._open[call].pop()  # its batch is waited for: it is not sent again

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


def _in_batches(journal: Journal, agent: str) -> set[int]:
    """Return the calls of an agent that went, or were about to go, to a batch."""
    batches = (record for record in journal.records if isinstance(record, (BatchAnnounced, BatchSent)))
    return {item["call"] for record in batches for item in record.items if item["agent"] == agent}
