"""Error boundary of a turn: convert errors from foreign text into a failed turn of the agent.

Entries, replies, memories, ledgers and hand-written files come from other authors, and no list of their
possible defects is complete. Disk errors, a requested stop and observer errors are not caused by a text. Such
errors end the run, and the next run resumes the tick from its journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from traceback import walk_tb
from typing import TypeVar

from lemming.kernel.base.errors import DiskError, LemmingError, TurnBroke, error_name
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.files.disk_errors import FILE_ERRORS, is_about_one_file
from lemming.kernel.journal.engine_events import is_observer_error
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.plugins.capability_errors import HookError, Step, find_capability_at_fault, locate_frame
from lemming.kernel.plugins.provider_errors import describe_exception

T = TypeVar("T")

_MAX_CHARS = 500


class EngineStopped(Exception):
    """Raised when the operator asked the engine to stop. The next run resumes the tick."""


def isolate(action: Callable[[], T]) -> T | Exception:
    """Return the result of `action`, or the exception if it concerns only this agent.

    Raises DiskError, EngineStopped, MemoryError and observer errors, which end the run.
    """
    try:
        return action()
    except Exception as error:
        ends_run = isinstance(error, (DiskError, EngineStopped, MemoryError)) or is_observer_error(error)
        if ends_run or (isinstance(error, OSError) and not is_about_one_file(error)):
            raise
        return error
    except SystemExit as error:  # of a library that a capability calls: no reason to end the engine
        if blamed := find_capability_at_fault(error):
            return HookError(f"SystemExit: {error}, in the capability {blamed}")
        raise


def to_skip_reason(error: Exception) -> TurnReason:
    """Return the reason a turn failed to start."""
    turn_error = error if isinstance(error, LemmingError) else to_turn_error(error)
    return TurnReason("failing", str(turn_error), error_name(turn_error))


def to_turn_error(error: Exception) -> TurnBroke:
    """Return the error that broke the turn. Re-raises errors that end the run."""
    if isinstance(error, FILE_ERRORS):
        return TurnBroke(error.message, where=error.where, hint=error.hint)
    if isinstance(error, LemmingError):
        raise error
    hint = "fix the capability, or remove its block; the other agents continue"
    if isinstance(error, HookError):  # the message has the place
        return TurnBroke(redact_untrusted(str(error)[:_MAX_CHARS]), hint=hint)
    text = redact_untrusted(describe_exception(error)[:_MAX_CHARS])
    if blamed := find_capability_at_fault(error):
        return TurnBroke(f"{text}, in the capability {blamed}", hint=hint)
    steps = [*walk_tb(error.__traceback__)]
    files = ", ".join(dict.fromkeys(_entry_files_in_frames(steps)))
    while_reading = f", while the turn read {files}" if files else ""
    message = f"{text}, at {locate_frame(steps[-1])}{while_reading}"
    return TurnBroke(message, hint="fix the file that the turn read, or move it away; the other agents continue")


def _entry_files_in_frames(steps: list[Step]) -> Iterator[str]:
    """Yield the files of entries in local variables of the innermost frame that has entries."""
    from lemming.kernel.messages import EntryName, OutboxEntry

    for frame, _ in reversed(steps):
        files = [entry.file for entry in frame.f_locals.values() if isinstance(entry, OutboxEntry | EntryName)]
        if files:
            yield from files
            return
