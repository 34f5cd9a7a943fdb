"""Calls that give the same again and again: by tool, arguments and result: polling is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from lemming.contract import ToolCall
from lemming.files.jsontext import compact
from lemming.tools import ToolResult

HINT_AT, STUCK_AT = 3, 4
"""At how many times the model is told, and at how many the turn is over."""

HINT = "This call has given the same three times; do something else or finish."


KEPT = 64
"""So many calls that were in vain are remembered from turn to turn."""


class Repeats:
    """The calls of one turn, counted: what one reply asks for twice counts once, for it was not told yet.

    `before`: how often calls were in vain in earlier turns for the same request; `in_vain`: with those of
    this turn. `hinted`: the results, by number, with which the model is told. `is_round`: a call was in vain
    so often, over several turns, that another one would come to the same.
    """

    def __init__(self, before: Mapping[str, int] | None = None) -> None:
        self.in_vain: dict[str, int] = {**(before or {})}
        self._counts = {**self.in_vain}
        self._before = frozenset(self.in_vain)
        self._of_reply: set[str] = set()
        self.hinted: set[int] = set()
        self.is_round = False

    def begin_reply(self) -> None:
        """Begin with the calls of another reply."""
        self._of_reply.clear()

    def is_stuck(self, index: int, call: ToolCall, result: ToolResult) -> bool:
        """Count a call with its result, number `index`, and return whether it was made too often."""
        said = compact([call.tool, call.args, result.success, result.output])
        key = blake2b(said, digest_size=16).hexdigest()
        if key in self._of_reply:
            return False
        self._of_reply.add(key)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == HINT_AT:
            self.hinted.add(index)
        is_stuck = self._counts[key] >= STUCK_AT
        is_in_vain = not result.success and result.outcome != "pending"
        if is_in_vain and (key in self.in_vain or len(self.in_vain) < KEPT):
            self.in_vain[key] = self._counts[key]
            self.is_round = self.is_round or (is_stuck and key in self._before)
        return is_stuck
