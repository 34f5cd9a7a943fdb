"""Reading the instructions of an agent once for many turns, without changing a byte of any answer.

llama.cpp goes on from whatever beginning a prompt shares with an earlier one. Where it begins decides how the
rest is split into batches, and another split gives slightly other numbers: 2 of 10 answers of a model of 0.5B
changed. So each prompt is read in the same two parts, whatever was asked before: the system message, from an
empty context, then the rest. Only the first part is reused, at exactly its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Hear = Callable[[Any], bool]
"""Takes a piece of the stream, or several; returns whether the model is to stop."""

MEMORY_MIB = 256
"""What llama.cpp may take to keep prompts that it has read."""
_WORTH_READING_CHARS = 200
_PREFIXES_KNOWN = 256


class PrefixCache:
    """Asks llama.cpp in two parts; `send` takes a request's body and is called from one thread."""

    def __init__(self, send: Callable[[Json, Hear], object]) -> None:
        self._send = send
        # By the text of the first part: how many tokens prompts share with it, for parts read from the start.
        self._lengths: OrderedDict[str, int] = OrderedDict()

    def ask(self, body: Json, hear: Hear) -> int:
        """Send a request; return how many tokens of its prompt had been read for an earlier one."""
        text = _prefix_of(body["messages"])
        if not text:
            self._send({**body, "cache_prompt": False}, hear)
            return 0
        if length := self._lengths.get(text):
            self._lengths.move_to_end(text)
            if self._read_prefix(body, hear, reuse=True) == length and self._go_on(body, hear, length):
                return length
            self._lengths.pop(text)
        if self._read_prefix(body, hear, reuse=False) is None:  # the model's template wants a question in it
            self._send({**body, "cache_prompt": False}, hear)
            return 0
        if length := self._go_on(body, hear):
            self._lengths[text] = length
            while len(self._lengths) > _PREFIXES_KNOWN:
                self._lengths.popitem(last=False)
        return 0

    def _read_prefix(self, body: Json, hear: Hear, *, reuse: bool) -> int | None:
        """Have the first part read, or cut off what follows it; return how much of it had been read."""
        reading = _Reading(lambda _: hear([]))
        part = {"messages": body["messages"][:1], "max_tokens": 0, "cache_prompt": reuse}
        common = ("temperature", "seed", "stream", "stream_options", "return_progress")
        self._send({**{key: body[key] for key in common}, **part}, reading.hear)
        return reading.reused

    def _go_on(self, body: Json, hear: Hear, expected: int | None = None) -> int:
        """Have the rest read and answered; return how much was reused, 0 if that is not what was expected.

        Then nothing of the answer was heard.
        """
        reading = _Reading(hear, expected)
        self._send({**body, "cache_prompt": True}, reading.hear)
        return 0 if reading.is_other else reading.reused or 0


class _Reading:
    """Passes a stream on; notes how much llama.cpp reused, and stops it where that is unexpected."""

    def __init__(self, hear: Hear, expected: int | None = None) -> None:
        self._hear, self._expected = hear, expected
        self.reused: int | None = None
        self.is_other = False

    def hear(self, pieces: Json | list[Json]) -> bool:
        """Take a piece of the stream; return whether the model is to stop."""
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            if self.reused is None and "prompt_progress" in piece:
                self.reused = int(piece["prompt_progress"]["cache"])
                self.is_other = self._expected not in (None, self.reused)
        return self.is_other or self._hear(pieces)


def _prefix_of(messages: list[Json]) -> str:
    """Return the text of the system message; empty where reading it apart is not worth a call."""
    first = messages[0] if len(messages) > 1 else {}
    text = first.get("content") if first.get("role") == "system" else ""
    return text if isinstance(text, str) and len(text) >= _WORTH_READING_CHARS else ""
