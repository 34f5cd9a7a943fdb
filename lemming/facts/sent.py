"""What a turn's first call would send, and how many tokens that is: as its server counts, or about.

The request goes the way of a call, up to the connection: with what files add to it, without what its server
is known not to take, with tools in words where the backend calls none.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.llm.calls import guarded, in_words
from lemming.kernel.llm.tokens import estimate_tokens, tokens_in
from lemming.kernel.providers import LLMProvider, Request
from lemming.kernel.tick.backends import Backends
from lemming.kernel.tick.questions import question
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.parts import completed
from lemming.kernel.turn.values import TurnInputs

CountedBy = Literal["server", "estimate"]
IN_THE_MESSAGES = ("messages", "input", "system", "instructions", "model", "stream")
"""The fields of a body that hold what the messages are, or that say nothing of a prompt."""


FORM, FRAME = "reply form", "frame"
"""The parts that are nobody's words: what tells of the reply, and what a model's chat template adds."""


class PromptPart(NamedTuple):
    """A part of a prompt, by what it is about."""

    name: str
    text: str


class SentPrompt(NamedTuple):
    """The request of a turn's first call, who would send it, and its `body` as the server gets it.

    `body` is None for a backend that sends no JSON object.
    """

    request: Request
    provider: LLMProvider
    body: Mapping[str, Any] | None

    @property
    def further(self) -> dict[str, Any]:
        """What is sent beside the messages, in the words of the server: tools, schema, limits."""
        if self.body is None:
            tools = [tool for message in self.request.messages for tool in message.get("tools", ())]
            schema = {"schema": self.request.schema} if self.request.schema else {}
            return {**({"tools": tools} if tools else {}), **schema}
        return {key: value for key, value in self.body.items() if key not in IN_THE_MESSAGES}


class PromptSize(NamedTuple):
    """The tokens of a prompt, in all and by part. `counted_by`: whose count it is.

    `are_parts_exact`: the model's tokenizer counted the parts, too. `why`: the reason for an estimate.
    """

    tokens: int
    counted_by: CountedBy
    parts: Mapping[str, int]
    are_parts_exact: bool = False
    why: str = ""

    @property
    def boilerplate(self) -> float:
        """The share of the prompt that is nobody's words and no tool: the reply form and the frame."""
        return sum(self.parts.get(name, 0) for name in (FORM, FRAME)) / max(self.tokens, 1)


def sent_prompt(now: Snapshot, inputs: TurnInputs) -> SentPrompt:
    """Return what the first call of a turn would send. Nothing is sent."""
    entry = inputs.model
    backends = Backends(now.org.base, SystemClock(), threading.Event(), lambda _: None, now.config.org)
    provider = backends.bare(entry)
    request = question(inputs, entry, 0, inputs.question, None)
    if inputs.given:
        request = completed(request, entry, inputs, now.org.base, {})
    if provider.leaves_out:
        request = backends.suited(entry, request)
    if not provider.takes_tools:
        request = in_words(request)
    return SentPrompt(request, provider, provider.to_body(request))


def measure_prompt(sent: SentPrompt, parts: Sequence[PromptPart], *, asks_server: bool) -> PromptSize:
    """Return how many tokens a prompt has. With `asks_server` its backend is asked to count them."""
    counted, texts, why = _ask_to_count(sent, parts) if asks_server else (None, None, "")
    estimated = [estimate_tokens(part.text) for part in parts]
    if counted is None:
        total = max(tokens_in(sent.request.messages), sum(estimated))
        return PromptSize(total, "estimate", _by_name(parts, estimated, total), why=why)
    if texts is not None:
        return PromptSize(counted, "server", _by_name(parts, texts, counted), are_parts_exact=True)
    share = counted / max(sum(estimated), 1)
    return PromptSize(counted, "server", _by_name(parts, [round(it * share) for it in estimated], counted))


def _ask_to_count(sent: SentPrompt, parts: Sequence[PromptPart]) -> tuple[int | None, list[int] | None, str]:
    """Return the count of a prompt and of its parts, as far as there are any, else why there is none."""
    provider, request = sent.provider, sent.request
    name = f"{type(provider).__name__} {request.model_name}"
    try:
        counted = guarded(lambda: provider.count_tokens(request), name)
        if counted is None:
            return None, None, ""
        texts = [part.text for part in parts]
        return counted, guarded(lambda: provider.count_texts(request.model_name, texts), name), ""
    except ProviderError as error:
        return None, None, error.message


def _by_name(parts: Sequence[PromptPart], counts: Sequence[int], total: int) -> dict[str, int]:
    """Return the tokens by the name of their part, and what is left of all as those of the frame."""
    found: dict[str, int] = {}
    for part, count in zip(parts, counts, strict=True):
        if count:
            found[part.name] = found.get(part.name, 0) + count
    frame = total - sum(found.values())
    return {**found, FRAME: frame} if frame > 0 else found
