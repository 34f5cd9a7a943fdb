"""Loop breaker: counts repeated calls within a turn and a request, and turns of an agent without progress. Pure.

The counts follow from the turn's record alone, so a replay agrees. Without progress is a paid turn that failed in
the same way again, or did nothing except refused or failed calls. A turn with a new entry, a new memory or a
successful call has made progress, and so has a turn with nothing to do. A turn that only sends requests counts while
the requests repeat and nothing answers them. Polling does not count as a repeated call.

Format: `loops` of a ledger's line, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.turn_values import TurnInputs

MAX_LOOPS = 8
"""Maximum loops counted separately: an agent may alternate between several."""
REFUSED = "did nothing but what was refused or failed as before"
MISADDRESSED = "wrote the same to agents that there are not"
ASKED_AGAIN = "asked for the same, and no answer came but that it failed"
REPEATED = "made the same call again and again, and were given the same"

ADDRESS_KEYS = ("conversation", "deadline", "parent", "reply_to", "target")
"""Keys of a payload that locate a request, without its content."""
_REQUEST_PREFIX = "asked:"
_FIRST_WARNING = 2


class Loop(NamedTuple):
    """Kind of a turn without progress: a description, and details that distinguish loops of the same kind."""

    description: str
    details: object

    @property
    def digest(self) -> str:
        """Digest that distinguishes this loop from all others."""
        mark = _REQUEST_PREFIX if self.description == ASKED_AGAIN else ""
        return mark + blake2b(dump_compact([*self]), digest_size=16).hexdigest()


def failure_loop(error: str) -> Loop:
    """Return the loop of failed turns by the class of the error, regardless of the message."""
    return Loop(f"failed in the same way ({error})", "")


def count_loop(inputs: TurnInputs, loop: Loop) -> tuple[dict[str, int], str]:
    """Return the agent's counts with one more turn without progress, and the reason for a pause, if any.

    A turn of requests only ends all other loops: it has made more progress than they did.
    """
    old_counts, limits, key = inputs.state.loops, inputs.loops, loop.digest
    if loop.description == ASKED_AGAIN:
        old_counts = select_request_counts(old_counts)
    counts = {old_key: old_counts[old_key] for old_key in old_counts if old_key != key}
    while len(counts) >= MAX_LOOPS:
        del counts[next(iter(counts))]
    counts[key] = times = old_counts.get(key, 0) + 1
    # A failure during a request fails the request, and the asker is informed.
    if limits is None or times < limits.stop_after or inputs.request_identity:
        return counts, ""
    return {}, f"{times} of its turns {loop.description}"


def requests_loop(entries: Iterable[OutboxEntry]) -> Loop | None:
    """Return the loop of a turn that wrote only requests, or None."""
    requests = []
    for entry in entries:
        content = {key: entry.payload[key] for key in sorted(entry.payload) if key not in ADDRESS_KEYS}
        requests.append([*sorted(entry.targets), entry.payload.get("text", content)])
    is_only_requests = all(
        entry.kind == "request" and entry.targets and "hands_on" not in entry.payload for entry in entries
    )
    return Loop(ASKED_AGAIN, sorted(requests, key=dump_compact)) if requests and is_only_requests else None


def select_request_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of repeated requests."""
    return {key: counts[key] for key in counts if key.startswith(_REQUEST_PREFIX)}


def loop_limits(agent: Agent, settings: LoopSettings) -> LoopSettings:
    """Return the loop settings of an agent: the resume's, else the organisation's.

    A small `stop_after` alone must not stop agents without a warning, so `warn_after` is lowered as well.
    """
    overrides = {key: value for key, value in asdict(agent.loops).items() if value is not None}
    limits = LoopSettings(**{**asdict(settings), **overrides})
    return replace(limits, warn_after=min(limits.warn_after, max(limits.stop_after - 1, _FIRST_WARNING)))


def loop_warnings(counts: Mapping[str, int], limits: LoopSettings) -> list[str]:
    """Return the warnings for an agent with turns without progress."""
    times = max(counts.values(), default=0)
    if times < limits.warn_after:
        return []
    return [
        f"{times} of your turns came to the same and no further: they failed in one way, what they did was "
        "refused or failed as before, or they asked for the same and had no answer that helps. Do something "
        "else, or write one entry that says what keeps you from it. After "
        f"{limits.stop_after} such turns you are paused, and a person is told."
    ]


_NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
MAX_STORED_COUNTS = 64
"""Maximum calls remembered from turn to turn, with their results."""


DEFAULT_LIMITS = LoopSettings()
"""Limits for records without them."""


class RepeatDetector:
    """Counts of a turn's calls. Equal calls of one reply count once, because the model had not seen a result.

    `earlier_counts`: counts of equal calls in earlier turns for the same request, or while results waited.
    `entries`: entries of replies by id, as the model wrote them.
    """

    def __init__(self, earlier_counts: Mapping[str, int] | None = None, limits: LoopSettings | None = None) -> None:
        self.limits = limits or DEFAULT_LIMITS
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
            key
            for key in self._failed_by_key
            if self._counts[key] >= self.limits.stop_after and key in self._earlier_keys
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
