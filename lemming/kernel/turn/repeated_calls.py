"""Repeated calls: the same tool, arguments and result. Polling does not count as repetition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tools import ToolResult

_NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
MAX_STORED_COUNTS = 64
"""Maximum calls remembered from turn to turn, with their results."""


class RepeatDetector:
    """Counts of a turn's calls. Equal calls of one reply count once, because the model had not seen a result.

    `earlier_counts`: counts of equal calls in earlier turns for the same request, or while results waited.
    `entries`: entries of replies by id, as the model wrote them.
    """

    def __init__(self, earlier_counts: Mapping[str, int] | None = None, stop_after: int = 4) -> None:
        self._stop_after = stop_after
        self._repeat_counts: dict[str, int] = {**(earlier_counts or {})}
        self._counts = {**self._repeat_counts}
        self._earlier_keys = frozenset(self._repeat_counts)
        self._reply_keys: set[str] = set()
        self._failed_by_key: dict[str, bool] = {}  # by key: True for a failed call
        self._memories: list[tuple[str, object]] = []  # most turns never check for repeats
        self._has_learned = False
        self.entries: dict[str, NewEntry] = {}

    @property
    def repeat_counts(self) -> dict[str, int]:
        """Counts of equal calls and equal memories, by key."""
        self._count_memories()
        return self._repeat_counts

    @property
    def has_learned(self) -> bool:
        """True if a memory received a value for the first time."""
        self._count_memories()
        return self._has_learned

    @property
    def calls_of_turn(self) -> Mapping[str, bool]:
        """Calls of the turn by key, each with True if the call failed."""
        return self._failed_by_key

    @property
    def is_cycling(self) -> bool:
        """True if calls repeated so often over several turns that another turn would give the same result.

        One repeated failing call is enough. Repeated successful calls count only if the turn did nothing
        else: an agent may read the same file in every turn of a longer task.
        """
        repeated_keys = [
            key for key in self._failed_by_key if self._counts[key] >= self._stop_after and key in self._earlier_keys
        ]
        if any(self._failed_by_key[key] for key in repeated_keys):
            return True
        return bool(repeated_keys) and len(repeated_keys) == len(self._failed_by_key) and not self.has_learned

    def begin_reply(self) -> None:
        """Start counting the calls of another reply."""
        self._reply_keys.clear()

    def count(self, call: ToolCall, result: ToolResult) -> int:
        """Count a call with the result and return the number of equal calls; 0 within one reply."""
        if result.outcome == "deferred":  # a call that was told to come later is no loop
            return False
        key = _key([call.tool, call.args, result.success, result.output])
        if key in self._reply_keys:
            return 0
        self._reply_keys.add(key)
        count = self._count(key)
        if result.outcome != "pending":
            self._failed_by_key[key] = not result.success
            self._store_count(key)
        return count

    def is_duplicate_entry(self, new: NewEntry, written: Iterable[OutboxEntry]) -> bool:
        """Return True if an entry equals a written entry. A withdrawn entry may be written again."""
        return any(new == self.entries.get(entry.id) for entry in written)

    def record_memory(self, memory: str, value: object) -> None:
        """Record a memory update."""
        self._memories.append((memory, value))

    def _count_memories(self) -> None:
        for memory, value in self._memories:
            key = _key([memory, value])
            self._has_learned = self._count(key) == 1 or self._has_learned
            self._store_count(key)
        self._memories.clear()

    def _count(self, key: str) -> int:
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]

    def _store_count(self, key: str) -> None:
        self._repeat_counts.pop(key, None)  # the newest comes last
        if len(self._repeat_counts) >= MAX_STORED_COUNTS:
            del self._repeat_counts[next(iter(self._repeat_counts))]
        self._repeat_counts[key] = self._counts[key]


def repetition_hint(tool: str, times: int) -> str:
    """Return the hint to the model about a repeated call with equal results.

    >>> repetition_hint("file_read", 3)
    'file_read has given the same three times for the same arguments. Do something else, or finish.'
    """
    often = _NUMBER_WORDS.get(times, str(times))
    return f"{tool} has given the same {often} times for the same arguments. Do something else, or finish."


def _key(parts: list[object]) -> str:
    return blake2b(dump_compact(parts), digest_size=16).hexdigest()
