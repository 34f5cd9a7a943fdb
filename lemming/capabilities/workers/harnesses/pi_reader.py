"""Output of pi: `--mode json`. Its exit status is 0 after every error of a model, and it retries by itself.

The last message of the model decides. A message without content is what pi makes of an answer that it could not read.
"""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import Progress, RunTokens
from lemming.capabilities.workers.harnesses.line_reader import (
    Event,
    LineReader,
    add_tokens,
    describe_call,
    get_cost,
    get_count,
    get_object,
    get_objects,
    get_text,
)


class PiReader(LineReader):
    """Reads the output of one run of pi."""

    def __init__(self) -> None:
        super().__init__()
        self._last_message: Event = {}

    def is_ignored(self, text: str) -> bool:
        """Return True for an update, which repeats the whole message so far."""
        return text.startswith('{"type":"message_update"')

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        match get_text(event, "type"):
            case "session":
                yield from self.start_session(get_text(event, "id"))
            case "tool_execution_start":
                yield describe_call(get_text(event, "toolName"), get_object(event, "args"))
            case "auto_retry_start":
                yield Progress(kind="text", text=get_text(event, "errorMessage"))
            case "message_end":
                message = get_object(event, "message")
                if get_text(message, "role") == "assistant":
                    yield from self._read_message(message)
            case "agent_end":
                self._read_end()

    def _read_message(self, message: Event) -> Iterator[Progress]:
        self._last_message = message
        usage = get_object(message, "usage")
        self.tokens = add_tokens(self.tokens, _read_usage(usage))
        # A cost of 0 is that of a model without a price.
        cost = get_cost(get_object(usage, "cost"), "total")
        self.cost_usd = (self.cost_usd or 0.0) + cost if cost else self.cost_usd
        text = _join_texts(message)
        if text:
            self.text = text
            yield Progress(kind="text", text=text)

    def _read_end(self) -> None:
        reason = get_text(self._last_message, "stopReason")
        message = get_text(self._last_message, "errorMessage")
        if reason == "aborted":
            self.fail("stopped", message or "the run was aborted")
        elif reason != "stop":
            self.fail("model", message or f"stopReason must be stop, got {reason!r}")
        elif not get_objects(self._last_message, "content"):
            self.fail("model", "the model's last message is empty")
        else:
            self.error, self.message = "", ""


def _join_texts(message: Event) -> str:
    return "".join(get_text(part, "text") for part in get_objects(message, "content"))


def _read_usage(usage: Event) -> RunTokens:
    cached, written = get_count(usage, "cacheRead"), get_count(usage, "cacheWrite")
    return RunTokens(
        input=get_count(usage, "input") + cached + written, output=get_count(usage, "output"),
        cached=cached, written=written,
    )  # fmt: skip
