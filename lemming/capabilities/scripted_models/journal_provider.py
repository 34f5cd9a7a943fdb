"""Answers from the journals of an organisation's earlier run, without any model."""

from __future__ import annotations

from pathlib import Path

from lemming.ext import ConfigError
from lemming.journal_tools.tick_records import to_reply
from lemming.kernel.base import paths
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.providers import Backend, Reply, Request


class ReplayProvider(Backend):
    """Answers each call (agent, tick, number in the turn) with the recorded answer and its time.

    `journals` is the folder `logs/ticks` of the recorded organisation, absolute or relative to this organisation's
    folder. The provider opens the folder at the first call. Raises `ConfigError` for a path with another ending.
    """

    keeps_deadline = True
    can_be_down = False
    takes_tools = True
    writes_contract = True

    def __init__(self, *, journals: str, base: Path | None = None) -> None:
        folder = Path((base or Path()) / journals)
        if f"{folder.parent.name}/{folder.name}" != paths.JOURNALS:
            hint = f'set "options": {{"journals": "../recorded/{paths.JOURNALS}"}}'
            raise ConfigError(f'"{journals}" is not the folder {paths.JOURNALS} of an organisation', hint=hint)
        self._journals, self._recorded = journals, folder.parent.parent
        self._tick: int | None = None
        self._answers: dict[tuple[str, int], ModelReplied | ModelFailed] = {}

    def complete(self, request: Request) -> Reply:
        """Return the recorded answer. Raise the recorded failure, or `RequestRejected` without a record.

        A recorded failure is marked as not retryable, because a retry would fail in the same way.
        """
        if request.tick != self._tick:
            records = read_journal(self._recorded, request.tick)
            answers = [record for record in records if isinstance(record, (ModelReplied, ModelFailed))]
            self._answers = {(record.agent, record.call): record for record in answers}
            self._tick = request.tick
        record = self._answers.get((request.agent, request.step))
        if record is None:
            call_description = f"agent {request.agent}, tick {request.tick}, call {request.step}"
            hint = "record more ticks, or use the organisation that was recorded"
            raise RequestRejected(f"no recorded answer: {call_description}", where=self._journals, hint=hint)
        return to_reply(record)
