"""Prompt prefixes read once for many turns, without any change of an answer.

llama.cpp continues from the longest common beginning with an earlier prompt. The position decides the split
of the rest into batches, and another split gives slightly different numbers: 2 of 10 answers of a model of
0.5B changed. So each prompt is read in the same two parts, regardless of earlier prompts: the system message,
from an empty context, then the rest. Only the first part is reused, with exactly the same length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
OnPieces = Callable[[Any], bool]
"""Takes one or more pieces of the stream; returns True to stop the model."""

MEMORY_MIB = 256
"""Maximum bytes of llama.cpp's cache of prompts."""
_MIN_PREFIX_CHARS = 200
_MAX_PREFIXES = 256


class PrefixCache:
    """Calls llama.cpp in two parts. `send` takes a request's body and runs on one thread."""

    def __init__(self, send: Callable[[Json, OnPieces], object]) -> None:
        self._send = send
        # By the text of the first part: number of tokens shared by prompts, for parts read from the start.
        self._lengths: OrderedDict[str, int] = OrderedDict()

    def ask(self, body: Json, on_pieces: OnPieces) -> int:
        """Send a request; return the number of prompt tokens reused from an earlier request."""
        text = _get_prefix(body["messages"])
        if not text:
            self._send({**body, "cache_prompt": False}, on_pieces)
            return 0
        if length := self._lengths.get(text):
            self._lengths.move_to_end(text)
            if self._read_prefix(body, on_pieces, reuse=True) == length and self._complete_rest(
                body, on_pieces, length
            ):
                return length
            self._lengths.pop(text)
        if self._read_prefix(body, on_pieces, reuse=False) is None:  # the model's template wants a question in it
            self._send({**body, "cache_prompt": False}, on_pieces)
            return 0
        if length := self._complete_rest(body, on_pieces):
            self._lengths[text] = length
            while len(self._lengths) > _MAX_PREFIXES:
                self._lengths.popitem(last=False)
        return 0

    def _read_prefix(self, body: Json, on_pieces: OnPieces, *, reuse: bool) -> int | None:
        """Read the first part, or cut off the rest; return the number of tokens already read."""
        progress = _ReuseMonitor(lambda _: on_pieces([]))
        part = {"messages": body["messages"][:1], "max_tokens": 0, "cache_prompt": reuse}
        common = ("temperature", "seed", "stream", "stream_options", "return_progress")
        self._send({**{key: body[key] for key in common}, **part}, progress.on_pieces)
        return progress.reused

    def _complete_rest(self, body: Json, on_pieces: OnPieces, expected: int | None = None) -> int:
        """Read the rest and answer. Return the number of reused tokens, or 0 if unexpected, with nothing passed on."""
        progress = _ReuseMonitor(on_pieces, expected)
        self._send({**body, "cache_prompt": True}, progress.on_pieces)
        return 0 if progress.is_unexpected else progress.reused or 0


class _ReuseMonitor:
    """Passes a stream on; records the number of reused tokens, and stops an unexpected reuse."""

    def __init__(self, on_pieces: OnPieces, expected: int | None = None) -> None:
        self._on_pieces, self._expected = on_pieces, expected
        self.reused: int | None = None
        self.is_unexpected = False

    def on_pieces(self, pieces: Json | list[Json]) -> bool:
        """Pass a piece of the stream on; return True to stop the model."""
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            if self.reused is None and "prompt_progress" in piece:
                self.reused = int(piece["prompt_progress"]["cache"])
                self.is_unexpected = self._expected not in (None, self.reused)
        return self.is_unexpected or self._on_pieces(pieces)


def _get_prefix(messages: list[Json]) -> str:
    """Return the text of the system message, or an empty string if too short for a separate call."""
    first = messages[0] if len(messages) > 1 else {}
    text = first.get("content") if first.get("role") == "system" else ""
    return text if isinstance(text, str) and len(text) >= _MIN_PREFIX_CHARS else ""
