"""What a plan sees beside its inbox, files that it waits for and the clock, and what it need not wake for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.access.grants import resolve
from lemming.access.open import seen_content
from lemming.agents import Agent
from lemming.capabilities.plans.check import sound_plan
from lemming.capabilities.plans.format import waited_files
from lemming.capabilities.plans.run import PREFIX, is_led_elsewhere, is_over, run_key, waits_in
from lemming.errors import PermissionDenied
from lemming.journal.begun import Begun
from lemming.org.organisation import Organisation

Json = dict[str, Any]


class Outside(NamedTuple):
    """What a plan may wait for as it is now: the tick's reading of the clock, and files by their digests.

    `resting`: the requests, by identity, whose runs wait for something that is not there yet; `led`: those
    whose runs a person has led elsewhere.
    """

    time: str = ""
    files: Mapping[str, str | None] = {}
    resting: frozenset[str] = frozenset()
    led: frozenset[str] = frozenset()

    def as_json(self) -> Json:
        """Return what the values of a turn hold of it."""
        return {
            **({"time": self.time} if self.time else {}),
            **({"files": dict(self.files)} if self.files else {}),
        }


NOTHING_OUTSIDE = Outside()


def outside_of(
    org: Organisation,
    agent: Agent,
    *,
    tick: int,
    at: str,
    memories: Mapping[str, Any],
    begun: Sequence[Begun],
    held: Mapping[str, bytes],
) -> Outside:
    """Look at what the plan of an agent may wait for. `at` is the tick's reading of the clock, or empty.

    Raises `ConfigError` for a plan that is wrong: its agent's turns fail, also while nobody asks it.
    """
    sound_plan(org, agent.name)
    files = {file: _content(org, agent, file, held) for file in waited_files(org, agent.name)}
    return Outside(
        time=at,
        files=files,
        resting=frozenset(it.request for it in begun if _rests(it, memories, tick, at, files)),
        led=frozenset(it.request for it in begun if is_led_elsewhere(memories.get(_key_of(it)))),
    )


def _content(org: Organisation, agent: Agent, file: str, held: Mapping[str, bytes]) -> str | None:
    try:
        return seen_content(resolve(agent, org.base, file, "read", caller="plan"), held)
    except PermissionDenied:  # its step waits in vain; `lemming validate` says so
        return None


def _rests(
    begun: Begun, memories: Mapping[str, Any], tick: int, at: str, files: Mapping[str, str | None]
) -> bool:
    waits = waits_of([begun], memories)
    return bool(waits) and not any(is_over(wait, tick, at, files) for wait in waits)


def waits_of(begun: Iterable[Begun], memories: Mapping[str, Any]) -> list[Json]:
    """Return what the runs for requests wait for outside; nothing of those that go on with results first."""
    keys = (_key_of(it) for it in begun if not it.results)
    return [wait for key in keys for wait in waits_in(memories.get(key))]


def _key_of(begun: Begun) -> str:
    return run_key(begun.request.rpartition("_")[2])


def tick_waited_for(begun: Iterable[Begun], memories: Mapping[str, Any]) -> int | None:
    """Return the first tick that a run waits for; None: none does, but for the end of its patience."""
    ticks = (it for wait in waits_of(begun, memories) if isinstance(it := wait.get("tick"), int))
    return min(ticks, default=None)


def own_memories(memories: Mapping[str, Any], request: str) -> Json:
    """Return the memories that a turn for a request sees: of all runs, its own only."""
    own = run_key(request)
    return {key: value for key, value in memories.items() if key == own or not key.startswith(PREFIX)}
