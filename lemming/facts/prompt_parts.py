"""A prompt by its parts: what of it is instructions, what tells of the reply, what others wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lemming.facts.sent import PromptPart, SentPrompt
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.turn.values import TurnInputs


def list_parts(inputs: TurnInputs, sent: SentPrompt) -> list[PromptPart]:
    """Return the parts of the prompt of a turn's first call, in the order in which they are sent."""
    return [*_system_parts(inputs, sent), *_later_parts(sent, len(inputs.dialogue))]


def _system_parts(inputs: TurnInputs, sent: SentPrompt) -> Iterator[PromptPart]:
    """Yield what a model is told first, and the tools that its backend tells it of."""
    for message in sent.request.messages:
        if message["role"] != "system":
            continue
        before, instructions, after = message["content"].partition(inputs.agent.instructions)
        yield PromptPart("instructions", instructions)
        yield PromptPart("reply form", f"{before}{after}")
        if tools := message.get("tools"):
            yield PromptPart("tools", "\n".join(map(to_line, tools)))


def _later_parts(sent: SentPrompt, dialogue: int) -> Iterator[PromptPart]:
    """Yield the other messages; `dialogue`: how many at the end were said in earlier turns."""
    others = [message for message in sent.request.messages if message["role"] != "system"]
    said = others[len(others) - dialogue :]
    others = others[: len(others) - dialogue]
    for message in others[:-1]:
        yield PromptPart("examples", message["content"])
    for message in others[-1:]:
        yield PromptPart("turn", message["content"])
    for message in said:
        yield PromptPart("conversation", describe_message(message))


def describe_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message, and the calls in it, one a line."""
    calls = [f"{call['tool']}({to_line(call['args'])})" for call in message.get("calls", ())]
    return "\n".join([*filter(None, [message["content"]]), *calls])
