"""Answers as they are written: handed on to whoever watches, with no secret in them. Pure."""

from __future__ import annotations

from collections.abc import Callable

from lemming.kernel.base.redaction.secrets import redact_foreign, unfinished

Hear = Callable[[str], object]
"""Called with each piece of text of an answer, as it comes."""

LONGEST_HELD = 400  # beyond that a text without a space is told as it is


class WholeWords:
    """Hands text on in whole words, so that no secret is told in two halves."""

    def __init__(self, hear: Hear) -> None:
        self._hear, self._held = hear, ""

    def hear(self, piece: str) -> None:
        """Take a piece of text."""
        self._held += piece
        end = max(map(self._held.rfind, " \n\t")) + 1
        end = min(end, len(self._held) - unfinished(self._held)[0])
        if end or len(self._held) > LONGEST_HELD:
            self._tell(end or len(self._held))

    def end(self) -> None:
        """Hand on what is left."""
        self._tell(len(self._held))

    def _tell(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        if text:
            self._hear(redact_foreign(text))
