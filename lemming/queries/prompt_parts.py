"""The request of a turn's first call, an estimate of its tokens, and its parts by author.

The request takes the path of a real call up to the connection: content from files is added, fields
unsupported by the server are removed, and tools are described in text for backends without tool calls.

A part of the user message is the difference between the full message and the message built without a kind of content.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.inboxes.inbox import NO_INBOX
from lemming.kernel.llm.call_cost import estimate_prompt_tokens, estimate_tokens
from lemming.kernel.llm.model_call import describe_tool_calls
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.providers import LLMProvider, Request
from lemming.kernel.tick.live_chain import make_live_chain
from lemming.kernel.tick.model_backends import Backends
from lemming.kernel.tick.model_requests import build_request
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.live_phase import LivePhase, SendRequest
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_prompt import make_user_message
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.queries.tick_preview import PreparedPrompt

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


def build_first_request(tick_context: TickContext, inputs: TurnInputs) -> SentPrompt:
    """Return the request of a turn's first call, without sending it."""
    entry = inputs.model
    backends = Backends(
        tick_context.org.base, SystemClock(), threading.Event(), lambda _: None, tick_context.config.org
    )
    provider = backends.make_provider(entry)
    request = build_request(inputs, entry, 0, inputs.first_messages, None)
    if inputs.given:
        request = complete_request(request, entry, inputs, tick_context.org.base)
    if provider.leaves_out:
        request = backends.adapt_request(entry, request)
    if not provider.takes_tools:
        request = describe_tool_calls(request)
    return SentPrompt(request, provider, provider.to_body(request))


def measure_prompt(sent: SentPrompt, parts: Sequence[PromptPart]) -> PromptSize:
    """Return an estimate of the tokens of a prompt."""
    tokens = Counter[str]()
    for part in parts:
        if count := estimate_tokens(part.text):
            tokens[part.name] += count
    total = max(estimate_prompt_tokens(sent.request.messages), tokens.total())
    if frame := total - tokens.total():
        tokens[CHAT_TEMPLATE] = frame
    return PromptSize(total, tokens)


def complete_request(request: Request, entry: ModelEntry, inputs: TurnInputs, base: OrgPath) -> Request:
    """Return a request of a turn as it would be sent. Nothing is sent, and no limit counts it."""
    phase = LivePhase(inputs, base)
    chain = make_live_chain(phase, (), None)
    if chain is None:
        return request
    effect = SendRequest(key=inputs.agent.model.key, entry=entry, request=request, number=request.step)
    agreed, _ = chain.start(effect)
    return agreed.request if isinstance(agreed, SendRequest) else request


_MARK = re.compile(r"\b[0-9a-f]{32}\b")
_TOOL_LINE = re.compile(r"(?:  - )?([\w.-]+)(?:\(|: )")
"""Opening of a line about a tool: in the form of actions, and in the contract."""


def list_parts(prompted: PreparedPrompt, sent: SentPrompt) -> list[PromptPart]:
    """Return the parts of the prompt of a turn's first call, in the order of sending."""
    instructions = "\n\n".join([prompted.inputs.agent.instructions, *prompted.added_sections])
    parts = list[PromptPart]()
    for message in sent.request.messages:
        if message["role"] != "system":
            continue
        text_before, instruction_text, text_after = message["content"].partition(instructions)
        lines = f"{text_before}{text_after}".split("\n")
        tools = [line for line in lines if _is_tool_line(line, prompted.inputs)]
        parts.append(PromptPart("instructions", instruction_text))
        parts.append(PromptPart(REPLY_FORM, "\n".join(line for line in lines if line not in tools)))
        parts.append(PromptPart("tools", "\n".join([*tools, *map(to_line, message.get("tools", ()))])))
    messages = [message for message in sent.request.messages if message["role"] != "system"]
    own_count = len(messages) - len(prompted.inputs.dialogue)  # the last messages are from earlier turns
    parts += [PromptPart("examples", message["content"]) for message in messages[: max(own_count - 1, 0)]]
    for message in messages[:own_count][-1:]:
        parts += _split_user_message(prompted, message["content"])
    return parts + [PromptPart("conversation", describe_message(message)) for message in messages[own_count:]]


def _is_tool_line(line: str, inputs: TurnInputs) -> bool:
    """Return True for a line about a tool; lines about the engine's own actions belong to the reply format."""
    match = _TOOL_LINE.match(line)
    if match is None:
        return False
    if inputs.form:
        return inputs.form.style == "actions" and "(" in match[0] and match[1] not in inputs.form.own
    return line.startswith("  - ")


def _split_user_message(prompted: PreparedPrompt, text: str) -> Iterator[PromptPart]:
    """Yield the parts of the user message."""
    inputs, prompt_input = prompted.inputs, prompted.prompt_input
    if prompt_input is None or inputs.model.prompt == "values":
        yield PromptPart("turn", text)
        return
    lines = text.split("\n")
    all_lines = _remove_marks(lines)
    remaining_input = prompt_input
    for name, remove in _REMOVERS.items():
        other_lines = _remove_marks(make_user_message(remove(prompt_input), inputs.form, inputs.model))
        first, last = _find_changed_range(all_lines, other_lines)
        yield PromptPart(name, "\n".join(lines[first:last]))
        remaining_input = remove(remaining_input)
    yield PromptPart(
        REPLY_FORM, "" if inputs.form else "\n".join(make_user_message(remaining_input, inputs.form, inputs.model))
    )


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


def describe_message(message: Mapping[str, Any]) -> str:
    """Return the text of a message, followed by its calls, a line each."""
    calls = [f"{call['tool']}({to_line(call['args'])})" for call in message.get("calls", ())]
    return "\n".join([*filter(None, [message["content"]]), *calls])
