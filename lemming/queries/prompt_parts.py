"""Splits a prompt into parts: instructions, reply format, tools, and content from other authors.

A part of the user message is the difference between the full message and the message built without a kind of content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.base.jsontext import to_line
from lemming.kernel.inboxes.inbox import NO_INBOX
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_prompt import make_user_message
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.queries.sent import REPLY_FORM, PromptPart, SentPrompt
from lemming.queries.tick_preview import PreparedPrompt

_MARK = re.compile(r"\b[0-9a-f]{32}\b")
_TOOL_LINE = re.compile(r"(?:  - )?([\w.-]+)(?:\(|: )")
"""Opening of a line about a tool: in the form of actions, and in the contract."""


def list_parts(prompted: PreparedPrompt, sent: SentPrompt) -> list[PromptPart]:
    """Return the parts of the prompt of a turn's first call, in the order of sending."""
    dialogue = len(prompted.inputs.dialogue)
    return [*_split_system_prompt(prompted, sent), *_split_messages(prompted, sent, dialogue)]


def _split_system_prompt(prompted: PreparedPrompt, sent: SentPrompt) -> Iterator[PromptPart]:
    """Yield the instructions, the reply format and the tools, as sent by the backend or written in the prompt."""
    instructions = "\n\n".join([prompted.inputs.agent.instructions, *prompted.added_sections])
    for message in sent.request.messages:
        if message["role"] != "system":
            continue
        text_before, instruction_text, text_after = message["content"].partition(instructions)
        lines = f"{text_before}{text_after}".split("\n")
        tools = [line for line in lines if _is_tool_line(line, prompted.inputs)]
        yield PromptPart("instructions", instruction_text)
        yield PromptPart(REPLY_FORM, "\n".join(line for line in lines if line not in tools))
        yield PromptPart("tools", "\n".join([*tools, *map(to_line, message.get("tools", ()))]))


def _is_tool_line(line: str, inputs: TurnInputs) -> bool:
    """Return True for a line about a tool; lines about the engine's own actions belong to the reply format."""
    match = _TOOL_LINE.match(line)
    if match is None:
        return False
    if inputs.form:
        return inputs.form.style == "actions" and "(" in match[0] and match[1] not in inputs.form.own
    return line.startswith("  - ")


def _split_messages(prompted: PreparedPrompt, sent: SentPrompt, dialogue: int) -> Iterator[PromptPart]:
    """Yield the parts of the other messages; `dialogue` is the number of final messages from earlier turns."""
    messages = [message for message in sent.request.messages if message["role"] != "system"]
    conversation = messages[len(messages) - dialogue :]
    messages = messages[: len(messages) - dialogue]
    for message in messages[:-1]:
        yield PromptPart("examples", message["content"])
    for message in messages[-1:]:
        yield from _split_user_message(prompted, message["content"])
    for message in conversation:
        yield PromptPart("conversation", describe_message(message))


def _split_user_message(prompted: PreparedPrompt, text: str) -> Iterator[PromptPart]:
    """Yield the parts of the user message."""
    inputs, prompt_input = prompted.inputs, prompted.prompt_input
    if prompt_input is None or inputs.model.prompt == "values":
        yield PromptPart("turn", text)
        return
    lines = text.split("\n")
    all_lines = _remove_marks(lines)
    for name, remove in _REMOVERS.items():
        other_lines = _remove_marks(make_user_message(remove(prompt_input), inputs.form, inputs.model))
        first, last = _find_changed_range(all_lines, other_lines)
        yield PromptPart(name, "\n".join(lines[first:last]))
    format_lines = (
        [] if inputs.form else make_user_message(_remove_all_content(prompt_input), inputs.form, inputs.model)
    )
    yield PromptPart(REPLY_FORM, "\n".join(format_lines))


def _remove_marks(lines: Iterable[str]) -> list[str]:
    """Return lines with equal marks of untrusted text; the marks are derived from the whole text."""
    return [line if "DATA" not in line else _MARK.sub("", line) for line in "\n".join(lines).split("\n")]


def _find_changed_range(lines: Sequence[str], other_lines: Sequence[str]) -> tuple[int, int]:
    """Return the start and end of the lines that are missing in the other, otherwise equal, lines."""
    max_equal = min(len(lines), len(other_lines))
    first = next((index for index in range(max_equal) if lines[index] != other_lines[index]), max_equal)
    last = next(
        (index for index in range(max_equal - first) if lines[-1 - index] != other_lines[-1 - index]), max_equal - first
    )
    return first, len(lines) - last


def _replace_task_fields(prompt_input: PromptInput, **fields: Any) -> PromptInput:
    return replace(prompt_input, task=prompt_input.task._replace(**fields)) if prompt_input.task else prompt_input


def _remove_inbox(prompt_input: PromptInput) -> PromptInput:
    emptied = replace(prompt_input, inbox=NO_INBOX, requests=(), leading_sections=(), omitted_count=0)
    return _replace_task_fields(emptied, thread=(), outcomes=())


_REMOVERS: Mapping[str, Callable[[PromptInput], PromptInput]] = {
    "files": lambda prompt_input: replace(prompt_input, context=()),
    "memory": lambda prompt_input: replace(prompt_input, memory={}),
    "inbox": _remove_inbox,
    "results": lambda prompt_input: replace(prompt_input, results=()),
    "moment": lambda prompt_input: replace(prompt_input, time=(), warnings=()),
    "request": lambda prompt_input: _replace_task_fields(prompt_input, request=None),
}
"""The removal of one kind of content from a prompt input, by its name."""


def _remove_all_content(prompt_input: PromptInput) -> PromptInput:
    for remove in _REMOVERS.values():
        prompt_input = remove(prompt_input)
    return prompt_input


def describe_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message, followed by its calls, a line each."""
    calls = [f"{call['tool']}({to_line(call['args'])})" for call in message.get("calls", ())]
    return "\n".join([*filter(None, [message["content"]]), *calls])
