"""Capabilities in a tick: clock schedules, from which due turns, upcoming events and catch-up follow.

An unused capability is not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Survey
from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import (
    get_capability,
    sort_capabilities,
)
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tick.error_boundary import isolate

if TYPE_CHECKING:  # most ticks ask no capability, and start sooner without the descriptions
    from lemming.kernel.turn.descriptions import ClockSchedule, OrgQuery, TickView


class CapabilityUse(NamedTuple):
    """A capability with a part in ticks, and the agents with a use of the capability."""

    capability: Any
    agents: Collection[str]

    @property
    def uses_clock(self) -> bool:
        """True if its agents take turns by the clock.

        Each tick's reading is stored for the next, and after a tick without turns the agents are due only on news.
        """
        from lemming.kernel.turn.descriptions import ClockSchedule

        return ClockSchedule in self.capability.describes

    def list_schedules(self, view: TickView) -> list[ClockSchedule]:
        """Return the clock schedules of the agents. Raises `ConfigError` for unreadable schedules."""
        from lemming.kernel.turn.descriptions import ClockSchedule, ScheduleQuery

        return [*ScheduleQuery(ClockSchedule, view._replace(agents=self.agents)).ask(self.capability)]

    def make_query(self, kind: type[Any], org: Organisation, survey: Survey, config: Config) -> OrgQuery[Any]:
        """Return the query for descriptions of a kind about the agents."""
        from lemming.kernel.turn.descriptions import OrgQuery

        return OrgQuery(kind, org, {name: survey.agents[name] for name in self.agents}, config)


class _UseCache:
    """The last uses found, with the survey and config they belong to."""

    def __init__(self, _: Organisation) -> None:
        self.cached_for: tuple[Survey, Config] | None = None
        self.uses: list[CapabilityUse] = []


def get_capability_uses(org: Organisation, survey: Survey, config: Config) -> list[CapabilityUse]:
    """Return the capabilities in use that take part in ticks, in order.

    The same list is returned while resumes and settings are unchanged.
    """
    cache = org.get_cache(_UseCache)
    if not (cache.cached_for and cache.cached_for[0] is survey and cache.cached_for[1] is config):
        users: dict[str, list[str]] = {}
        for name, agent in survey.agents.items():
            own_names = {*agent.capabilities, *config.org.capabilities}
            for capability_name in find_used_capabilities(agent, config) & (provided("in_ticks").keys() | own_names):
                users.setdefault(capability_name, []).append(name)
        cache.uses = [*_make_uses(users, config)] if users else []
        cache.cached_for = survey, config
    return cache.uses


def _make_uses(users: Mapping[str, list[str]], config: Config) -> Iterator[CapabilityUse]:
    capabilities = dict[str, Any]()
    for name in users:
        with suppress(ConfigError):  # a missing one is reported where it is needed
            capabilities[name] = get_capability(name, config.org.plugins)
    for name in sort_capabilities(capabilities, config.org.plugins):
        yield CapabilityUse(capabilities[name], dict.fromkeys(users[name]).keys())


def uses_clock(uses: Iterable[CapabilityUse]) -> bool:
    """Return True if turns depend on the wall clock, and each tick's reading must be recorded."""
    return any(use.uses_clock for use in uses)


def find_skipped_agents(uses: Iterable[CapabilityUse], view: TickView) -> dict[str, str]:
    """Return the agents that the clock excludes from the tick, with an error text or an empty text."""
    skipped: dict[str, str] = {}
    for use in uses:
        if use.uses_clock:
            use_skips = isolate(partial(_find_agents_not_due, use, view))
            if isinstance(use_skips, Exception):
                error_text = str(use_skips) if isinstance(use_skips, LemmingError) else describe_exception(use_skips)
                use_skips = dict.fromkeys(use.agents, error_text)
            skipped |= use_skips
    return skipped


def _find_agents_not_due(use: CapabilityUse, view: TickView) -> dict[str, str]:
    skipped, due_agents = dict[str, str](), set[str]()
    for schedule in use.list_schedules(view):
        if schedule.agent in due_agents:
            continue
        if not schedule.error and schedule.is_due(find_current_reading(schedule, view)):
            due_agents.add(schedule.agent)
            skipped.pop(schedule.agent, None)
        else:
            skipped[schedule.agent] = schedule.error
    return skipped | {name: "" for name in use.agents if name not in due_agents and name not in skipped}


def find_current_reading(schedule: ClockSchedule, view: TickView) -> str:
    """Return the reading after which the times of a schedule count."""
    from lemming.kernel.tick.clock_reading import find_first_reading  # imported only if needed

    if not schedule.text:
        return view.since
    return find_first_reading(view.org, schedule.name, schedule.text, view.since, view.at)
