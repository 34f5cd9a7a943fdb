"""A prompt by its parts: what of it is instructions, what tells of the reply, what others wrote.

A part of the user message is what would not stand there without it: the message is made once more without
each kind of content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.facts.preview import Prompted
from lemming.facts.sent import FORM, PromptPart, SentPrompt
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.mail.inbox import NO_INBOX
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.user_message import make_situation
from lemming.kernel.turn.values import TurnInputs

_MARK = re.compile(r"\b[0-9a-f]{32}\b")
_TOOL_LINE = re.compile(r"(?:  - )?([\w.-]+)(?:\(|: )")
"""How a line begins that tells of a tool: in the form of actions, and in the contract."""


def list_parts(prompted: Prompted, sent: SentPrompt) -> list[PromptPart]:
    """Return the parts of the prompt of a turn's first call, in the order in which they are sent."""
    dialogue = len(prompted.inputs.dialogue)
    return [*_system_parts(prompted, sent), *_later_parts(prompted, sent, dialogue)]


def _system_parts(prompted: Prompted, sent: SentPrompt) -> Iterator[PromptPart]:
    """Yield what a model is told first, and the tools that it is told of, by its backend or in words."""
    instructions = "\n\n".join([prompted.inputs.agent.instructions, *prompted.added])
    for message in sent.request.messages:
        if message["role"] != "system":
            continue
        before, told, after = message["content"].partition(instructions)
        lines = f"{before}{after}".split("\n")
        tools = [line for line in lines if _tells_of_tool(line, prompted.inputs)]
        yield PromptPart("instructions", told)
        yield PromptPart(FORM, "\n".join(line for line in lines if line not in tools))
        yield PromptPart("tools", "\n".join([*tools, *map(to_line, message.get("tools", ()))]))


def _tells_of_tool(line: str, inputs: TurnInputs) -> bool:
    """Return True for a line about a tool; those about the engine's own actions are the form's."""
    found = _TOOL_LINE.match(line)
    if found is None:
        return False
    if inputs.form:
        return inputs.form.style == "actions" and "(" in found[0] and found[1] not in inputs.form.own
    return line.startswith("  - ")


def _later_parts(prompted: Prompted, sent: SentPrompt, dialogue: int) -> Iterator[PromptPart]:
    """Yield the other messages; `dialogue`: how many at the end were said in earlier turns."""
    others = [message for message in sent.request.messages if message["role"] != "system"]
    said = others[len(others) - dialogue :]
    others = others[: len(others) - dialogue]
    for message in others[:-1]:
        yield PromptPart("examples", message["content"])
    for message in others[-1:]:
        yield from _turn_parts(prompted, message["content"])
    for message in said:
        yield PromptPart("conversation", describe_message(message))


def _turn_parts(prompted: Prompted, text: str) -> Iterator[PromptPart]:
    """Yield the parts of the user message."""
    inputs, seen = prompted.inputs, prompted.seen
    if seen is None or inputs.model.prompt == "values":
        yield PromptPart("turn", text)
        return
    lines = text.split("\n")
    whole = _without_marks(lines)
    for name, without in _WITHOUT.items():
        rest = _without_marks(make_situation(without(seen), inputs.form, inputs.model))
        first, last = _changed(whole, rest)
        yield PromptPart(name, "\n".join(lines[first:last]))
    told = [] if inputs.form else make_situation(_without_all(seen), inputs.form, inputs.model)
    yield PromptPart(FORM, "\n".join(told))


def _without_marks(lines: Iterable[str]) -> list[str]:
    """Return lines whose marks of untrusted text, which follow from all of it, are the same."""
    return [line if "DATA" not in line else _MARK.sub("", line) for line in "\n".join(lines).split("\n")]


def _changed(lines: Sequence[str], rest: Sequence[str]) -> tuple[int, int]:
    """Return from where to where lines stand that others lack, which are the same but for them."""
    most = min(len(lines), len(rest))
    first = next((place for place in range(most) if lines[place] != rest[place]), most)
    last = next(
        (place for place in range(most - first) if lines[-1 - place] != rest[-1 - place]), most - first
    )
    return first, len(lines) - last


def _without_task(seen: Seen, **fields: Any) -> Seen:
    return replace(seen, task=seen.task._replace(**fields)) if seen.task else seen


def _without_inbox(seen: Seen) -> Seen:
    bare = replace(seen, inbox=NO_INBOX, asked=(), before=(), left_out=0)
    return _without_task(bare, thread=(), asked=())


_WITHOUT: Mapping[str, Callable[[Seen], Seen]] = {
    "files": lambda seen: replace(seen, context=()),
    "memory": lambda seen: replace(seen, memory={}),
    "inbox": _without_inbox,
    "results": lambda seen: replace(seen, results=()),
    "moment": lambda seen: replace(seen, time=(), warnings=()),
    "request": lambda seen: _without_task(seen, request=None),
}
"""What a turn sees without one kind of content, by its name."""


def _without_all(seen: Seen) -> Seen:
    for without in _WITHOUT.values():
        seen = without(seen)
    return seen


def describe_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message, and the calls in it, one a line."""
    calls = [f"{call['tool']}({to_line(call['args'])})" for call in message.get("calls", ())]
    return "\n".join([*filter(None, [message["content"]]), *calls])
