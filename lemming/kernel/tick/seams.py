"""The seams of a tick: the moments at which a capability takes part, in the order in which they come.

    rests (who has a turn, recorded as the plan)  ->  reads, may_read (whose turns wait)  ->  turns  ->  ends

A part is made where an agent uses its capability, and keeps nothing: it is made again after a crash, and as
resumes or settings change. One that nobody uses is not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.uses import named_by
from lemming.kernel.plugins.capabilities import by_keys, in_order, part_in_ticks, why_missing
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.plugins.shipped import IN_TICKS
from lemming.kernel.tick.edge import tried


class TickLook(NamedTuple):
    """An organisation as a tick finds it: its agents, and the readings of the clock, `at` and the one before.

    `since` is empty where no tick before had a reading, or none is kept.
    """

    org: Organisation
    config: Config
    survey: Survey
    tick: int
    at: str = ""
    since: str = ""


class Coming(NamedTuple):
    """Something that comes up: at which moment, for which agent, and what it is, in words."""

    at: datetime
    agent: str
    what: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"at": timestamp(self.at), "agent": self.agent, "what": self.what}


class TickPart:
    """One capability's part in a tick. `agents` are those that use it, by name."""

    by_clock = False
    """Whether its agents have turns by the clock: then each tick's reading is kept for the next one, and
    after a tick without turns they are due at no tick, but when something comes."""

    def __init__(self, agents: Collection[str]) -> None:
        self.agents = agents

    def schedules(self, look: TickLook) -> Mapping[str, str]:
        """Return the schedules of its agents that go by the clock, in words, each under a name of its own.

        One that is new, or reads otherwise, makes up for nothing: `first_readings.find_first_reading` tells
        from which reading it counts. Asked before each tick.
        """
        return {}

    def rests(self, look: TickLook) -> Mapping[str, str]:
        """Return which of its agents have no turn in this tick, each with what is wrong; empty: nothing is.

        Asked as a tick is planned, and recorded with the plan: of an interrupted one it is not asked again.
        Files are only read. What it raises takes its agents out of this tick.
        """
        return {}

    def reads(self, agent: Agent) -> Mapping[str, str]:
        """Return the files of the organisation that every turn of an agent reads, each with what says so.

        An agent that had nothing new is looked at again when one changes, or comes; turns that may write one
        wait for each other. Asked of what the resume says: the disk is not looked at. Nothing is recorded.
        """
        return {}

    def may_read(self, org: Organisation, agent: Agent) -> Sequence[str]:
        """Return more files that its turns look at, named as its grants name them. Nothing is recorded."""
        return ()

    def comes(self, look: TickLook, after: datetime) -> Iterator[Iterator[Coming]]:
        """Yield what comes up by the clock, of each thing what comes next first: for pauses, and for screens.

        The engine sleeps no longer than until the first of it. Nothing is recorded.
        """
        yield from ()

    def ends(self, look: TickLook, order: Sequence[str]) -> None:
        """Remove what is kept no more, once the turns of a tick are over, before entries expire.

        `order`: those that were due. Asked in each attempt at the tick, and after it no more: what is to go
        follows from files and ledgers alone, so that a second attempt removes the same. Raises `DiskError`.
        """


class _Parts:
    """The parts that were made last, and what they were made for."""

    def __init__(self, _: Organisation) -> None:
        self.made_for: tuple[Survey, Config] | None = None
        self.parts: list[TickPart] = []


def parts_in(org: Organisation, survey: Survey, config: Config) -> list[TickPart]:
    """Return the parts of a tick: of those capabilities that one of these agents uses, in their order.

    The very same as long as resumes and settings are.
    """
    latest = org.own(_Parts)
    if not (latest.made_for and latest.made_for[0] is survey and latest.made_for[1] is config):
        users: dict[str, list[str]] = {}
        for name, agent in survey.agents.items():
            for capability in named_by(agent, config) & IN_TICKS:
                users.setdefault(capability, []).append(name)
        here = [it for it in in_order(users) if not why_missing(it)]
        latest.parts = [part_in_ticks(it)(dict.fromkeys(users[it]).keys()) for it in here]
        latest.made_for = survey, config
    return latest.parts


def read_by_keys(agent: Agent) -> Iterator[str]:
    """Yield the files that an agent's turns read as keys of its resume say, which `TickPart.reads` names."""
    for name in IN_TICKS.intersection(by_keys(agent)):
        yield from part_in_ticks(name)(()).reads(agent)


def next_moment(parts: Iterable[TickPart], look: TickLook, after: datetime) -> datetime | None:
    """Return the first moment at which something comes up; None: nothing does."""
    found = (next(each, None) for part in parts for each in part.comes(look, after))
    return min((it.at for it in found if it), default=None)


def goes_by_the_clock(parts: Iterable[TickPart]) -> bool:
    """Return whether anybody's turns depend on the wall clock, so that each tick's reading must be kept."""
    return any(part.by_clock for part in parts)


def collect_schedules(parts: Iterable[TickPart], look: TickLook) -> dict[str, str] | None:
    """Return all schedules that go by the clock; None where those of a part cannot be read now."""
    found: dict[str, str] = {}
    for part in parts:
        schedules = tried(partial(part.schedules, look))
        if isinstance(schedules, Exception):
            return None
        found |= schedules
    return found


def who_rests(parts: Iterable[TickPart], look: TickLook) -> dict[str, str]:
    """Return the agents that capabilities keep from a turn; why, where something is wrong."""
    found: dict[str, str] = {}
    for part in parts:
        rests = tried(partial(part.rests, look))
        if isinstance(rests, Exception):
            why = str(rests) if isinstance(rests, LemmingError) else words_of(rests)
            rests = dict.fromkeys(part.agents, why)
        found |= rests
    return found
