"""Answers from the journals of an organisation that ran before: no model is needed."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, ProviderError, RequestRejected, recorded_failure
from lemming.kernel.journal.file import read_journal
from lemming.kernel.journal.records import ModelFailed, ModelReplied
from lemming.kernel.providers import Backend, Reply, Request


class ReplayProvider(Backend):
    """Answers each call (agent, tick, number in the turn) as it was answered in the recording, and when.

    `journals` is the folder `logs/ticks` of the recorded organisation, absolute or from this one's folder.
    It is opened when first asked. Raises `ConfigError` for a path that does not end so.
    """

    keeps_deadline = True
    can_be_down = False
    takes_tools = True
    writes_contract = True

    def __init__(self, *, journals: str, base: Path | None = None) -> None:
        folder = Path((base or Path()) / journals)
        if f"{folder.parent.name}/{folder.name}" != paths.JOURNALS:
            hint = f'options: {{"journals": "../recorded/{paths.JOURNALS}"}}'
            raise ConfigError(
                f'"{journals}" is not the folder {paths.JOURNALS} of an organisation', hint=hint
            )
        self._journals, self._recorded = journals, folder.parent.parent
        self._tick: int | None = None
        self._answers: dict[tuple[str, int], ModelReplied | ModelFailed] = {}

    def complete(self, request: Request) -> Reply:
        """Return the recorded answer; raise the recorded failure, or `RequestRejected` when there is none.

        A recorded failure is not to be retried: it would be the same again.
        """
        if request.tick != self._tick:
            records = read_journal(self._recorded, request.tick)
            answers = [record for record in records if isinstance(record, (ModelReplied, ModelFailed))]
            self._answers = {(record.agent, record.call): record for record in answers}
            self._tick = request.tick
        record = self._answers.get((request.agent, request.step))
        if record is None:
            asked = f"agent {request.agent}, tick {request.tick}, call {request.step}"
            hint = "the recording ends here, or this organisation is not the one that was recorded"
            raise RequestRejected(f"no recorded answer: {asked}", where=self._journals, hint=hint)
        return replayed(record)


def replayed(record: ModelReplied | ModelFailed) -> Reply:
    """Return the reply that a journal's record holds; raise the error that it holds instead."""
    if isinstance(record, ModelFailed):
        failure = recorded_failure(record.error, record.message)
        failure.verdicts = record.verdicts
        if isinstance(failure, ProviderError):
            failure.is_retryable = False
        raise failure
    return Reply(
        text=record.text,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cached_tokens=record.cached_tokens,
        finish=record.finish,
        model=record.model,
        at=record.at,
        batched=record.batched,
        key=record.key,
        calls=tuple(record.calls),
        thinking=record.thinking,
        kept=record.kept,
        written_tokens=record.written_tokens or None,
    )
