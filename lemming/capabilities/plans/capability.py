"""Plans, as the engine knows them: an agent whose brain is a file, `agents/<name>/plan.json`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.judges.problems import program_reach
from lemming.capabilities.plans.asking import wait_text
from lemming.capabilities.plans.format import is_planner, plan_file, read_plan, waited_files
from lemming.capabilities.plans.plan_problems import sound_plan
from lemming.capabilities.plans.proposals import proposal_in
from lemming.capabilities.plans.run import PREFIX, is_led_elsewhere, is_over, run_key, waits_in
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import seen_content
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import ConfigError, PermissionDenied, Problem
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.memory import Memories, read_memories
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.uses import Habits
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Rest, Showing, TurnPart
from lemming.kernel.turn.seen import Seen


class Plans(Capability):
    """Plans: the provider "plan", and the tool `plan_propose`."""

    name = "plans"

    def habits(self, agent: Agent) -> Habits:
        """Return that requests wake it, each for a turn of its own, unless its resume says otherwise."""
        wake, take = agent.schedule.wake or "addressed", agent.turn.take or "one"
        return Habits(wake, take, is_written=True)

    def entries_of(self, call: ToolCall) -> Sequence[NewEntry]:
        """Return the request that brings a plan to whoever is to follow it."""
        return [proposal_in(call)]

    def prepare(self, moment: Moment) -> Preparation | None:
        """Return what a plan waits for, as its turn begins."""
        return PlanPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return the part of a plan in its turn: it may rest."""
        return PlanPart(self.name, draft, given)

    def rest(self, org: Organisation, agent: Agent, begun: Sequence[Begun]) -> Rest | None:
        """Return what the runs for requests wait for."""
        waits = waits_of(begun, read_memories(org, agent.name).values)
        if not waits:
            return None
        words = " and ".join(dict.fromkeys(wait_text(wait) for wait in waits))
        return Rest(f"waits for {words}", any("tick" not in wait for wait in waits))

    def problems_of_files(self, base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with the agent's plan, or that nobody follows it."""
        from lemming.capabilities.plans.problems import problems_of_plan

        yield from problems_of_plan(base, agent, config)

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield the programs that judge the answers of steps; a plan that is none is told of elsewhere."""
        for agent in agents:
            with contextlib.suppress(ConfigError):  # its turns fail, and run nothing
                named = read_plan(org, agent.name).value.judges() if is_planner(agent, config) else ()
                for author, said, place in named:
                    where = f"{plan_file(agent.name)}#{place}"
                    yield from program_reach(org.base, said.by, f"what {author} writes", where)


class PlanPart(TurnPart):
    """A plan's turn says nothing where its step waits for something outside."""

    def may_rest(self) -> bool:
        """Return that it may."""
        return True


class PlanPreparation(Preparation):
    """Looks at files that the plan waits for, at the clock, and at where its runs stand."""

    _resting: frozenset[str] = frozenset()
    _led: frozenset[str] = frozenset()

    def finds(self, memories: Memories) -> Mapping[str, str]:
        """Look; raise `ConfigError` for a plan that is wrong: its turns fail, also while nobody asks it."""
        moment, now, values = self.moment, self.moment.now, memories.values
        self._outside = outside_of(now.org, moment.agent, at=now.at, held=moment.held)
        begun = moment.state.requests
        self._resting = frozenset(it.request for it in begun if rests(it, values, now.tick, self._outside))
        self._led = frozenset(it.request for it in begun if is_led(it, values))
        return {}

    def rests(self, begun: Begun) -> bool:
        """Return whether its run waits for something that is not there yet."""
        return begun.request in self._resting

    def is_led(self, begun: Begun) -> bool:
        """Return whether a person has led its run elsewhere."""
        return begun.request in self._led

    def why_resting(self) -> str:
        """Return for how many requests the plan waits."""
        count = len(self._resting)
        return f"waits for what its plan says, for {count} of its requests" if count else ""

    def wakes_at(self, memories: Memories) -> int | None:
        """Return the first tick that a run waits for; None: none does, but for the end of its patience."""
        waits = waits_of(self.moment.state.requests, memories.values)
        return min((it for wait in waits if isinstance(it := wait.get("tick"), int)), default=None)

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the values hold what there is outside, and of all runs the request's own only."""
        seen.outside = {**seen.outside, **self._outside.as_json()}
        if shown.task is not None and shown.task.request is not None:
            seen.memory = own_memories(shown.memories.values, shown.task.request.id)


class Outside(NamedTuple):
    """What a plan may wait for as it is now: the tick's reading of the clock, and files by their digests."""

    time: str = ""
    files: Mapping[str, str | None] = {}

    def as_json(self) -> Json:
        """Return what the values of a turn hold of it."""
        return {
            **({"time": self.time} if self.time else {}),
            **({"files": dict(self.files)} if self.files else {}),
        }


def outside_of(org: Organisation, agent: Agent, *, at: str, held: Mapping[str, bytes]) -> Outside:
    """Look at what the plan of an agent may wait for. `at` is the tick's reading of the clock, or empty.

    Raises `ConfigError` for a plan that is wrong: its agent's turns fail, also while nobody asks it.
    """
    sound_plan(org, agent.name)
    files = {file: _content(org, agent, file, held) for file in waited_files(org, agent.name)}
    return Outside(time=at, files=files)


def _content(org: Organisation, agent: Agent, file: str, held: Mapping[str, bytes]) -> str | None:
    try:
        return seen_content(resolve(agent, org.base, file, "read", caller="plan"), held)
    except PermissionDenied:  # its step waits in vain; `lemming validate` says so
        return None


def rests(begun: Begun, memories: Mapping[str, Any], tick: int, outside: Outside) -> bool:
    """Return whether a request's run waits for something that is not there yet."""
    waits = waits_of([begun], memories)
    return bool(waits) and not any(is_over(wait, tick, outside.time, outside.files) for wait in waits)


def is_led(begun: Begun, memories: Mapping[str, Any]) -> bool:
    """Return whether a person has led a request's run elsewhere."""
    return is_led_elsewhere(memories.get(_key_of(begun)))


def waits_of(begun: Iterable[Begun], memories: Mapping[str, Any]) -> list[Json]:
    """Return what the runs for requests wait for outside; nothing of those that go on with results first."""
    keys = (_key_of(it) for it in begun if not it.results)
    return [wait for key in keys for wait in waits_in(memories.get(key))]


def _key_of(begun: Begun) -> str:
    return run_key(begun.request.rpartition("_")[2])


def own_memories(memories: Mapping[str, Any], request: str) -> Json:
    """Return the memories that a turn for a request sees: of all runs, its own only."""
    own = run_key(request)
    return {key: value for key, value in memories.items() if key == own or not key.startswith(PREFIX)}
