"""Capabilities in a tick: clock schedules, and the readings of the wall clock by which their agents are due.

An unused capability is not loaded. Readings are recorded only if the organisation uses clock schedules: this tick's in
the journal (`at`, `since`), the last tick's in `tick.json` (`read_at`), because a tick without turns has no journal.

`.lemming/schedules.json` has the reading at which each schedule was first seen: a new or changed schedule does not catch
up on earlier due times. Without the file, the current schedules count as known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Survey
from lemming.kernel.base import paths
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.journal_file import load_tick_started
from lemming.kernel.journal.tick_plan import TickPlan, later_reading
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import get_capability, sort_capabilities
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tick.error_boundary import isolate
from lemming.kernel.tick.tick_counter import load_counter

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
    """Return the capabilities in use that take part in ticks, in order: the same list while nothing changes."""
    cache = org.get_cache(_UseCache)
    if not (cache.cached_for and cache.cached_for[0] is survey and cache.cached_for[1] is config):
        users: dict[str, list[str]] = {}
        for name, agent in survey.agents.items():
            own_names = {*agent.capabilities, *config.org.capabilities}
            for capability_name in find_used_capabilities(agent, config) & (provided("in_ticks").keys() | own_names):
                users.setdefault(capability_name, []).append(name)
        capabilities = dict[str, Any]()
        for name in users:
            with suppress(ConfigError):  # a missing one is reported where it is needed
                capabilities[name] = get_capability(name, config.org.plugins)
        names = sort_capabilities(capabilities, config.org.plugins) if users else ()
        cache.uses = [CapabilityUse(capabilities[name], dict.fromkeys(users[name]).keys()) for name in names]
        cache.cached_for = survey, config
    return cache.uses


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
    if not schedule.text:
        return view.since
    return find_first_reading(view.org, schedule.name, schedule.text, view.since, view.at)


def previous_reading(base: OrgPath, tick: int, ticks: list[int]) -> str:
    """Return the reading up to which earlier ticks handled due schedules; empty before the first reading.

    `ticks` are the ticks with a journal. `tick.json` may be older: after power loss, and if `run_tick` does
    not write the counter.
    """
    counted, read_at = load_counter(base)
    previous_tick = next((at for at in reversed(ticks) if at < tick), -1)
    if previous_tick < counted:  # quiet ticks ran since, and have no journal
        return read_at
    started = load_tick_started(base, previous_tick)
    plan = TickPlan.from_record(started) if started else None
    return plan.next_reading if plan and plan.at else read_at


_LIMIT_BYTES = 16 << 20

KnownSchedules = Mapping[str, tuple[str, str]]
"""By agent: the schedule as text, and its first reading; empty if it has always existed."""


def find_first_reading(org: Organisation, name: str, schedule: str, since: str, at: str) -> str:
    """Return the reading after which due times of a schedule count; `at` for a new schedule, so none counts."""
    known_schedules = load_known_schedules(org)
    if known_schedules is None or not since:
        return since
    known_schedule, first = known_schedules.get(name, ("", ""))
    if known_schedule != schedule:
        return at
    # first seen by a clock that was more than a day ahead: that time would be waited for
    is_believed = first <= at or later_reading(at, first) == first
    return max(since, first) if is_believed else since


def load_known_schedules(org: Organisation) -> KnownSchedules | None:
    """Return the recorded schedules, or None without a readable file."""
    try:
        return org.files.get_value(paths.SCHEDULES_FILE, _parse_schedules, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError:
        return None


def _parse_schedules(raw: bytes) -> KnownSchedules | None:
    try:
        raw_schedules: Any = parse(raw, limit_bytes=_LIMIT_BYTES)
        schedules = {name: (fields["schedule"], fields["since"]) for name, fields in raw_schedules.items()}
    except (JsonProblem, ValueError, TypeError, LookupError, AttributeError):
        return None
    is_valid = all(isinstance(text, str) and (not at or is_timestamp(at)) for text, at in schedules.values())
    return schedules if is_valid else None
