"""Calls that give the same again and again: by tool, arguments and result: polling is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import compact
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tools import ToolResult

_IN_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
KEPT = 64
"""So many calls are remembered from turn to turn, with what they gave."""


class Repeats:
    """The calls of one turn, counted: what one reply asks for twice counts once, for it was not told yet.

    `before`: how often calls gave the same in earlier turns for the same request, or while results waited.
    `entries`: those of replies, by id, as the model wrote them.
    """

    def __init__(self, before: Mapping[str, int] | None = None, stop_after: int = 4) -> None:
        self._stop_after = stop_after
        self._kept: dict[str, int] = {**(before or {})}
        self._counts = {**self._kept}
        self._before = frozenset(self._kept)
        self._of_reply: set[str] = set()
        self._of_turn: dict[str, bool] = {}  # by key: whether the call failed
        self._memories: list[tuple[str, object]] = []  # most turns never ask whether they are new
        self._has_learned = False
        self.entries: dict[str, NewEntry] = {}

    @property
    def in_vain(self) -> dict[str, int]:
        """How often calls gave the same, and memories were given it, by what tells them apart."""
        self._count_memories()
        return self._kept

    @property
    def has_learned(self) -> bool:
        """Whether a memory was given a value that it was not given before."""
        self._count_memories()
        return self._has_learned

    @property
    def calls_of_turn(self) -> Mapping[str, bool]:
        """Whether each call of the turn failed, by what tells it and its result apart."""
        return self._of_turn

    @property
    def is_round(self) -> bool:
        """Whether calls gave the same so often, over several turns, that another turn would come to the same.

        One that fails is enough. Of those that succeed it must be all that the turn did: who goes on with its
        work may look at the same file in each turn.
        """
        again = [
            key for key in self._of_turn if self._counts[key] >= self._stop_after and key in self._before
        ]
        if any(self._of_turn[key] for key in again):
            return True
        return bool(again) and len(again) == len(self._of_turn) and not self.has_learned

    def begin_reply(self) -> None:
        """Begin with the calls of another reply."""
        self._of_reply.clear()

    def count(self, call: ToolCall, result: ToolResult) -> int:
        """Count a call with its result, and return how often it was made; 0 if this reply made it before."""
        if result.outcome == "deferred":  # who is told to ask again later does not go round in circles
            return False
        key = _key([call.tool, call.args, result.success, result.output])
        if key in self._of_reply:
            return 0
        self._of_reply.add(key)
        count = self._count(key)
        if result.outcome != "pending":
            self._of_turn[key] = not result.success
            self._keep(key)
        return count

    def is_entry(self, new: NewEntry, written: Iterable[OutboxEntry]) -> bool:
        """Return True if an entry is equal to a written one; a withdrawn one may be written again."""
        return any(new == self.entries.get(entry.id) for entry in written)

    def remember(self, memory: str, value: object) -> None:
        """Take note that a memory was given a value."""
        self._memories.append((memory, value))

    def _count_memories(self) -> None:
        for memory, value in self._memories:
            key = _key([memory, value])
            self._has_learned = self._count(key) == 1 or self._has_learned
            self._keep(key)
        self._memories.clear()

    def _count(self, key: str) -> int:
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]

    def _keep(self, key: str) -> None:
        self._kept.pop(key, None)  # the newest comes last
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = self._counts[key]


def hint_for(tool: str, times: int) -> str:
    """Return the hint to the model about a call that gives the same again and again.

    >>> hint_for("file_read", 3)
    'file_read has given the same three times for the same arguments. Do something else, or finish.'
    """
    often = _IN_WORDS.get(times, str(times))
    return f"{tool} has given the same {often} times for the same arguments. Do something else, or finish."


def _key(said: list[object]) -> str:
    return blake2b(compact(said), digest_size=16).hexdigest()
