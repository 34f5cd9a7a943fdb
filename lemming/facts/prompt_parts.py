"""A prompt by its parts: what of it is instructions, what tells of the reply, what others wrote."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.facts.sent import PromptPart, SentPrompt
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.turn.values import TurnInputs


def list_parts(inputs: TurnInputs, sent: SentPrompt) -> list[PromptPart]:
    """Return the parts of the prompt of a turn's first call, in the order in which they are sent."""
    return [*_system_parts(inputs, sent), *_later_parts(sent)]


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


def _later_parts(sent: SentPrompt) -> Iterator[PromptPart]:
    others = [message for message in sent.request.messages if message["role"] != "system"]
    for message in others[:-1]:
        yield PromptPart("examples", message["content"])
    for message in others[-1:]:
        yield PromptPart("turn", message["content"])
