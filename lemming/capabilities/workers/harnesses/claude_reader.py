"""Output of Claude Code: `--output-format stream-json`.

`subtype: success` is no success: an HTTP 400 has it too, with `is_error: true`. The result's `usage` lacks replies that
were asked for again and those of helpers, `modelUsage` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import ErrorKind, Progress, RunTokens
from lemming.capabilities.workers.harnesses.line_reader import (
    Event,
    LineReader,
    add_tokens,
    classify_error,
    describe_call,
    get_cost,
    get_count,
    get_object,
    get_objects,
    get_text,
)

_LIMITS: dict[str, ErrorKind] = {"error_max_budget_usd": "budget", "error_max_turns": "turns"}


class ClaudeReader(LineReader):
    """Reads the output of one run of Claude Code."""

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        kind, subtype = get_text(event, "type"), get_text(event, "subtype")
        if kind in ("system", "result") and subtype != "error_during_execution":
            yield from self.start_session(get_text(event, "session_id"))
        if kind == "assistant":
            yield from self._read_message(get_object(event, "message"))
        elif kind == "system" and subtype == "api_retry":
            attempt, status = get_count(event, "attempt"), get_count(event, "error_status")
            yield Progress(kind="text", text=f"the model's server answered {status}, attempt {attempt}")
        elif kind == "result":
            self._read_result(event, subtype)

    def _read_message(self, message: Event) -> Iterator[Progress]:
        for block in get_objects(message, "content"):
            if get_text(block, "type") == "tool_use":
                yield describe_call(get_text(block, "name"), get_object(block, "input"))
            elif text := get_text(block, "text"):
                yield Progress(kind="text", text=text)

    def _read_result(self, event: Event, subtype: str) -> None:
        self.cost_usd = get_cost(event, "total_cost_usd")
        self.tokens = _sum_models(get_object(event, "modelUsage")) or _read_usage(get_object(event, "usage"))
        text, errors = get_text(event, "result"), event.get("errors")
        message = "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""
        if subtype == "success" and event.get("is_error") is False:
            self.text, self.error, self.message = text, "", ""
        elif subtype in _LIMITS:
            self.fail(_LIMITS[subtype], message or subtype)
        elif get_text(event, "terminal_reason").startswith("aborted"):
            self.fail("stopped", message or "the run was interrupted")
        else:
            status = get_count(event, "api_error_status")
            self.fail(classify_error(f"status {status}" if status else text), message or text or subtype)


def _sum_models(models: Event) -> RunTokens | None:
    total: RunTokens | None = None
    for name in models:
        usage = get_object(models, name)
        cached, written = get_count(usage, "cacheReadInputTokens"), get_count(usage, "cacheCreationInputTokens")
        tokens = RunTokens(
            input=get_count(usage, "inputTokens") + cached + written, output=get_count(usage, "outputTokens"),
            cached=cached, written=written,
        )  # fmt: skip
        total = add_tokens(total, tokens)
    return total


def _read_usage(usage: Event) -> RunTokens:
    cached, written = get_count(usage, "cache_read_input_tokens"), get_count(usage, "cache_creation_input_tokens")
    return RunTokens(
        input=get_count(usage, "input_tokens") + cached + written, output=get_count(usage, "output_tokens"),
        cached=cached, written=written,
    )  # fmt: skip
