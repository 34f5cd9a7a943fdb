"""Outcome of a question: the answer as a value of its type, or the reason for its absence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import LemmingError
from lemming.obligations.request_view import End, RequestView

Unanswered = Literal["timeout", "stopped", "failing", "nothing_to_do", "too_many_ticks", "waits_for_asker"]
T = TypeVar("T")


class NotAnswered(LemmingError):
    """Raised for the answer of a question that ended without an answer, or is still open."""

    code = "LMG-110"


@accept_old_names
@dataclass(frozen=True, kw_only=True)
class AskOutcome(Generic[T]):
    """Outcome of a question.

    `end` is None while the question is open; `why` then holds the reason to stop waiting.

    `answer` is a value of the requested type. Without a type, `answer` is the text of the answer, an object
    if the answer has more than a text, or a list for several targets. `error` is the error class of a failing
    turn. `reason` is the stated reason for a missing answer.
    """

    request: RequestView
    end: End | None
    answer: T | None = None
    why: Unanswered | None = None
    reason: str = ""
    error: str = ""

    @property
    def id(self) -> str:
        """The id of the request, for `lemming requests`."""
        return self.request.id

    @property
    def has_answer(self) -> bool:
        """True for an answered request, or an expired request with a default answer."""
        return self.end == "answered" or (self.end == "expired" and self.request.has_default)

    @property
    def value(self) -> T:
        """The answer. Raises `NotAnswered` with the reason for a missing answer."""
        if not self.has_answer:
            hint = f"see lemming requests {self.id}"
            raise NotAnswered(self.unanswered_reason, where=f"request {self.id}", hint=hint)
        return self.answer  # type: ignore[return-value]  # it may be None where T is

    @property
    def unanswered_reason(self) -> str:
        """The reason for a missing answer, as a sentence; empty for an answered request."""
        return "" if self.has_answer else _explain_end(self) if self.end else _explain_open(self)


def _explain_end(outcome: AskOutcome[Any]) -> str:
    request = outcome.request
    closer = request.closed_by.agent if request.closed_by else ""
    end_texts = {
        "failed": f"{closer} has failed",
        "refused": f"{closer} refuses",
        "cancelled": f"{closer or 'its asker'} has cancelled it",
        "expired": "no agent answered in time",
    }
    return f"{end_texts[request.end or 'expired']}{f': {outcome.reason}' if outcome.reason else ''}"


def _explain_open(outcome: AskOutcome[Any]) -> str:
    holds = f"{' and '.join(outcome.request.assignees)} holds it"
    reason_text = f": {outcome.reason}" if outcome.reason else ""
    texts = {
        "timeout": f"no answer in time; {holds}",
        "failing": f"no answer: {outcome.reason}",
        "too_many_ticks": f"no answer within the limit of consecutive ticks (ticks_in_a_row); {holds}",
        "waits_for_asker": "no answer yet: it waits for something that you must answer first; see `lemming waiting`",
        "nothing_to_do": f"no answer, and no agent has anything left to do{reason_text}; {holds}",
    }
    return texts.get(outcome.why or "", f"stopped; {holds}")
