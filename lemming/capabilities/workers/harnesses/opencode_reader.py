"""Output of OpenCode: `opencode run --format json`. A step ends with its tokens; reason "stop" ends the run."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import Progress, RunTokens
from lemming.capabilities.workers.harnesses.line_reader import (
    Event,
    LineReader,
    add_tokens,
    classify_error,
    describe_call,
    get_cost,
    get_count,
    get_object,
    get_text,
)


class OpenCodeReader(LineReader):
    """Reads the output of one run of OpenCode."""

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        yield from self.start_session(get_text(event, "sessionID"))
        part = get_object(event, "part")
        match get_text(event, "type"):
            case "text":
                self.text = get_text(part, "text")
                yield Progress(kind="text", text=self.text)
            case "tool_use":
                yield describe_call(get_text(part, "tool"), get_object(get_object(part, "state"), "input"))
            case "step_finish":
                self._read_step(part)
            case "error":
                self._read_error(get_object(event, "error"))

    def _read_step(self, part: Event) -> None:
        self.tokens = add_tokens(self.tokens, _read_usage(get_object(part, "tokens")))
        # A cost of 0 is that of a model without a price.
        cost = get_cost(part, "cost")
        self.cost_usd = (self.cost_usd or 0.0) + cost if cost else self.cost_usd
        if get_text(part, "reason") == "stop":
            self.error, self.message = "", ""

    def _read_error(self, error: Event) -> None:
        data = get_object(error, "data")
        status = get_count(data, "statusCode")
        message = get_text(data, "message") or get_text(error, "name") or "error"
        self.fail(classify_error(f"status {status}" if status else message), message)


def _read_usage(usage: Event) -> RunTokens:
    cache = get_object(usage, "cache")
    cached, written = get_count(cache, "read"), get_count(cache, "write")
    return RunTokens(
        input=get_count(usage, "input") + cached + written,
        output=get_count(usage, "output") + get_count(usage, "reasoning"),
        cached=cached, written=written,
    )  # fmt: skip
