"""The part of an output reader that all harnesses share, and the reader of plain text.

A line of output is written by a program that a model steers. The end of a run is success only if a line says so that
only a complete run prints, and the exit status agrees. Nothing in the output raises.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator

from lemming.capabilities.workers.harnesses.harness_types import (
    ErrorKind,
    HarnessResult,
    PermissionQuestion,
    Progress,
    RunTokens,
)
from lemming.capabilities.workers.running.api_shapes import JsonFields

MAX_MESSAGE_CHARS, MAX_TEXT_CHARS = 2000, 1_000_000
_LAST_LINES = 5
_STATUS = re.compile(r"(?:status:? |API Error: |HTTP |\(|^)([45]\d\d)\b", re.M)
_KINDS: dict[str, ErrorKind] = {"401": "auth", "403": "auth", "429": "rate_limit", "529": "rate_limit"}
_NAMES: dict[str, ErrorKind] = {
    "authentication_error": "auth", "authentication_failed": "auth", "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth", "rate_limit_error": "rate_limit", "RESOURCE_EXHAUSTED": "rate_limit",
}  # fmt: skip
_NO_SESSION = re.compile(
    r"No (conversation|session) found|Session not found|no rollout found|Invalid session identifier"
)
_SIGNAL_STATUSES = (130, 143)  # a program that catches SIGINT or SIGTERM and says so
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_EDITING_TOOLS = ("write", "edit", "multiedit", "notebookedit", "write_file", "replace", "patch")


def classify_error(*texts: str) -> ErrorKind:
    """Return the kind of an error of the model's server, from the words of a harness.

    >>> classify_error("unexpected status 401 Unauthorized: no key"), classify_error("400 bad request")
    ('auth', 'model')
    """
    for text in texts:
        if match := _STATUS.search(text):
            return _KINDS.get(match[1], "model")
        if kind := next((kind for name, kind in _NAMES.items() if name in text), None):
            return kind
    return "model"


def describe_call(tool: str, arguments: JsonFields) -> Progress:
    """Return the progress of a tool call: a changed file, or the tool with its most telling argument."""
    path = arguments.get_text("file_path", "filePath", "path", "notebook_path")
    if path and tool.lower() in _EDITING_TOOLS:
        return Progress(kind="file", text=tool, path=path)
    detail = arguments.get_text("command", "cmd", "pattern", "query", "url", "description") or path
    return Progress(kind="tool", text=f"{tool}: {detail}" if detail else tool, path=path)


class OutputReader:
    """Reads the output of one run, JSON lines, and writes its input. A subclass reads the events.

    `answers`: bytes for standard input, which the caller takes. `is_answering`: the input stays open for answers.
    `ignored_prefix`: beginning of lines that need not be parsed.
    """

    is_answering = False
    ignored_prefix: str | tuple[str, ...] = ()

    def __init__(self) -> None:
        self.text, self.session, self.message, self.answers = "", "", "", b""
        self.tokens: RunTokens | None = None
        self.cost_usd: float | None = None
        self.error: ErrorKind | None = None  # empty once the harness has told a success, None until it has told an end
        self.questions: list[PermissionQuestion] = []
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def encode_prompt(self, prompt: str) -> bytes:
        """Return the input that starts the turn."""
        return prompt.encode()

    def read_line(self, line: bytes) -> Iterator[Progress]:
        """Yield the progress that a line of standard output tells."""
        text = line.decode("utf-8", "replace").strip()
        if text:
            self._last_lines.append(text[:MAX_MESSAGE_CHARS])
        try:
            event = {} if text.startswith(self.ignored_prefix) else json.loads(text)
        except (ValueError, RecursionError):  # words of another program, or a line that was cut
            return
        if isinstance(event, dict):
            yield from self._read_event(JsonFields(event))

    def finish(self, exit_status: int, error_output: str) -> HarnessResult:
        """Return the result, once the harness has ended. `exit_status` is negative for a signal."""
        error, message = self.error, self.message
        error_output = _COLOURS.sub("", error_output)
        if error == "" and exit_status != 0:
            error, message = "exit", f"exit status must be 0 after a success, got {exit_status}"
        if error is None:
            is_signal = exit_status < 0 or exit_status in _SIGNAL_STATUSES
            error = "stopped" if is_signal else "exit" if exit_status else "unreadable"
            message = error_output.strip()[-MAX_MESSAGE_CHARS:] or "\n".join(self._last_lines)[-MAX_MESSAGE_CHARS:]
            message = message or f"no output, exit status {exit_status}"
        elif error == "model":
            # The line that tells an error often lacks the status of the HTTP answer.
            error = classify_error(message, error_output)
        if error and _NO_SESSION.search(message):
            error = "session"
        if error == "stopped" and self.questions:  # a question for a person interrupts the turn
            error, message = "", ""
        return HarnessResult(
            text=self.text.strip(), session=self.session, tokens=self.tokens, cost_usd=self.cost_usd, error=error,
            message=message, questions=tuple(self.questions),
        )  # fmt: skip

    def _read_event(self, event: JsonFields) -> Iterator[Progress]:
        raise NotImplementedError

    def _start_session(self, session: str) -> Iterator[Progress]:
        if session and session != self.session:
            self.session = session
            yield Progress(kind="session", text=session)

    def _tell(self, text: str) -> Iterator[Progress]:
        """Keep and yield a text of the model. The last text is the reply."""
        if text:
            self.text = text
            yield Progress(kind="text", text=text)

    def _add_usage(self, tokens: RunTokens, cost_usd: float | None = None) -> None:
        self.tokens = (self.tokens or RunTokens()) + tokens
        # A cost of 0 is that of a model without a price.
        self.cost_usd = (self.cost_usd or 0.0) + cost_usd if cost_usd else self.cost_usd

    def end_turn(self, error: ErrorKind = "", message: str = "") -> None:
        """Keep the end of the run: an error, or success."""
        self.error, self.message = error, message[:MAX_MESSAGE_CHARS]


class TextReader(OutputReader):
    """Reads plain text: all of standard output is the reply, and the exit status decides."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._size = 0

    def read_line(self, line: bytes) -> Iterator[Progress]:
        """Yield a line as progress."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        self._size += len(text) + 1
        if self._size <= MAX_TEXT_CHARS:
            self._lines.append(text)
            yield Progress(kind="text", text=text)

    def finish(self, exit_status: int, error_output: str) -> HarnessResult:
        """Return the result. `exit_status` is negative for a signal."""
        self.text = "\n".join(self._lines).strip()
        if exit_status == 0 and self._size <= MAX_TEXT_CHARS:
            self.end_turn()
        elif exit_status == 0:
            self.end_turn("unreadable", f"output must have at most {MAX_TEXT_CHARS} characters, got {self._size}")
        return super().finish(exit_status, error_output)
