"""Output of the Gemini CLI: `--output-format stream-json`. The status of an HTTP error is on standard error only."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import Progress, RunTokens
from lemming.capabilities.workers.harnesses.line_reader import (
    Event,
    LineReader,
    describe_call,
    get_count,
    get_object,
    get_text,
)


class GeminiReader(LineReader):
    """Reads the output of one run of the Gemini CLI."""

    def __init__(self) -> None:
        super().__init__()
        self._last_error = ""

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        match get_text(event, "type"):
            case "init":
                yield from self.start_session(get_text(event, "session_id"))
            case "message":
                if get_text(event, "role") == "assistant" and (text := get_text(event, "content")):
                    self.text += text
                    yield Progress(kind="text", text=text)
            case "tool_use":
                self.text = ""  # the reply is the text after the last call
                yield describe_call(get_text(event, "tool_name"), get_object(event, "parameters"))
            case "error":  # the result of a failed run may have no words of its own
                self._last_error = get_text(event, "message")
                yield Progress(kind="text", text=self._last_error)
            case "result":
                self._read_result(event)

    def _read_result(self, event: Event) -> None:
        stats = get_object(event, "stats")
        self.tokens = RunTokens(
            input=get_count(stats, "input_tokens"), output=get_count(stats, "output_tokens"),
            cached=get_count(stats, "cached"),
        )  # fmt: skip
        error = get_object(event, "error")
        if get_text(event, "status") == "success" and not error:
            self.error, self.message = "", ""
        else:
            message = get_text(error, "message") or self._last_error
            self.fail("model", message or f"status must be success, got {get_text(event, 'status')!r}")
