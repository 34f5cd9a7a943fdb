"""A turn of the suite: what an agent is given, what it is expected to do, and the check of what it did.

Standard library only: the scripts of other frameworks read the turns in environments of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Json = dict[str, Any]
NO = r"\b(cannot|can't|can not|unable|not able|don't have|do not have|sorry|not possible|no tool)\b"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a turn is to do. Texts are patterns that must be found; what is not set is not checked.

    `sent` is the reader of the one message, followed by patterns in its text. `refuses`: the answer says no,
    and no tool was called. `is_silent`: nothing is answered or sent.
    """

    answer: Sequence[str] = ()
    without: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    calls: Sequence[tuple[str, str]] = ()
    sent: Sequence[str] = ()
    memory: str = ""
    refuses: bool = False
    is_silent: bool = False


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one agent is given. With a `request` a person asks it; without one it reads its `inbox`.

    `inbox` has pairs of a sender and a text, `readers` are the agents that it can write to, `fields` the
    properties of the form that an answer fills in. `may_remember`: its instructions have it remember.
    """

    kind: str
    instructions: str
    expected: Expected
    request: str = ""
    fields: Mapping[str, Json] = field(default_factory=dict)
    tools: Sequence[str] = ()
    readers: Sequence[str] = ()
    inbox: Sequence[tuple[str, str]] = ()
    memory: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    may_remember: bool = False
    is_held_out: bool = False
    name: str = ""

    @property
    def schema(self) -> Json | None:
        """The JSON Schema of the answer; None where it is a text."""
        closed = {"required": [*self.fields], "additionalProperties": False}
        return {"type": "object", "properties": {**self.fields}, **closed} if self.fields else None


@dataclass(kw_only=True)
class Outcome:
    """What a turn did: its answer, messages, memories and calls of tools; `problem` says why it failed."""

    answer: Json = field(default_factory=dict)
    sent: list[list[str]] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    calls: list[list[Any]] = field(default_factory=list)
    is_valid: bool = True
    problem: str = ""

    def to_json(self) -> Json:
        """Return the outcome as JSON values."""
        return asdict(self)


def name_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns with a name each: the kind and a number, after "held-out-" for those that are.

    >>> [turn.name for turn in name_turns([Turn(kind="two tools", instructions="", expected=Expected())] * 2)]
    ['two-tools-1', 'two-tools-2']
    """
    counts: dict[str, int] = {}
    named = []
    for turn in turns:
        stem = ("held-out-" if turn.is_held_out else "") + turn.kind.replace(" ", "-")
        counts[stem] = counts.get(stem, 0) + 1
        named.append(Turn(**{**vars(turn), "name": f"{stem}-{counts[stem]}"}))
    return named


def describe_news(turn: Turn) -> str:
    """Return what is new in a turn as one text, for other frameworks: memories, messages, request."""
    lines = [f"memory {key}: {json.dumps(value)}" for key, value in turn.memory.items()]
    lines += [f"{sender}: {json.dumps(text)}" for sender, text in turn.inbox]
    return "\n".join([*lines, turn.request] if turn.request else lines)


def describe_constant(turn: Turn) -> str:
    """Return the constant text of a turn, for other frameworks: instructions, then files."""
    return "\n\n".join([turn.instructions, *(f"{name}:\n{text}" for name, text in turn.files.items())])


def is_valid(outcome: Outcome) -> bool:
    """Return True if no reply had to be corrected, and no text was passed off as an answer that is a call.

    >>> is_valid(Outcome(answer={"text": '{"name": "stock", "arguments": {}}'}))
    False
    """
    text = outcome.answer.get("text")
    return outcome.is_valid and not (isinstance(text, str) and _is_call(text))


def is_right(turn: Turn, outcome: Outcome) -> bool:
    """Return True if a turn did what it was expected to do."""
    wanted, text = turn.expected, " ".join(map(str, outcome.answer.values()))
    has_answer = bool(outcome.answer)
    return not outcome.problem and all(
        [
            all(has_answer and _matches(pattern, text) for pattern in wanted.answer),
            not wanted.without or (has_answer and not _matches(wanted.without, text)),
            all(_matches(value, outcome.answer.get(key)) for key, value in wanted.fields.items()),
            all(_has_call(outcome, tool, pattern) for tool, pattern in wanted.calls),
            not wanted.sent or _has_sent(outcome, *wanted.sent),
            not wanted.memory or any(_matches(wanted.memory, memory) for memory in outcome.memories),
            not wanted.refuses or (has_answer and _matches(NO, text) and not outcome.calls),
            not wanted.is_silent or not (has_answer or outcome.sent),
        ]
    )


def has_right_call(turn: Turn, outcome: Outcome) -> bool:
    """Return True if all tools that a turn is expected to call were called, with the right arguments."""
    return all(_has_call(outcome, tool, pattern) for tool, pattern in turn.expected.calls)


def _is_call(text: str) -> bool:
    return re.match(r"\s*(```\w*\s*)?(<tool_call>\s*)?\{\s*\"(name|do)\"\s*:", text) is not None


def _has_call(outcome: Outcome, tool: str, pattern: str) -> bool:
    return any(name == tool and _matches(pattern, args) for name, args in outcome.calls)


def _has_sent(outcome: Outcome, reader: str, *patterns: str) -> bool:
    if [to for to, _ in outcome.sent] != [reader]:
        return False
    return all(_matches(pattern, outcome.sent[0][1]) for pattern in patterns)


def _matches(wanted: object, value: object) -> bool:
    if not isinstance(wanted, str):
        return wanted == value
    return re.search(wanted, str(value).replace("\u2019", "'"), re.IGNORECASE) is not None
