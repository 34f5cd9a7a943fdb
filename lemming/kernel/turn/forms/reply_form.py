"""Recorded form of a turn's replies. Pure.

A form is recorded as the turn begins: a replay reads the recorded replies in the same way, regardless of
changes in later versions. Format: `form` of a `turn_started`, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from lemming.kernel.base.entry_kinds import MessageKind

Style = Literal["text", "fields", "actions", "native"]
"""Forms of a reply. `text`: plain text. `fields`: the fields of one action as a JSON object. `actions`: one
action as JSON. `native`: the backend's own calls, and plain text."""

ANSWER, SEND, REMEMBER, DONE = "answer", "send", "remember", "done"
ENGINE_ACTIONS = (ANSWER, SEND, REMEMBER, DONE)
"""The actions of the engine itself; all others are tools."""

NO_FIELDS: Mapping[str, Any] = {}


class ReplyForm(NamedTuple):
    """Form of the replies of a turn.

    `own`: engine actions on offer. `kind`: entry kind of a plain text and of `send`. `kinds`: kinds the model
    may choose. `to`: addressee if the model has no choice. `readers`: possible addressees, empty for any.
    `requests`: request ids for `answer`. `is_answer`: a plain text answers the turn's request. `fields`: JSON
    Schemas of the fields of an answer, or else of a message, unless a plain text. `renamed`: tools offered
    under another name. `is_small`: the model is a small one.
    """

    style: Style
    own: tuple[str, ...]
    kind: MessageKind
    kinds: tuple[MessageKind, ...] = ()
    to: str = ""
    readers: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    is_answer: bool = False
    fields: Mapping[str, Any] = NO_FIELDS
    renamed: Mapping[str, str] = NO_FIELDS
    takes_schema: bool = False
    is_small: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form as JSON without empty fields."""
        return {key: value for key, value in self._asdict().items() if value}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the form in a record."""
        values = {key: raw[key] for key in cls._fields if key in raw}
        lists = ("own", "kinds", "readers", "requests")
        return cls(**{"own": (), **values, **{key: tuple(values[key]) for key in lists if key in values}})

    def tool_name(self, name: str) -> str:
        """Return the real name of a tool offered as `name`."""
        return self.renamed.get(name, name)


def to_offered_name(tool: str) -> str:
    """Return the name under which a tool is offered, different from the names of engine actions."""
    return f"{tool}_tool" if tool in ENGINE_ACTIONS else tool
