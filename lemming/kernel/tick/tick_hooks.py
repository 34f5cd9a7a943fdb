"""The hooks of a tick: the moments at which a capability takes part, in order.

    skipped_agents (recorded with the plan)  ->  read_paths, optional_read_paths (turn dependencies)  ->  turns  ->
    on_tick_end

A tick interceptor is created for the agents that use its capability and keeps no state: it is created again
after a crash, and after a change of resumes or settings. An unused capability is not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import (
    capabilities_of_resume,
    missing_reason,
    sort_capabilities,
    tick_interceptor_class,
)
from lemming.kernel.plugins.capability_table import TICK_INTERCEPTORS
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tick.error_boundary import isolate


class TickView(NamedTuple):
    """An organisation at the start of a tick: its agents, and the clock readings of this and the previous
    tick.

    `since` is empty without a previous reading.
    """

    org: Organisation
    config: Config
    survey: Survey
    tick: int
    at: str = ""
    since: str = ""


class UpcomingEvent(NamedTuple):
    """An upcoming event: time, agent and description."""

    at: datetime
    agent: str
    description: str

    def as_json(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"at": timestamp(self.at), "agent": self.agent, "what": self.description}


class TickInterceptor:
    """A capability's hooks in a tick. `agents` are the names of the agents that use the capability."""

    uses_clock = False
    """True if its agents run by the clock: each tick's reading is stored for the next, and after a tick
    without turns the agents are due only on news."""

    def __init__(self, agents: Collection[str]) -> None:
        self.agents = agents

    def schedules(self, view: TickView) -> Mapping[str, str]:
        """Return the clock schedules of the capability's agents as text, each under a unique name.

        A new or changed schedule does not catch up on earlier times: `first_clock_readings.find_first_reading`
        returns the reading from which the schedule counts. Called before each tick.
        """
        return {}

    def skipped_agents(self, view: TickView) -> Mapping[str, str]:
        """Return the agents without a turn in this tick, each with an error text or an empty text.

        Called when a tick is planned; the result is recorded with the plan and not computed again after an
        interruption. Must only read files. An error takes the capability's agents out of this tick.
        """
        return {}

    def read_paths(self, agent: Agent) -> Mapping[str, str]:
        """Return the organisation's files read by every turn of an agent, each with a reason.

        A change of a file ends the idle state of the agent, and turns that may write the same file wait for
        each other. Must depend on the resume only, without reading the disk. Nothing is recorded.
        """
        return {}

    def optional_read_paths(self, org: Organisation, agent: Agent) -> Sequence[str]:
        """Return further files read by the agent's turns, in the form of its grants. Nothing is recorded."""
        return ()

    def upcoming_events(self, view: TickView, start: datetime) -> Iterator[Iterator[UpcomingEvent]]:
        """Yield an iterator per source of upcoming clock events, earliest first, for pauses and screens.

        The engine sleeps no longer than until the first event. Nothing is recorded.
        """
        yield from ()

    def on_tick_end(self, view: TickView, order: Sequence[str]) -> None:
        """Clean up expired data after the turns of a tick, before entries expire.

        `order`: the agents that were due. Called in each attempt at the tick. The data to remove must follow
        from files and ledgers alone, so a second attempt removes the same data. Raises `DiskError`.
        """


class _InterceptorCache:
    """The last created interceptors, with the survey and config they belong to."""

    def __init__(self, _: Organisation) -> None:
        self.cached_for: tuple[Survey, Config] | None = None
        self.interceptors: list[TickInterceptor] = []


def get_tick_interceptors(org: Organisation, survey: Survey, config: Config) -> list[TickInterceptor]:
    """Return the tick interceptors of all capabilities in use, in order.

    The same list is returned while resumes and settings are unchanged.
    """
    cache = org.get_cache(_InterceptorCache)
    if not (cache.cached_for and cache.cached_for[0] is survey and cache.cached_for[1] is config):
        users: dict[str, list[str]] = {}
        for name, agent in survey.agents.items():
            for capability in find_used_capabilities(agent, config) & TICK_INTERCEPTORS.keys():
                users.setdefault(capability, []).append(name)
        available = [
            capability_name for capability_name in sort_capabilities(users) if not missing_reason(capability_name)
        ]
        cache.interceptors = [
            tick_interceptor_class(capability_name)(dict.fromkeys(users[capability_name]).keys())
            for capability_name in available
        ]
        cache.cached_for = survey, config
    return cache.interceptors


def resume_read_paths(agent: Agent) -> Iterator[str]:
    """Yield the files an agent's turns read because of keys in its resume (`TickInterceptor.read_paths`)."""
    for name in TICK_INTERCEPTORS.keys() & capabilities_of_resume(agent):
        yield from tick_interceptor_class(name)(()).read_paths(agent)


def next_event_time(interceptors: Iterable[TickInterceptor], view: TickView, start: datetime) -> datetime | None:
    """Return the time of the first upcoming event, or None."""
    first_events = (
        next(events, None) for interceptor in interceptors for events in interceptor.upcoming_events(view, start)
    )
    return min((event.at for event in first_events if event), default=None)


def uses_clock(interceptors: Iterable[TickInterceptor]) -> bool:
    """Return True if turns depend on the wall clock, and each tick's reading must be recorded."""
    return any(interceptor.uses_clock for interceptor in interceptors)


def collect_schedules(interceptors: Iterable[TickInterceptor], view: TickView) -> dict[str, str] | None:
    """Return all clock schedules, or None if an interceptor's schedules are unreadable."""
    all_schedules: dict[str, str] = {}
    for interceptor in interceptors:
        schedules = isolate(partial(interceptor.schedules, view))
        if isinstance(schedules, Exception):
            return None
        all_schedules |= schedules
    return all_schedules


def find_skipped_agents(interceptors: Iterable[TickInterceptor], view: TickView) -> dict[str, str]:
    """Return the agents that capabilities exclude from the tick, with an error text or an empty text."""
    skipped: dict[str, str] = {}
    for interceptor in interceptors:
        interceptor_skips = isolate(partial(interceptor.skipped_agents, view))
        if isinstance(interceptor_skips, Exception):
            error_text = (
                str(interceptor_skips)
                if isinstance(interceptor_skips, LemmingError)
                else describe_exception(interceptor_skips)
            )
            interceptor_skips = dict.fromkeys(interceptor.agents, error_text)
        skipped |= interceptor_skips
    return skipped
