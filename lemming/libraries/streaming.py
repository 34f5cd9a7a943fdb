"""Streamed answers, passed to observers without secrets. Pure."""

from __future__ import annotations

from collections.abc import Callable

from lemming.kernel.base.redaction.secrets import find_partial_secret, redact_untrusted

DeltaCallback = Callable[[str], object]
"""Called with each piece of text of an answer, as it comes."""

MAX_BUFFERED = 400  # longer text without a space is sent as it is


class WordBuffer:
    """Buffer that passes text on in whole words, because a secret split in two would not be recognised."""

    def __init__(self, on_delta: DeltaCallback) -> None:
        self._on_delta, self._buffer = on_delta, ""

    def feed(self, piece: str) -> None:
        """Add a piece of text."""
        self._buffer += piece
        end = max(map(self._buffer.rfind, " \n\t")) + 1
        end = min(end, len(self._buffer) - find_partial_secret(self._buffer)[0])
        if end or len(self._buffer) > MAX_BUFFERED:
            self._emit(end or len(self._buffer))

    def flush(self) -> None:
        """Pass on the remaining text."""
        self._emit(len(self._buffer))

    def _emit(self, end: int) -> None:
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        if text:
            self._on_delta(redact_untrusted(text))
