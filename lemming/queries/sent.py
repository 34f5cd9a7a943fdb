"""The request of a turn's first call, and an estimate of its tokens.

The request takes the path of a real call up to the connection: content from files is added, fields
unsupported by the server are removed, and tools are described in text for backends without tool calls.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.clock import SystemClock
from lemming.kernel.llm.call_cost import estimate_prompt_tokens, estimate_tokens
from lemming.kernel.llm.model_call import describe_tool_calls
from lemming.kernel.providers import LLMProvider, Request
from lemming.kernel.tick.live_chain import make_live_chain
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.tick.model_requests import build_request
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.live_phase import LivePhase, SendRequest
from lemming.kernel.turn.turn_values import TurnInputs

if TYPE_CHECKING:
    from pathlib import Path

    from lemming.kernel.org.model_entries import ModelEntry
    from lemming.kernel.org.organisation import OrgPath

MESSAGE_FIELDS = ("messages", "input", "system", "instructions", "model", "stream")
"""Fields of a body that contain the messages, or nothing of the prompt."""


REPLY_FORM, CHAT_TEMPLATE = "reply form", "frame"
"""Parts without an author: the reply's form, and additions of a model's chat template."""


class PromptPart(NamedTuple):
    """A part of a prompt, named after its content."""

    name: str
    text: str


class SentPrompt(NamedTuple):
    """The request of a turn's first call, its provider, and the `body` sent, or None if not a JSON object."""

    request: Request
    provider: LLMProvider
    body: Mapping[str, Any] | None

    @property
    def extra_fields(self) -> dict[str, Any]:
        """The fields sent besides the messages, in the server's format: tools, schema, limits."""
        if self.body is None:
            tools = [tool for message in self.request.messages for tool in message.get("tools", ())]
            schema = {"schema": self.request.schema} if self.request.schema else {}
            return {**({"tools": tools} if tools else {}), **schema}
        return {key: value for key, value in self.body.items() if key not in MESSAGE_FIELDS}


class PromptSize(NamedTuple):
    """The estimated tokens of a prompt, in total and by part."""

    tokens: int
    parts: Mapping[str, int]

    @property
    def boilerplate(self) -> float:
        """The share of the reply form and the chat template in the prompt, from 0 to 1."""
        return sum(self.parts.get(name, 0) for name in (REPLY_FORM, CHAT_TEMPLATE)) / max(self.tokens, 1)


def build_first_request(snapshot: Snapshot, inputs: TurnInputs) -> SentPrompt:
    """Return the request of a turn's first call, without sending it."""
    entry = inputs.model
    backends = Backends(snapshot.org.base, SystemClock(), threading.Event(), lambda _: None, snapshot.config.org)
    provider = backends.make_provider(entry)
    request = build_request(inputs, entry, 0, inputs.first_messages, None)
    if inputs.given:
        request = complete_request(request, entry, inputs, snapshot.org.base)
    if provider.leaves_out:
        request = backends.adapt_request(entry, request)
    if not provider.takes_tools:
        request = describe_tool_calls(request)
    return SentPrompt(request, provider, provider.to_body(request))


def measure_prompt(sent: SentPrompt, parts: Sequence[PromptPart]) -> PromptSize:
    """Return an estimate of the tokens of a prompt."""
    estimates = [estimate_tokens(part.text) for part in parts]
    total = max(estimate_prompt_tokens(sent.request.messages), sum(estimates))
    return PromptSize(total, _sum_by_name(parts, estimates, total))


def _sum_by_name(parts: Sequence[PromptPart], counts: Sequence[int], total: int) -> dict[str, int]:
    """Return the tokens by part name; the remainder of the total belongs to the chat template."""
    tokens_by_name: dict[str, int] = {}
    for part, count in zip(parts, counts, strict=True):
        if count:
            tokens_by_name[part.name] = tokens_by_name.get(part.name, 0) + count
    frame = total - sum(tokens_by_name.values())
    return {**tokens_by_name, CHAT_TEMPLATE: frame} if frame > 0 else tokens_by_name


def complete_request(request: Request, entry: ModelEntry, inputs: TurnInputs, base: Path | OrgPath) -> Request:
    """Return a request of a turn as it would be sent. Nothing is sent, and no limit counts it."""
    phase = LivePhase(inputs, base)
    chain = make_live_chain(phase, (), None)
    if chain is None:
        return request
    effect = SendRequest(key=inputs.agent.model.key, entry=entry, request=request, number=request.step)
    agreed = chain.advance(chain.begin(effect), SendRequest)
    return agreed.request if isinstance(agreed, SendRequest) else request
