"""What came of a question: the answer as a value of its type, or why there is none."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from lemming.capabilities.requests.view import End, RequestView
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import to_line

Unanswered = Literal["timeout", "stopped", "failing", "nothing_to_do", "too_many_ticks", "waits_for_asker"]
T = TypeVar("T")


class NotAnswered(LemmingError):
    """The answer to a question is wanted, and there is none: it has ended without one, or is still open."""

    code = "LMG-110"


@dataclass(frozen=True, kw_only=True)
class AskOutcome(Generic[T]):
    """What came of a question. `end` is None while it is open, and `why` then says why nobody waits longer.

    `answer` is a value of the type that was asked for; without one the text of the answer, or an object
    where it has more than a text, and of several targets a list. `error` is the class of what a failing turn
    ended with. `reason`: what was said of why there is no answer.
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
        """Whether there is an answer: given, or laid down for a request that expired."""
        return self.end == "answered" or (self.end == "expired" and self.request.has_default)

    @property
    def value(self) -> T:
        """The answer. Raises `NotAnswered`, which says why there is none."""
        if not self.has_answer:
            hint = f"lemming requests {self.id}"
            raise NotAnswered(self.why_unanswered, where=f"request {self.id}", hint=hint)
        return self.answer  # type: ignore[return-value]  # it may be None where T is

    @property
    def why_unanswered(self) -> str:
        """Why there is no answer, in a sentence; empty where there is one."""
        return "" if self.has_answer else _why_ended(self) if self.end else _why_open(self)

    def _repr_html_(self) -> str:
        """Return the answer, its fields as a table, or why there is none; and the request: for notebooks."""
        from lemming.kernel.base.html_tables import table, text

        request = self.request
        asked = text(f"{request.asker} asked {' and '.join(request.targets)}: {request.text}")
        if not self.has_answer:
            return f"<p>{asked}</p><p>{text(self.why_unanswered)} (request {text(self.id)})</p>"
        fields = _fields_of(self.answer)
        answer = table(("", ""), fields.items()) if fields else f"<p>{text(_plain(self.answer))}</p>"
        return f"<p>{asked}</p>{answer}"


def _why_ended(outcome: AskOutcome[Any]) -> str:
    request = outcome.request
    more = f": {outcome.reason}" if outcome.reason else ""
    who = request.closed_by.agent if request.closed_by else ""
    words = {
        "failed": f"{who} has failed",
        "refused": f"{who} refuses",
        "cancelled": f"{who or 'somebody'} has cancelled it",
        "expired": "nobody answered in time",
    }
    return f"{words[request.end or 'expired']}{more}"


def _why_open(outcome: AskOutcome[Any]) -> str:
    holders = " and ".join(outcome.request.holders)
    match outcome.why:
        case "timeout":
            return f"no answer in time; {holders} holds it"
        case "failing":
            return f"no answer: {outcome.reason}"
        case "too_many_ticks":
            return (
                f"no answer after as many ticks as may follow each other (ticks_in_a_row); {holders} holds it"
            )
        case "waits_for_asker":
            return "no answer yet: it waits for something that you are to answer first; `lemming waiting`"
        case "nothing_to_do":
            why = f": {outcome.reason}" if outcome.reason else ""
            return f"no answer, and nobody has anything to go on with{why}; {holders} holds it"
    return f"stopped; {holders} holds it"


def _fields_of(answer: Any) -> dict[str, str]:
    """Return the fields of an answer that has some: an object, or a value of a type."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        answer = {it.name: getattr(answer, it.name) for it in dataclasses.fields(answer)}
    elif hasattr(type(answer), "model_fields"):
        answer = dict(answer)
    return {str(key): _plain(value) for key, value in answer.items()} if isinstance(answer, dict) else {}


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return to_line(value) if isinstance(value, dict | list) else str(value)
