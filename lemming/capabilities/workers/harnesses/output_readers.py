"""The readers of output, by name. `output` of a harness names its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lemming.capabilities.workers.harnesses.claude_reader import ClaudeReader
from lemming.capabilities.workers.harnesses.codex_reader import CodexReader
from lemming.capabilities.workers.harnesses.gemini_reader import GeminiReader
from lemming.capabilities.workers.harnesses.harness_types import (
    ErrorKind,
    HarnessResult,
    OutputReader,
    Progress,
    RunTokens,
)
from lemming.capabilities.workers.harnesses.line_reader import MAX_MESSAGE_CHARS
from lemming.capabilities.workers.harnesses.opencode_reader import OpenCodeReader
from lemming.capabilities.workers.harnesses.pi_reader import PiReader
from lemming.ext import ConfigError

MAX_TEXT_CHARS = 1_000_000
_READERS: dict[str, Callable[[], OutputReader]] = {
    "claude-stream-json": ClaudeReader,
    "gemini-json": GeminiReader,
    "opencode-json": OpenCodeReader,
    "pi-json": PiReader,
    "text": lambda: TextReader(),
}


def make_reader(name: str, earlier: RunTokens | None = None) -> OutputReader:
    """Return a reader for the output of one run.

    `earlier`: tokens of the session's runs before this one, as the harness counted them. Codex counts them again.

    Raises: `ConfigError` for an unknown name.
    """
    if name == "codex-json":
        return CodexReader(earlier or RunTokens())
    if name not in _READERS:
        raise ConfigError(f"output must be one of {', '.join(sorted([*_READERS, 'codex-json']))}, got {name!r}")
    return _READERS[name]()


class TextReader:
    """Reads plain text: all of standard output is the reply, and the exit status decides."""

    def __init__(self) -> None:
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
        text = "\n".join(self._lines).strip()
        message = error_output.strip()[-MAX_MESSAGE_CHARS:]
        if exit_status:
            error: ErrorKind = "stopped" if exit_status < 0 or exit_status in (130, 143) else "exit"
            return HarnessResult(text=text, error=error, message=message or f"exit status {exit_status}")
        if self._size > MAX_TEXT_CHARS:
            message = f"output must have at most {MAX_TEXT_CHARS} characters, got {self._size}"
            return HarnessResult(text=text, error="unreadable", message=message)
        return HarnessResult(text=text)
