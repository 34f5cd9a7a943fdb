"""Output of Codex: `codex exec --json`.

`turn.completed.usage` is that of the whole thread, so the tokens of earlier runs are taken off. An item of type `error`
is a warning; the run goes on. A command that Codex's own sandbox stopped has no line at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import Progress, RunTokens
from lemming.capabilities.workers.harnesses.line_reader import (
    Event,
    LineReader,
    describe_call,
    get_count,
    get_object,
    get_objects,
    get_text,
)


class CodexReader(LineReader):
    """Reads the output of one run of Codex. `earlier`: tokens of the thread's runs before this one."""

    def __init__(self, earlier: RunTokens) -> None:
        super().__init__()
        self._earlier = earlier

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        match get_text(event, "type"):
            case "thread.started":
                yield from self.start_session(get_text(event, "thread_id"))
            case "item.started":
                yield from _describe_item(get_object(event, "item"))
            case "item.completed":
                item = get_object(event, "item")
                if get_text(item, "type") == "agent_message":
                    self.text = get_text(item, "text")
                    yield Progress(kind="text", text=self.text)
            case "error":  # the server is asked again, or `turn.failed` follows
                yield Progress(kind="text", text=get_text(event, "message"))
            case "turn.failed":
                self.fail("model", get_text(get_object(event, "error"), "message") or "turn.failed")
            case "turn.completed":
                self.error, self.message = "", ""
                self.tokens = _subtract(_read_usage(get_object(event, "usage")), self._earlier)


def _describe_item(item: Event) -> Iterator[Progress]:
    kind = get_text(item, "type")
    if kind == "command_execution":
        yield describe_call("shell", item)
    elif kind == "file_change":
        for change in get_objects(item, "changes"):
            yield Progress(kind="file", text=get_text(change, "kind"), path=get_text(change, "path"))
    elif kind not in ("agent_message", "reasoning", "error"):
        yield describe_call(get_text(item, "tool") or kind, item)


def _read_usage(usage: Event) -> RunTokens:
    return RunTokens(
        input=get_count(usage, "input_tokens"), output=get_count(usage, "output_tokens"),
        cached=get_count(usage, "cached_input_tokens"), written=get_count(usage, "cache_write_input_tokens"),
    )  # fmt: skip


def _subtract(total: RunTokens, earlier: RunTokens) -> RunTokens:
    """Return the tokens of this run. A thread that Codex has cut counts from 0 again."""
    if total.input < earlier.input or total.output < earlier.output:
        return total
    return RunTokens(
        input=total.input - earlier.input, output=total.output - earlier.output,
        cached=max(0, total.cached - earlier.cached), written=max(0, total.written - earlier.written),
    )  # fmt: skip
