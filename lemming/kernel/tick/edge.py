"""The edge of a turn: whatever a text leads to that a turn reads becomes this agent's failed turn.

Entries, replies, memories, ledgers and files by hand are written by others, and no list of what can be wrong
with them is complete. What is raised on says nothing about a text: the disk, an end that was asked for, an
observer. That ends the run, and the tick goes on where its journal ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TypeVar

from lemming.kernel.base.errors import (
    DiskError,
    LemmingError,
    TurnBroke,
    name_of,
)
from lemming.kernel.base.redaction.secrets import redact_foreign
from lemming.kernel.files.refusals import OF_A_FILE, is_about_one_file
from lemming.kernel.journal.events import is_observers
from lemming.kernel.journal.report import Reason
from lemming.kernel.plugins.errors import file_of, words_of
from lemming.kernel.plugins.registry import names_from

T = TypeVar("T")

_WORDS = 500


class Stopped(Exception):
    """The operator asked the engine to stop; the tick goes on in the next run."""


def tried(do: Callable[[], T]) -> T | Exception:
    """Return what it gives, or what it raises that concerns nobody but the agent it is done for."""
    try:
        return do()
    except Exception as error:
        is_of_the_run = isinstance(error, (DiskError, Stopped, MemoryError)) or is_observers(error)
        if is_of_the_run or (isinstance(error, OSError) and not is_about_one_file(error)):
            raise
        return error


def why_not_begun(error: Exception) -> Reason:
    """Return why a turn that could not begin has failed."""
    known = error if isinstance(error, LemmingError) else why_broken(error)
    return Reason("failing", str(known), name_of(known))


def why_broken(error: Exception) -> TurnBroke:
    """Return what broke a turn off that raised this; raise it where it was meant to end the run."""
    if isinstance(error, OF_A_FILE):
        return TurnBroke(error.message, where=error.where, hint=error.hint)
    if isinstance(error, LemmingError):
        raise error
    steps = [*_steps_of(error)]
    words = redact_foreign(words_of(error)[:_WORDS])
    if by := _of_a_capability(steps):
        hint = "mend the capability, or take its block out; the other agents go on"
        return TurnBroke(f"{words}, in the capability {by}", hint=hint)
    reading = ", ".join(dict.fromkeys(_files_at_hand(steps)))
    while_reading = f", while it read {reading}" if reading else ""
    message = f"{words}, at {_place_of(steps[-1])}{while_reading}"
    return TurnBroke(message, hint="mend what it read, or move it away; the other agents go on")


def _steps_of(error: Exception) -> Iterator[TracebackType]:
    step = error.__traceback__
    while step:
        yield step
        step = step.tb_next


def _of_a_capability(steps: list[TracebackType]) -> str:
    """Return the capability that does not ship whose own code broke, or what that called but for the engine,
    with the place; empty for none.
    """
    for step in reversed(steps):
        module = _module_of(step)
        if names := names_from("capability", module):
            return f"{' or '.join(names)}, {_place_of(step)}"
        if module.partition(".")[0] == "lemming":
            break
    return ""


def _place_of(step: TracebackType) -> str:
    return f"{file_of(_module_of(step), step.tb_frame.f_code.co_filename)}:{step.tb_lineno}"


def _module_of(step: TracebackType) -> str:
    return str(step.tb_frame.f_globals.get("__name__", ""))


def _files_at_hand(steps: list[TracebackType]) -> Iterator[str]:
    """Yield the files of the entries that the innermost step had at hand which had any."""
    from lemming.kernel.messages import EntryName, OutboxEntry

    for step in reversed(steps):
        found = [it.file for it in step.tb_frame.f_locals.values() if isinstance(it, OutboxEntry | EntryName)]
        if found:
            yield from found
            return
