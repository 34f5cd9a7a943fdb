"""The part of an output reader that all harnesses with JSON lines share.

A line of output is written by a program that a model steers: every field may be missing, of another type, or huge. The
end of a run is success only if a line says so that only a complete run prints, and the exit status agrees.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from lemming.capabilities.workers.harnesses.harness_types import ErrorKind, HarnessResult, Progress, RunTokens
from lemming.kernel.base.integers import bounded_int

Event = Mapping[str, Any]
"""The JSON object of a line."""

MAX_MESSAGE_CHARS = 2000
_LAST_LINES = 5
_STATUS = re.compile(r"(?:status:? |API Error: |HTTP |\(|^)([45]\d\d)\b", re.M)
_KINDS: dict[str, ErrorKind] = {"401": "auth", "403": "auth", "429": "rate_limit", "529": "rate_limit"}
_NAMES: dict[str, ErrorKind] = {
    "authentication_error": "auth", "authentication_failed": "auth", "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth", "rate_limit_error": "rate_limit", "RESOURCE_EXHAUSTED": "rate_limit",
}  # fmt: skip
_NO_SESSION = re.compile(
    r"No conversation found|No session found|Session not found|no rollout found|Invalid session identifier"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SIGNAL_STATUSES = (130, 143)  # a program that catches SIGINT or SIGTERM and says so


def get_object(event: Event, key: str) -> Event:
    """Return an object of an event, or an empty one."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}


def get_objects(event: Event, key: str) -> list[Event]:
    """Return the objects of a list of an event, or an empty list."""
    value = event.get(key)
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def get_text(event: Event, *keys: str) -> str:
    """Return the first text among the values of an event, or an empty text."""
    text = next((value for key in keys if isinstance(value := event.get(key), str) and value), "")
    # An escape may produce half a character, which no file can hold.
    return text.encode("utf-8", "replace").decode() if "\ud800" <= max(text, default="") <= "\udfff" else text


def get_count(event: Event, key: str) -> int:
    """Return a number of tokens, or 0."""
    return bounded_int(event.get(key)) or 0


def get_cost(event: Event, key: str) -> float | None:
    """Return an amount of dollars, or None for anything else."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= 1e9 and math.isfinite(value) else None


def add_tokens(total: RunTokens | None, more: RunTokens) -> RunTokens:
    """Return the sum of two numbers of tokens."""
    if total is None:
        return more
    return RunTokens(
        input=total.input + more.input, output=total.output + more.output,
        cached=total.cached + more.cached, written=total.written + more.written,
    )  # fmt: skip


def classify_error(*texts: str) -> ErrorKind:
    """Return the kind of an error of the model's server, from the words of a harness.

    >>> classify_error("unexpected status 401 Unauthorized: no key"), classify_error("400 bad request")
    ('auth', 'model')
    """
    for text in texts:
        match = _STATUS.search(text)
        if match:
            return _KINDS.get(match[1], "model")
        if kind := next((kind for name, kind in _NAMES.items() if name in text), None):
            return kind
    return "model"


def describe_call(tool: str, arguments: Event) -> Progress:
    """Return the progress of a tool call: a changed file, or the tool with its most telling argument."""
    path = get_text(arguments, "file_path", "filePath", "path", "notebook_path")
    if path and tool.lower() in ("write", "edit", "multiedit", "notebookedit", "write_file", "replace", "patch"):
        return Progress(kind="file", text=tool, path=path)
    detail = get_text(arguments, "command", "cmd", "pattern", "query", "url", "description") or path
    return Progress(kind="tool", text=f"{tool}: {detail}" if detail else tool, path=path)


class LineReader:
    """An output reader for JSON lines. A subclass reads the events, and sets the fields that the result is made of."""

    def __init__(self) -> None:
        self.text, self.session, self.message = "", "", ""
        self.tokens: RunTokens | None = None
        self.cost_usd: float | None = None
        self.error: ErrorKind | None = None
        """Empty once the harness has told a success, None as long as it has told no end."""
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def read_line(self, line: bytes) -> Iterator[Progress]:
        """Yield the progress that a line of standard output tells."""
        text = line.decode("utf-8", "replace").strip()
        if not text:
            return
        self._last_lines.append(text[:MAX_MESSAGE_CHARS])
        if self.is_ignored(text):
            return
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):  # words of another program, or a line that was cut
            return
        if isinstance(event, dict):
            yield from self.read_event(event)

    def is_ignored(self, text: str) -> bool:
        """Return True for a line that need not be parsed."""
        return False

    def read_event(self, event: Event) -> Iterator[Progress]:
        """Yield the progress that an event tells, and keep its part of the result."""
        raise NotImplementedError

    def start_session(self, session: str) -> Iterator[Progress]:
        """Keep the session's id, and yield it when it is new."""
        if session and session != self.session:
            self.session = session
            yield Progress(kind="session", text=session)

    def fail(self, error: ErrorKind, message: str) -> None:
        """Keep an error that ends the run."""
        self.error, self.message = error, message[:MAX_MESSAGE_CHARS]

    def finish(self, exit_status: int, error_output: str) -> HarnessResult:
        """Return the result. `exit_status` is negative for a signal."""
        error, message = self.error, self.message
        error_output = _COLOURS.sub("", error_output)
        if error == "" and exit_status != 0:
            error, message = "exit", f"exit status must be 0 after a success, got {exit_status}"
        if error is None:
            error = self._explain_missing_end(exit_status, error_output)
            message = error_output.strip()[-MAX_MESSAGE_CHARS:] or "\n".join(self._last_lines)[-MAX_MESSAGE_CHARS:]
            message = message or f"no output, exit status {exit_status}"
        elif error == "model":
            # The line that tells an error often lacks the status of the HTTP answer.
            error = classify_error(message, error_output)
        if error and _NO_SESSION.search(message):
            error = "session"
        return HarnessResult(
            text=self.text,
            session=self.session,
            tokens=self.tokens,
            cost_usd=self.cost_usd,
            error=error,
            message=message,
        )

    def _explain_missing_end(self, exit_status: int, error_output: str) -> ErrorKind:
        if exit_status < 0 or exit_status in _SIGNAL_STATUSES:
            return "stopped"
        return "exit" if exit_status else "unreadable"
