"""Calls that give the same again and again: by tool, arguments and result: polling is none. Pure."""

from __future__ import annotations

from hashlib import blake2b

from lemming.contract import ToolCall
from lemming.files.jsontext import compact
from lemming.tools import ToolResult

HINT_AT, STUCK_AT = 3, 4
"""At how many times the model is told, and at how many the turn is over."""

HINT = "This call has given the same three times; do something else or finish."


class Repeats:
    """The calls of one turn, counted: what one reply asks for twice counts once, for it was not told yet.

    `hinted`: the results, by number, with which the model is told.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._of_reply: set[bytes] = set()
        self.hinted: set[int] = set()

    def begin_reply(self) -> None:
        """Begin with the calls of another reply."""
        self._of_reply.clear()

    def is_stuck(self, index: int, call: ToolCall, result: ToolResult) -> bool:
        """Count a call with its result, number `index`, and return whether it was made too often."""
        said = compact([call.tool, call.args, result.success, result.output])
        key = blake2b(said, digest_size=16).digest()
        if key in self._of_reply:
            return False
        self._of_reply.add(key)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == HINT_AT:
            self.hinted.add(index)
        return self._counts[key] >= STUCK_AT
