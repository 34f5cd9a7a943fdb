"""What came of a question, as a notebook shows it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lemming.kernel.base.html_tables import table, text
from lemming.kernel.base.jsontext import to_line

if TYPE_CHECKING:
    from lemming.asking.outcome import AskOutcome


def outcome_as_html(outcome: AskOutcome[Any]) -> str:
    """Return the answer, its fields as a table, or why there is none; and the request."""
    asked = f"{outcome.request.asker} asked {' and '.join(outcome.request.targets)}: {outcome.request.text}"
    if not outcome.has_answer:
        return f"<p>{text(asked)}</p><p>{text(outcome.why_unanswered)} (request {text(outcome.id)})</p>"
    fields = _fields_of(outcome.answer)
    said = table(("", ""), fields.items()) if fields else f"<p>{text(_plain(outcome.answer))}</p>"
    return f"<p>{text(asked)}</p>{said}"


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
