"""The loop breaker: how many turns of an agent came to the same, and no further. Pure.

Within one turn, and for one request, `turn.repeats` counts calls. Here whole turns are counted, from one to
the next. What counts follows from a turn's record alone, so a replay agrees: a turn that was paid for, and
failed as it did before; or did nothing but what was refused or failed as before. A turn that writes an entry,
keeps a new memory or has a call succeed has come further. So has one that finds nothing to do. Of turns
that do nothing but ask, each counts that asks for the same, until something is shown that may be an answer.
Format: `loops` of a ledger's line, docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import compact
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.blocks import LoopSettings
from lemming.kernel.turn.values import TurnInputs

MOST_LOOPS = 8
"""So many ways in which turns came no further are counted apart: an agent may alternate between some."""
REFUSED = "did nothing but what was refused or failed as before"
MISADDRESSED = "wrote the same to agents that there are not"
ASKED_AGAIN = "asked for the same, and no answer came but that it failed"
REPEATED = "made the same call again and again, and were given the same"

PLACES = ("conversation", "deadline", "parent", "reply_to", "target")
"""What a payload says of where a request stands, and not of what is asked."""
_ASKED = "asked:"
_FIRST_WARNING = 2


class Loop(NamedTuple):
    """A way in which a turn came no further, in words, and what tells it from others with those words."""

    words: str
    what: object

    @property
    def digest(self) -> str:
        """What tells it from all others."""
        mark = _ASKED if self.words == ASKED_AGAIN else ""
        return mark + blake2b(compact([*self]), digest_size=16).hexdigest()


def loop_of_failure(error: str) -> Loop:
    """Return the loop of turns that failed: by the class of the error, whatever its words."""
    return Loop(f"failed in the same way ({error})", "")


def count_loop(inputs: TurnInputs, loop: Loop) -> tuple[dict[str, int], str]:
    """Return the agent's counts with one more turn that came no further, and why it is paused, if so."""
    before, limits, key = inputs.state.loops, inputs.loops, loop.digest
    counts = {it: before[it] for it in before if it != key}
    while len(counts) >= MOST_LOOPS:
        del counts[next(iter(counts))]
    counts[key] = times = before.get(key, 0) + 1
    # What goes wrong for a request fails the request, and its asker hears of it.
    if limits is None or times < limits.stop_after or (inputs.task and inputs.task.request):
        return counts, ""
    return {}, f"{times} of its turns {loop.words}"


def loop_of_requests(entries: Iterable[OutboxEntry]) -> Loop | None:
    """Return the loop of a turn that wrote requests and nothing else; None for another turn."""
    asked = [[*sorted(it.targets), it.payload.get("text", _without_places(it.payload))] for it in entries]
    is_alone = all(it.kind == "request" and it.targets and "hands_on" not in it.payload for it in entries)
    return Loop(ASKED_AGAIN, sorted(asked, key=compact)) if asked and is_alone else None


def _without_places(payload: Mapping[str, object]) -> dict[str, object]:
    return {key: payload[key] for key in sorted(payload) if key not in PLACES}


def count_request(inputs: TurnInputs, loop: Loop) -> tuple[dict[str, int], str]:
    """Return the agent's counts with one more turn that did nothing but ask, and why it is paused, if so.

    Other loops are over: the turn has come further than they do.
    """
    only = replace(inputs, state=replace(inputs.state, loops=requests_in(inputs.state.loops)))
    return count_loop(only, loop)


def requests_in(counts: Mapping[str, int]) -> dict[str, int]:
    """Return of the counts those of requests that were written again."""
    return {key: counts[key] for key in counts if key.startswith(_ASKED)}


def loop_limits(agent: Agent, settings: LoopSettings) -> LoopSettings:
    """Return the loop settings of an agent: its resume's, else the organisation's.

    Whoever sets a small `stop_after` alone is not to have agents stopped that nobody has told.
    """
    own = {key: value for key, value in asdict(agent.loops).items() if value is not None}
    limits = LoopSettings(**{**asdict(settings), **own})
    return replace(limits, warn_after=min(limits.warn_after, max(limits.stop_after - 1, _FIRST_WARNING)))


def loop_warnings(counts: Mapping[str, int], limits: LoopSettings) -> list[str]:
    """Return the warnings for an agent whose turns come to the same."""
    times = max(counts.values(), default=0)
    if times < limits.warn_after:
        return []
    return [
        f"{times} of your turns came to the same and no further: they failed in one way, what they did was "
        "refused or failed as before, or they asked for the same and had no answer that helps. Do something "
        "else, or write one entry that says what keeps you from it. After "
        f"{limits.stop_after} such turns you are paused, and a person is told."
    ]
