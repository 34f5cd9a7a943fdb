"""All errors LeMMing raises on purpose, grouped by cause.

Each class has a stable `code` (docs/TROUBLESHOOTING.md) and an exit status; each instance has place and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from lemming.kernel.base.problems import Problem as Problem

Outcome = Literal[
    "ok", "not_found", "denied", "invalid_args", "failed", "timed_out", "interrupted", "refused", "pending",
    "skipped", "deferred",
]  # fmt: skip
"""Outcomes of a tool call. `ok`: success. `not_found`: no such tool. `denied`: no permission. `failed`: an error in
the tool. `timed_out`: no result in time. `interrupted`: the result is unknown. `refused`: a rule declined it.
`pending`: a person must answer. `deferred`: call it again later. `skipped`: the turn ended first."""

OUTCOME_CODES: dict[Outcome, str] = {
    "ok": "", "failed": "LMG-602", "not_found": "LMG-603", "denied": "LMG-601", "invalid_args": "LMG-604",
    "timed_out": "LMG-605", "interrupted": "LMG-606", "refused": "LMG-607", "pending": "LMG-608",
    "skipped": "LMG-609", "deferred": "LMG-608",
}  # fmt: skip
"""The code of an outcome in journals, reports and JSON."""


class LemmingError(Exception):
    """Base of all errors: the event (`message`), the location (`where`) and the remedy (`hint`)."""

    code = "LMG-100"
    exit_status = 1
    verdicts: Sequence[dict[str, Any]] = ()  # verdicts of gates on the call that failed
    at: str = ""  # when it stood in the place of an answer, if that fails a request
    lost: Mapping[str, Any] | None = None  # amount that counts as spent on a call, as in `journal.write_offs`
    earlier: tuple[LemmingError, ...] = ()  # why the attempts before it failed, where there were any

    def __init_subclass__(cls, **attributes: Any) -> None:
        """Set the attributes that stand in the header of a class."""
        super().__init_subclass__()
        for name, value in attributes.items():
            setattr(cls, name, value)

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def as_json(self) -> dict[str, Any]:
        """Return the error as the object printed by `--json` and stored in the journal."""
        details = {"message": self.message, "where": self.where, "hint": self.hint}
        return {"v": 1, "type": "error", "code": self.code, "error": error_name(self), **details}


class UsageError(LemmingError, code="LMG-201", exit_status=2):
    """The command line asks for something missing or meaningless."""


class NotAnOrg(LemmingError, code="LMG-202", exit_status=2):
    """Neither the folder nor any parent folder contains an organisation."""


class NotTrusted(LemmingError, code="LMG-203", exit_status=2):
    """The organisation needs permissions outside the folder, and its workspace is not trusted as it is now."""


class ConfigError(LemmingError, code="LMG-302", exit_status=3):
    """The operator's file is invalid. `problems` lists all errors found, not just the first."""

    def __init__(self, message: str, *, where: str = "", hint: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, where=where, hint=hint)
        self.problems = problems or (Problem(message, file=where, hint=hint, code=self.code),)

    def as_json(self) -> dict[str, Any]:
        """Return the error with each of the problems."""
        return {**super().as_json(), "problems": [problem.as_json() for problem in self.problems]}


class OrgBusy(LemmingError, code="LMG-103", exit_status=4):
    """Another engine holds this organisation's lock."""


class CorruptState(LemmingError, code="LMG-101", exit_status=7):
    """A file of the engine's own is damaged. Nothing is guessed or replaced by a default."""


class TickAlreadyCommitted(LemmingError, code="LMG-104", exit_status=7):
    """`tick.json` points at a tick that has already been committed."""


class DiskError(LemmingError, code="LMG-105", exit_status=8):
    """The file system refused an operation: a write (full, read-only, no permission, failed sync) or a read.

    `concerns_one_file`: True if the cause is the path itself (a link, a folder) and the disk is fine.
    """

    def __init__(self, message: str, *, where: str = "", hint: str = "", concerns_one_file: bool = False) -> None:
        super().__init__(message, where=where, hint=hint)
        self.concerns_one_file = concerns_one_file


class GitFailed(LemmingError, code="LMG-106", exit_status=7):
    """git is missing, too old, or failed: the history was not written or is unreadable. Ticks continue."""


class NotSent(LemmingError, code="LMG-109"):
    """A trace collector did not accept the traces. They remain in the journals and can be sent again."""


class NoAnswer(LemmingError, code="LMG-108"):
    """A recording or script lacks the answer to a prompt; no model is called."""


class OverBudget(LemmingError, code="LMG-704", exit_status=6):
    """A model call could cost more than the remaining budget set by a person."""


class ContractError(LemmingError, code="LMG-401"):
    """The model's reply violates the JSON contract. The message is sent back to the model."""


class StrategyFailed(LemmingError, code="LMG-402"):
    """The strategy of a turn failed, or did something forbidden."""


class TurnBroke(LemmingError, code="LMG-404"):
    """A turn crashed because of its inputs or a bug in LeMMing. Other turns continue; the message has the location."""


class NotVerified(LemmingError, code="LMG-403"):
    """A judge rejected the output of a turn, which may not be published without passing."""


class ToolError(LemmingError, code="LMG-602"):
    """A tool could not complete a call. The agent sees the error as the call's result."""

    outcome: ClassVar[Outcome] = "failed"


class RecoverableError(ToolError):
    """Raised by a tool to tell the model, verbatim, the correct usage."""


class NoSuchTool(ToolError, code="LMG-603", outcome="not_found", exit_status=2):
    """There is no tool of this name."""


class InvalidArguments(ToolError, code="LMG-604", outcome="invalid_args", exit_status=2):
    """The arguments of a call do not match the tool's parameters."""


class PermissionDenied(ToolError, code="LMG-601", outcome="refused"):
    """A rule forbids the call; the message names the rule."""


class StoppedByGate(LemmingError, code="LMG-610"):
    """A gate ended a turn; the message names the gate."""


class ProviderError(LemmingError, code="LMG-500"):
    """A model backend did not answer.

    `is_retryable`: a retry may help. `may_be_paid`: the call may be billed. `is_for_good`: the error persists
    until a person changes something. `retry_after_s`: the requested delay in seconds. `is_of_backend`: False
    if the connection to the backend failed, which is unrelated to the backend's health.
    """

    is_retryable, is_for_good, may_be_paid, is_of_backend = False, False, True, True

    def __init__(self, message: str, *, where: str = "", hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, where=where, hint=hint)
        self.retry_after_s = retry_after_s


class Unavailable(ProviderError, code="LMG-501", is_retryable=True):
    """The backend is down, closed the connection, or sent an invalid answer."""


class RateLimited(ProviderError, code="LMG-502", is_retryable=True, may_be_paid=False):
    """The backend asks us to slow down."""


class TimedOut(ProviderError, code="LMG-503", is_retryable=True):
    """The whole call exceeded the deadline."""


class AuthenticationFailed(ProviderError, code="LMG-504", is_for_good=True, may_be_paid=False):
    """A missing key, a wrong key, or an account without permission."""


class UnknownModel(ProviderError, code="LMG-505", is_for_good=True, may_be_paid=False, exit_status=2):
    """The model key is not configured, or the backend has no such model."""


class CircuitOpen(ProviderError, code="LMG-506", may_be_paid=False):
    """The backend failed too often recently and is not called until the time in the message."""


class RequestRejected(ProviderError, code="LMG-507", is_for_good=True, may_be_paid=False):
    """The backend understood and rejected the request: too long, or an unknown option.

    `refused`: the rejected part of the request, if it is optional (`Request.without`).
    """

    refused = ""


class Unusable(RequestRejected, code="LMG-509"):
    """The backend cannot be created or started here: a wrong option, or a missing program or package."""


class MayHaveActed(ProviderError, code="LMG-510", is_for_good=True):
    """A call that can act outside started and gave no answer. It is not repeated."""


class AnswerTooLarge(ProviderError, code="LMG-508"):
    """The backend sent an oversized answer, which was discarded and is paid for."""


class OutOfCredits(LemmingError, code="LMG-701", exit_status=6):
    """The agent's credits are used up."""


class LimitReached(OutOfCredits, code="LMG-702"):
    """A gate at `spend` refuses the call."""


class RequestOverLimit(LimitReached, code="LMG-706"):
    """The request has used up its limit at a `spend` gate: no further calls are made for it."""


class Paused(OutOfCredits, code="LMG-703"):
    """A person paused the agent, or all agents, in the middle of the agent's turn."""


class TurnTooLong(OutOfCredits, code="LMG-705"):
    """The turn has used up its time: no further calls are made."""


def is_final(error: LemmingError) -> bool:
    """Return True if an error makes the request fail, because every further turn would fail in the same way."""
    return isinstance(error, RequestOverLimit) or (isinstance(error, ProviderError) and error.is_for_good)


def restore_error(name: str, message: str) -> LemmingError:
    """Recreate an error recorded in place of a model's answer."""
    # The name is untrusted data: it selects a class only among the errors that end a model call.
    kind = globals().get(name)
    is_known = isinstance(kind, type) and issubclass(kind, (ProviderError, OutOfCredits))
    return kind(message) if kind and is_known else ProviderError(message)


def error_name(error: LemmingError) -> str:
    """Return an error's name for journals and reports: the class, or the nearest base class in this module."""
    # A custom class might be a different class when the journal is read.
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)


def is_provider_error(error: str) -> bool:
    """Return True if the name of an error's class stands for a model call without an answer."""
    kind = globals().get(error)
    return isinstance(kind, type) and issubclass(kind, ProviderError)


def error_code(error: str) -> str:
    """Return the code of an error by the class name, or an empty string for an unknown name.

    >>> error_code("Unavailable"), error_code("asdict")
    ('LMG-501', '')
    """
    kind = globals().get(error)
    return kind.code if isinstance(kind, type) and issubclass(kind, LemmingError) else ""
