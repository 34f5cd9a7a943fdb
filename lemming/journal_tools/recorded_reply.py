"""The reply of a model as a journal has it."""

from __future__ import annotations

from lemming.kernel.base.errors import ProviderError, restore_error
from lemming.kernel.journal.journal_records import ModelFailed, ModelReplied
from lemming.kernel.providers import Reply


def to_reply(record: ModelReplied | ModelFailed) -> Reply:
    """Return the reply in a journal record, or raise the error in the record."""
    if isinstance(record, ModelFailed):
        failure = restore_error(record.error, record.message)
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
        acted=record.acted,
    )
