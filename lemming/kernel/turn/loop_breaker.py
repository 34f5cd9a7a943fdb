"""Loop breaker: counts turns of an agent without progress. Pure.

`turn.repeated_calls` counts calls within one turn and one request. This module counts whole turns in a row.
The counts follow from the turn's record alone, so a replay agrees: a paid turn that failed in the same way
again, or did nothing except refused or failed calls. A turn with a new entry, a new memory or a successful
call has made progress, and so has a turn with nothing to do. A turn that only sends requests counts while the
requests repeat and nothing answers them.

Format: `loops` of a ledger's line, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.settings_blocks import LoopSettings
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
    """Return the agent's counts with one more turn without progress, and the reason for a pause, if any."""
    old_counts, limits, key = inputs.state.loops, inputs.loops, loop.digest
    counts = {old_key: old_counts[old_key] for old_key in old_counts if old_key != key}
    while len(counts) >= MAX_LOOPS:
        del counts[next(iter(counts))]
    counts[key] = times = old_counts.get(key, 0) + 1
    # A failure during a request fails the request, and the asker is informed.
    if limits is None or times < limits.stop_after or (inputs.task and inputs.task.request):
        return counts, ""
    return {}, f"{times} of its turns {loop.description}"


def requests_loop(entries: Iterable[OutboxEntry]) -> Loop | None:
    """Return the loop of a turn that wrote only requests, or None."""
    requests = [
        [*sorted(entry.targets), entry.payload.get("text", _without_address(entry.payload))] for entry in entries
    ]
    is_only_requests = all(
        entry.kind == "request" and entry.targets and "hands_on" not in entry.payload for entry in entries
    )
    return Loop(ASKED_AGAIN, sorted(requests, key=dump_compact)) if requests and is_only_requests else None


def _without_address(payload: Mapping[str, object]) -> dict[str, object]:
    return {key: payload[key] for key in sorted(payload) if key not in ADDRESS_KEYS}


def count_request(inputs: TurnInputs, loop: Loop) -> tuple[dict[str, int], str]:
    """Return the agent's counts with one more turn of requests only, and the reason for a pause, if any.

    Other loops end: the turn has made more progress than they did.
    """
    narrowed = replace(inputs, state=replace(inputs.state, loops=select_request_counts(inputs.state.loops)))
    return count_loop(narrowed, loop)


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
