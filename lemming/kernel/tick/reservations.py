"""Reservations for a turn's model calls under limits; each counts as spent until the cost is known.

    check of the limits < reservation < call < answer

A reservation is in the journal before its call is made. The answer records the cost of the call and the
write-off: the reservations of attempts sent but broken off, for example by an engine crash. However often an
engine is killed, ledgers and journals never count less than the bill.
"""

from __future__ import annotations

from typing import Any

from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied, ModelReserved
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff, find_unsettled, sum_write_offs
from lemming.kernel.llm.call_cost import cost_bound, max_dollars, max_input_tokens
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import Request
from lemming.kernel.turn.turn_values import TurnInputs


class Reservations:
    """The unsettled reservations of a turn by call number, and the write-off."""

    def __init__(self, journal: Journal, inputs: TurnInputs) -> None:
        agent = inputs.agent.name
        self._journal, self._agent, self._write_off = journal, agent, NO_WRITE_OFF
        self._open = find_unsettled(journal.find_agent_records(agent, inputs.turn))
        sent = {call for record in journal.records for name, call in record.submitted_calls if name == agent}
        for call in sent & self._open.keys():
            self._open[call].pop()  # a submitted batch is waited for, not sent again

    @property
    def reserved(self) -> WriteOff:
        """Total reserved for calls without an answer."""
        return sum_write_offs(reservation for reservations in self._open.values() for reservation in reservations)

    @property
    def unsettled(self) -> WriteOff:
        """Possible spending of the turn beside its answers: reservations and write-off."""
        return self._write_off.add(self.reserved)

    def reserve(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Reserve the maximum cost of a call; nothing is reserved for a provider without a model."""
        if entry.provider in NO_MODELS:
            return
        tokens_in = max_input_tokens(request)
        max_cost, dollars = (
            cost_bound(entry, tokens_in),
            request.max_cost_usd or entry.max_cost_usd or max_dollars(entry, tokens_in),
        )
        amounts: dict[str, Any] = {
            "credits": min(float(max_cost.credits), MAX_AMOUNT),
            "cost_usd": None if dollars is None else min(dollars, MAX_AMOUNT),
            "tokens": max_cost.tokens,
        }
        self._journal.append(ModelReserved(agent=self._agent, call=request.step, key=key, **amounts))
        self._open.setdefault(request.step, []).append(WriteOff(1, **amounts))

    def release(self, call: int) -> None:
        """Release the latest reservation of a call with a known cost."""
        if reservations := self._open.get(call):
            reservations.pop()

    def settle(self, record: ModelReplied | ModelFailed) -> None:
        """Add the write-off in a call's record, and close its reservations."""
        self._open.pop(record.call, None)
        self._write_off = self._write_off.add(WriteOff.from_json(record.lost))

    def write_off(self, call: int) -> WriteOff:
        """Close the reservations of a finished call, and return their total as a write-off."""
        return sum_write_offs(self._open.pop(call, ()))
