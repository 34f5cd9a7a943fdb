"""A turn of the suite: inputs, expectations, and the check of the outcome.

Standard library only: the other frameworks' scripts load the turns in separate environments.
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
    """Expectations of a turn. Texts are patterns to search for; unset fields are not checked.

    `sent` is the receiver of the single message, then patterns for its text. `refuses`: the answer declines,
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
    """The inputs of an agent.

    With a `request` a person asks the agent; otherwise the agent reads the `inbox`.

    `inbox` has pairs of a sender and a text, `readers` are the possible receivers of messages, `fields` the
    properties of the answer form. `may_remember`: the instructions ask the agent to remember facts.
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
        """The JSON Schema of the answer, or None for a text answer."""
        closed = {"required": [*self.fields], "additionalProperties": False}
        return {"type": "object", "properties": {**self.fields}, **closed} if self.fields else None


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a turn: answer, messages, memories and tool calls.

    `problem` is the reason for a failure.
    """

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
    """Return the turns with names: kind and number, after "held-out-" for held-out turns.

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
    """Return the new inputs of a turn as a text, for other frameworks: memories, messages, request."""
    lines = [f"memory {key}: {json.dumps(value)}" for key, value in turn.memory.items()]
    lines += [f"{sender}: {json.dumps(text)}" for sender, text in turn.inbox]
    return "\n".join([*lines, turn.request] if turn.request else lines)


def describe_constant(turn: Turn) -> str:
    """Return the constant text of a turn, for other frameworks: instructions, then files."""
    return "\n\n".join([turn.instructions, *(f"{name}:\n{text}" for name, text in turn.files.items())])


def is_valid(outcome: Outcome) -> bool:
    """Return True if no reply needed a correction, and the answer text is not a tool call.

    >>> is_valid(Outcome(answer={"text": "[1]"}, is_valid=False))
    False
    """
    text = outcome.answer.get("text")
    return outcome.is_valid and not (isinstance(text, str) and _is_call(text))


def is_right(turn: Turn, outcome: Outcome) -> bool:
    """Return True if a turn met all expectations."""
    expected, text = turn.expected, " ".join(map(str, outcome.answer.values()))
    has_answer = bool(outcome.answer)
    return not outcome.problem and all(
        [
            all(has_answer and _matches(pattern, text) for pattern in expected.answer),
            not expected.without or (has_answer and not _matches(expected.without, text)),
            all(_matches(value, outcome.answer.get(key)) for key, value in expected.fields.items()),
            all(_has_call(outcome, tool, pattern) for tool, pattern in expected.calls),
            not expected.sent or _has_sent(outcome, *expected.sent),
            not expected.memory or any(_matches(expected.memory, memory) for memory in outcome.memories),
            not expected.refuses or (has_answer and _matches(NO, text) and not outcome.calls),
            not expected.is_silent or not (has_answer or outcome.sent),
        ]
    )


def has_right_call(turn: Turn, outcome: Outcome) -> bool:
    """Return True if all expected tools were called with matching arguments."""
    return all(_has_call(outcome, tool, pattern) for tool, pattern in turn.expected.calls)


def _is_call(text: str) -> bool:
    return re.match(r"\s*(```\w*\s*)?(<tool_call>\s*)?\{\s*\"(name|do)\"\s*:", text) is not None


def _has_call(outcome: Outcome, tool: str, pattern: str) -> bool:
    return any(name == tool and _matches(pattern, args) for name, args in outcome.calls)


def _has_sent(outcome: Outcome, reader: str, *patterns: str) -> bool:
    if [to for to, _ in outcome.sent] != [reader]:
        return False
    return all(_matches(pattern, outcome.sent[0][1]) for pattern in patterns)


def _matches(pattern: object, value: object) -> bool:
    if not isinstance(pattern, str):
        return pattern == value
    return re.search(pattern, str(value).replace("\u2019", "'"), re.IGNORECASE) is not None
