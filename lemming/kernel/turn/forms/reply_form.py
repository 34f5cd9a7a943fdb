"""The form of the replies of one turn, as its record keeps it. Pure.

A form is recorded as the turn begins: a replay reads the recorded replies as they were read the first time,
whatever later versions would ask for. Format: `form` of a `turn_started`, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from lemming.kernel.base.kinds import MessageKind

Style = Literal["text", "fields", "actions", "native"]
"""How a reply is written. `text`: plain text. `fields`: the fields of one action as a JSON object. `actions`:
one action as JSON. `native`: calls of the backend's own, and plain text."""

ANSWER, SEND, REMEMBER, DONE = "answer", "send", "remember", "done"
OWN = (ANSWER, SEND, REMEMBER, DONE)
"""The actions of the engine itself; all others are tools."""

NOTHING: Mapping[str, Any] = {}


class ReplyForm(NamedTuple):
    """The form of the replies of one turn.

    `own`: the engine's actions that are offered. `kind`: that of the entry that a plain text becomes, and of
    those that `send` writes; `kinds`: those that the model may choose. `to`: the reader of a message
    where the model does not choose; `readers`: those it may choose, empty where any is taken. `requests`:
    the ids of which `answer` names one. `is_answer`: a plain text is the answer to what the turn is for.
    `fields`: the JSON Schemas of what an answer, or else a message, consists of where that is not a text.
    `renamed`: the tools that are offered under another name. `is_small`: the model is a small one.
    """

    style: Style
    own: tuple[str, ...]
    kind: MessageKind
    kinds: tuple[MessageKind, ...] = ()
    to: str = ""
    readers: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    is_answer: bool = False
    fields: Mapping[str, Any] = NOTHING
    renamed: Mapping[str, str] = NOTHING
    takes_schema: bool = False
    is_small: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form as JSON values, without what says nothing."""
        return {key: value for key, value in self._asdict().items() if value}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the form that a record holds."""
        known = {key: plain[key] for key in cls._fields if key in plain}
        lists = ("own", "kinds", "readers", "requests")
        return cls(**{"own": (), **known, **{key: tuple(known[key]) for key in lists if key in known}})

    def tool_name(self, name: str) -> str:
        """Return the real name of a tool that is offered as `name`."""
        return self.renamed.get(name, name)


def offered_name(tool: str) -> str:
    """Return the name under which a tool is offered: not that of an action of the engine's own."""
    return f"{tool}_tool" if tool in OWN else tool
