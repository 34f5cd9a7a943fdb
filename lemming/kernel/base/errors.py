"""Every error LeMMing raises on purpose, split by whose fault it is.

Each class carries a stable `code` (listed in docs/TROUBLESHOOTING.md) and the exit status the command line
ends with. Each instance says what happened, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Outcome = Literal[
    "ok", "not_found", "denied", "invalid_args", "failed", "timed_out", "interrupted", "refused", "pending",
    "skipped", "deferred",
]  # fmt: skip
"""How a tool call ends. `ok`: it worked. `not_found`: no such tool. `denied`: the agent may not call it.
`invalid_args`: the arguments do not fit. `failed`: it says so, or broke. `timed_out`: it was ended.
`interrupted`: nobody knows whether it happened. `refused`: it, or a rule, declined this very call. `pending`:
somebody has to answer first. `deferred`: it may be asked for again. `skipped`: the turn was over before."""

OUTCOME_CODES: dict[Outcome, str] = {
    "ok": "", "failed": "LMG-602", "not_found": "LMG-603", "denied": "LMG-601", "invalid_args": "LMG-604",
    "timed_out": "LMG-605", "interrupted": "LMG-606", "refused": "LMG-607", "pending": "LMG-608",
    "skipped": "LMG-609", "deferred": "LMG-608",
}  # fmt: skip
"""The code that an outcome has in journals, reports and JSON. Listed in docs/TROUBLESHOOTING.md."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in one file: enough for a person to find it and for a program to act on it.

    `line` and `column` count from 1; 0 means the place is not known. `pointer` is a JSON pointer.
    """

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    pointer: str = ""
    hint: str = ""
    severity: str = "error"
    code: str = "LMG-302"

    @property
    def where(self) -> str:
        """Return `file:line:column /pointer` with the unknown parts left out."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place} {self.pointer}".strip()

    def as_json(self) -> dict[str, Any]:
        """Return the problem as the object that `--json` prints."""
        return {"v": 1, "type": "problem", **asdict(self)}

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class LemmingError(Exception):
    """What happened (`message`), where (`where`) and what to do (`hint`)."""

    code = "LMG-100"
    exit_status = 1
    verdicts: Sequence[dict[str, Any]] = ()  # what gates said of the question that it ended
    at: str = ""  # when it stood in the place of an answer, if that fails a request
    lost: Mapping[str, Any] | None = None  # what counts as spent on a question, of `journal.lost_calls`
    earlier: tuple[LemmingError, ...] = ()  # why the attempts before it failed, where there were any

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def as_json(self) -> dict[str, Any]:
        """Return the error as the object that `--json` prints and the journal keeps."""
        told = {"message": self.message, "where": self.where, "hint": self.hint}
        return {"v": 1, "type": "error", "code": self.code, "error": name_of(self), **told}


class UsageError(LemmingError):
    """The command line asked for something that does not exist or makes no sense."""

    code = "LMG-201"
    exit_status = 2


class NotAnOrg(LemmingError):
    """The folder, and every folder above it, holds no organisation."""

    code = "LMG-202"
    exit_status = 2


class NotTrusted(LemmingError):
    """Running the organisation reaches outside its folder, and nobody here has agreed to that as it is."""

    code = "LMG-203"
    exit_status = 2


class ConfigError(LemmingError):
    """The operator's file is wrong. `problems` lists everything found in it, not just the first."""

    code = "LMG-302"
    exit_status = 3

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", problems: tuple[Problem, ...] = ()
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.problems = problems or (Problem(message, file=where, hint=hint, code=self.code),)

    def as_json(self) -> dict[str, Any]:
        """Return the error with each of its problems."""
        return {**super().as_json(), "problems": [problem.as_json() for problem in self.problems]}


class OrgBusy(LemmingError):
    """Another engine holds this organisation's lock."""

    code = "LMG-103"
    exit_status = 4


class CorruptState(LemmingError):
    """A file of the engine's own is damaged. Nothing is guessed or replaced by a default."""

    code = "LMG-101"
    exit_status = 7


class TickAlreadyCommitted(LemmingError):
    """`tick.json` points at a tick that has already been applied."""

    code = "LMG-104"
    exit_status = 7


class DiskError(LemmingError):
    """The file system refused: a write (full, read-only, no permission, a failed sync), or a look.

    `concerns_one_file`: something odd stands at that path (a link, a folder); the disk itself is well.
    """

    code = "LMG-105"
    exit_status = 8

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", concerns_one_file: bool = False
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.concerns_one_file = concerns_one_file


class GitFailed(LemmingError):
    """git is missing, too old, or refused: the history was not kept or cannot be read. Ticks go on."""

    code = "LMG-106"
    exit_status = 7


class NotSent(LemmingError):
    """A collector of traces did not take them. They are in the journals, and can be sent again."""

    code = "LMG-109"


class NoAnswer(LemmingError):
    """A question that is to be answered from a recording or a script is in neither; no model is asked."""

    code = "LMG-108"


class OverBudget(LemmingError):
    """A model call could cost more than is left of what a person said it may."""

    code = "LMG-704"
    exit_status = 6


class ContractError(LemmingError):
    """The model's reply is not the JSON contract. The message is quoted back to the model."""

    code = "LMG-401"


class StrategyFailed(LemmingError):
    """The strategy of a turn broke, or did what none may."""

    code = "LMG-402"


class TurnBroke(LemmingError):
    """What a turn reads, or a mistake in LeMMing, broke it off. The others go on; the message says where."""

    code = "LMG-404"


class NotVerified(LemmingError):
    """What a turn would publish did not pass its judge, and may not leave without."""

    code = "LMG-403"


class ToolError(LemmingError):
    """A tool could not do what was asked. The agent reads this as the result of its call.

    `outcome` is how the call ends by it.
    """

    code = "LMG-602"
    outcome: ClassVar[Outcome] = "failed"


class RecoverableError(ToolError):
    """A tool's way to tell the model, word for word, what to do better."""


class NoSuchTool(ToolError):
    """There is no tool of this name."""

    code = "LMG-603"
    outcome = "not_found"


class InvalidArguments(ToolError):
    """The arguments of a call are not those that the tool takes."""

    code = "LMG-604"
    outcome = "invalid_args"


class PermissionDenied(ToolError):
    """A rule forbids the call; the message names the rule."""

    code = "LMG-601"
    outcome = "refused"


class StoppedByGate(LemmingError):
    """A gate has ended a turn; the message names the gate."""

    code = "LMG-610"


class ProviderError(LemmingError):
    """A model backend did not answer. `is_retryable`: asking again may help; `may_be_paid`: it may be billed.

    `is_for_good`: it will say the same until a person changes something. `retry_after_s`: the wait asked for.
    `is_of_backend`: False where the way to the backend failed, which says nothing about it.
    """

    code = "LMG-500"
    is_retryable, is_for_good, may_be_paid, is_of_backend = False, False, True, True

    def __init__(
        self, message: str, *, where: str = "", hint: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.retry_after_s = retry_after_s


class Unavailable(ProviderError):
    """The backend is down, cut the connection, or sent something that is not an answer."""

    code = "LMG-501"
    is_retryable = True


class RateLimited(ProviderError):
    """The backend asks us to slow down."""

    code = "LMG-502"
    is_retryable, may_be_paid = True, False


class TimedOut(ProviderError):
    """The whole call took longer than its deadline."""

    code = "LMG-503"
    is_retryable = True


class AuthenticationFailed(ProviderError):
    """No key, a wrong key, or an account that may not do this."""

    code = "LMG-504"
    is_for_good, may_be_paid = True, False


class UnknownModel(ProviderError):
    """The model key is not configured, or the backend has no such model."""

    code = "LMG-505"
    is_for_good, may_be_paid = True, False


class CircuitOpen(ProviderError):
    """The backend failed too often lately; it is left alone until the time in the message."""

    code = "LMG-506"
    may_be_paid = False


class RequestRejected(ProviderError):
    """The backend understood the request and refused it: too long, an option it does not know.

    `refused`: the part of the request that it does not take and can do without (`Request.without`), if so.
    """

    code = "LMG-507"
    is_for_good, may_be_paid = True, False
    refused = ""


class Unusable(RequestRejected):
    """The backend cannot be made or started here: a wrong option, a program or a package that is missing."""

    code = "LMG-509"


class AnswerTooLarge(ProviderError):
    """The backend sent more than an answer may be; what came was thrown away, and is paid for."""

    code = "LMG-508"


class OutOfCredits(LemmingError):
    """The agent may not spend more."""

    code = "LMG-701"
    exit_status = 6


class LimitReached(OutOfCredits):
    """A gate at `spend` lets no such call be made."""

    code = "LMG-702"


class RequestOverLimit(LimitReached):
    """What a gate at `spend` lets be spent on the request is spent: no more is asked for it."""

    code = "LMG-706"


class Paused(OutOfCredits):
    """A person has paused the agent, or all of them, in the middle of its turn."""

    code = "LMG-703"


class TurnTooLong(OutOfCredits):
    """The turn has taken as long as it may: nothing more is asked in it."""

    code = "LMG-705"


def is_final(error: LemmingError) -> bool:
    """Return whether a request has failed by an error: the same would come of it in every further turn."""
    return isinstance(error, RequestOverLimit) or (isinstance(error, ProviderError) and error.is_for_good)


def recorded_failure(name: str, message: str) -> LemmingError:
    """Return the error that a journal says stood in the place of a model's answer.

    A name is data: only of errors that end a model call does it choose the class.
    """
    kind = globals().get(name)
    is_known = isinstance(kind, type) and issubclass(kind, (ProviderError, OutOfCredits))
    return kind(message) if kind and is_known else ProviderError(message)


def name_of(error: LemmingError) -> str:
    """Return what journals and reports call an error: its class, or the nearest above it that stands here.

    A class of somebody's own would be another one when the journal is read.
    """
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)


def is_of_a_provider(error: str) -> bool:
    """Return whether an error, by the name of its class, says that a model that was asked gave nothing."""
    kind = globals().get(error)
    return isinstance(kind, type) and issubclass(kind, ProviderError)


def code_of(error: str) -> str:
    """Return the code of an error by the name of its class; empty for a name that is none of an error's.

    >>> code_of("Unavailable"), code_of("asdict")
    ('LMG-501', '')
    """
    kind = globals().get(error)
    return kind.code if isinstance(kind, type) and issubclass(kind, LemmingError) else ""
