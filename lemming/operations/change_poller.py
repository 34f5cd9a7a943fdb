"""Pause between two ticks: until the end of the interval, or until a reason to wake up.

Rules: docs/concepts.md, "Sleeping". Ticks during sleep are counted, not run: no agent would have taken a
turn, because no file had changed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.files import fs
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.journal.engine_events import Sleeping, Woken
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.tick_counter import load_counter
from lemming.kernel.tick.tick_hooks import CapabilityUse, get_capability_uses, uses_clock
from lemming.kernel.tick.validation.agent_validation import load_validated_survey
from lemming.kernel.tools import EngineTool, get_toolset
from lemming.kernel.turn.descriptions import TickView
from lemming.operations.change_detector import ChangeDetector, find_context_files
from lemming.operations.clock_schedules import iter_upcoming
from lemming.operations.gateways import Gateways
from lemming.operations.tick_pacing import IntervalTimer

MAX_SLEEP_S = 3600.0
MIN_POLL_S, MAX_POLL_S, POLL_GROWTH = 0.5, 3.0, 1.25
MAX_POLL_SHARE = 0.01
STABLE_S, MAX_STABLE_POLLS = 0.1, 20
WALL_CLOCK_POLL_S = 30.0
"""Maximum delay of noticing a wall-clock time: a monotonic clock stands still while the machine is suspended,
and ignores changes of the clock."""


@dataclass(frozen=True)
class SleepPlan:
    """Plan of a sleep: until tick `tick` (None: no tick is scheduled), and at the latest until `end`.

    `due` are the agents to run then; an empty list means maintenance only. `due_time`: wall-clock time of the
    next scheduled turn.
    """

    tick: int | None
    end: Deadline
    due: list[str]
    due_time: datetime | None = None


@dataclass
class ChangePoller(IntervalTimer):
    """Sleeps until a file with influence on the next turns changes, or until an agent is due."""

    _detector: ChangeDetector = field(init=False)
    _gateways: Gateways = field(init=False)
    _engine_writes: set[str] = field(default_factory=set)
    _idle_agents: set[str] = field(default_factory=set)
    _was_immediate: bool = False
    _quiet_s: float = 0.0  # seconds since the start of the tick

    def __post_init__(self) -> None:
        self._detector = ChangeDetector(self.runtime.base)
        self._gateways = self.runtime.org.get_cache(Gateways)

    @contextmanager
    def around_tick(self) -> Iterator[None]:
        """Surround a tick, and record the engine's writes. Earlier changes are visible to the tick itself."""
        agents = survey_agents(self.runtime.org).agents.values()
        self._detector.add_context(find_context_files(self.runtime.base, agents))
        if self._detector.find_changes():
            self._idle_agents.clear()
        self._engine_writes.clear()

        def record_write(_: str, path: str) -> None:
            self._engine_writes.add(path)

        with super().around_tick(), fs.observe_changes(record_write, only=self.runtime.base):
            yield

    def sleep(self, report: TickReport, interval_s: float, max_ticks: float) -> int:
        """Sleep as `IntervalTimer.sleep` does, longer while no agent is due, shorter after a change."""
        if not report.is_complete:
            return 0
        self._quiet_s = self._since_tick.elapsed()
        # files outside the organisation, which `fs` lists under other roots
        outside = {file["path"] for turn in report.turns for file in turn.files if file["path"].startswith("/")}
        changed = self._detector.find_changes(self._engine_writes | outside)
        self._update_idle_agents(report, changed)
        if changed and not self._was_immediate and not self._has_used_external_tools(report):
            self._was_immediate = True
            self._log_waking(report.tick + 1, 0, changed)
            return 0
        self._was_immediate = False
        plan = self._limit_to_due_time(self._plan_sleep(report.tick, interval_s, max_ticks))
        if self.runtime.stop.is_set() or plan.end.has_passed:
            return self._count_missed_ticks(plan, report.tick, interval_s)
        seconds = plan.end.remaining()
        end_time = timestamp(self.runtime.clock.now() + timedelta(seconds=seconds))
        next_tick, until_tick, seconds = report.tick + 1, plan.tick, round(seconds, 3)
        self.runtime.notify(
            Sleeping(next_tick=next_tick, until_tick=until_tick, until=end_time, seconds=seconds, due=plan.due)
        )
        changed = self._wait(plan)
        if changed:
            self._idle_agents.clear()
        missed_ticks = self._count_missed_ticks(plan, report.tick, interval_s)
        self._log_waking(report.tick + missed_ticks + 1, missed_ticks, changed)
        return missed_ticks

    def _update_idle_agents(self, report: TickReport, changed: list[str]) -> None:
        """Record the agents without work in a quiet tick: these agents take no turn until a file changes.

        In a tick with turns an agent may have written input for another agent.
        """
        if changed or not report.is_quiet or self._gateways.has_received:
            self._idle_agents.clear()
        else:
            skipped = {turn.agent for turn in report.turns if turn.status == "skipped"}
            self._idle_agents |= {name for name in skipped if not _has_external_wait(self.runtime.org, name)}
            self._idle_agents.update(*(use.agents for use in self._capability_uses() if use.uses_clock))

    def _capability_uses(self) -> list[CapabilityUse]:
        org = self.runtime.org
        return get_capability_uses(org, load_validated_survey(org), self.runtime.load_config())

    def _has_used_external_tools(self, report: TickReport) -> bool:
        """Return True if a tool may have changed files directly, so a change need not come from a person."""
        toolset = get_toolset(self.runtime.load_config().org, self.runtime.org)
        called_names = {tool["tool"] for turn in report.turns for tool in turn.tools}
        return any(not isinstance(toolset[name], EngineTool) for name in called_names & toolset.keys())

    def _plan_sleep(self, tick: int, interval_s: float, max_ticks: float) -> SleepPlan:
        schedules = self._find_due_ticks(tick + 1)
        max_sleep_s = max(interval_s, MAX_SLEEP_S)
        max_ticks_by_time = max_sleep_s // interval_s if interval_s > 0 else math.inf
        wake_tick = min([*schedules.values(), tick + max_ticks, tick + max_ticks_by_time])
        if (poll_delay_s := self._gateways.poll_after_s) is not None:
            wake_tick = min(wake_tick, tick + max(1, math.ceil(poll_delay_s / interval_s) if interval_s > 0 else 1))
        if math.isinf(wake_tick):
            return SleepPlan(None, self._deadline_from_tick(max_sleep_s), [])
        wake_tick = int(wake_tick)
        due = sorted(name for name, due_tick in schedules.items() if due_tick == wake_tick)
        return SleepPlan(wake_tick, self._deadline_from_tick((wake_tick - tick) * interval_s), due)

    def _deadline_from_tick(self, seconds: float) -> Deadline:
        return Deadline(seconds - self._since_tick.elapsed(), clock=self.monotonic)

    def _limit_to_due_time(self, plan: SleepPlan) -> SleepPlan:
        """Return a plan that ends when an agent is due by the clock, or when a delayed entry becomes visible."""
        current_time = self.runtime.clock.now()
        due_times = self._find_due_times(current_time)
        if not due_times:
            return plan
        first_due = min(due_times.values())
        end = Deadline((first_due - current_time).total_seconds(), clock=self.monotonic)
        if end.remaining() > plan.end.remaining():
            return replace(plan, due_time=first_due)
        due = sorted(name for name, due_time in due_times.items() if name and due_time == first_due)
        return replace(plan, end=end, due=due, due_time=first_due)

    def _find_due_times(self, current_time: datetime) -> dict[str, datetime]:
        """Return the next clock times of agents by name, and under "" the time of the first delayed entry."""
        org, config = self.runtime.org, self.runtime.load_config()
        survey, due_times = survey_agents(org), dict[str, datetime]()
        uses = self._capability_uses()
        tick, since = load_counter(org) if uses_clock(uses) else (0, "")
        view = TickView(org, config, survey, tick, timestamp(current_time), since)
        last_reading = parse_timestamp(since) if since else current_time
        for use in uses:
            with contextlib.suppress(ConfigError):  # the agent is reported as broken
                for event in filter(None, (next(events, None) for events in iter_upcoming(use, view, last_reading))):
                    for name in [event.agent] if event.agent in use.agents else use.agents:
                        due_times[name] = min(event.at, due_times.get(name, event.at))
        for name in [*due_times] if config.org.paused else survey.paused_agents:
            due_times.pop(name, None)
        if entry_due := org.get_cache(EntryIndex).next_reveal_time(timestamp(current_time)):
            due_times[""] = parse_timestamp(entry_due)
        return due_times

    def _find_due_ticks(self, tick: int) -> dict[str, int]:
        """Return the next tick, from `tick` on, of each agent able to take a turn in the current state."""
        config = self.runtime.load_config()
        agents = survey_agents(self.runtime.org).agents
        return {
            name: next_due(agent.schedule, tick)
            for name, agent in agents.items()
            if name not in self._idle_agents
            and (agent.schedule.cron is None or agent.schedule.run_every_n_ticks > 1)
            and not (config.org.paused or agent.paused)
            and config.has_model_turns(agent)
        }

    def _count_missed_ticks(self, plan: SleepPlan, tick: int, interval_s: float) -> int:
        """Return the number of ticks missed since tick `tick` began, without the tick to run next.

        A tick due after the last unchanged poll is run, because an agent may have work.
        """
        if plan.tick is None:
            return 0
        missed_ticks = self._quiet_s / interval_s if interval_s > 0 else math.inf
        return int(min(missed_ticks, plan.tick - tick - 1))

    def _wait(self, plan: SleepPlan) -> list[str]:
        """Wait for the end of the plan, a stop, or a change, and return the changes.

        The poll interval grows while nothing changes. Polling takes at most a hundredth of the time.
        """
        pause = MIN_POLL_S
        while not self._has_ended(plan):
            if self._wait_for_poll(pause, plan):
                return []
            polled_at = self._since_tick.elapsed()
            if arrived := self._gateways.arrival_folder():
                return [arrived, *self._wait_until_stable()]
            if changed := self._detector.find_changes():
                return sorted({*changed, *self._wait_until_stable()})
            self._quiet_s, poll_duration_s = polled_at, self._since_tick.elapsed() - polled_at
            pause = max(min(pause * POLL_GROWTH, MAX_POLL_S), poll_duration_s / MAX_POLL_SHARE)
        return []

    def _wait_for_poll(self, seconds: float, plan: SleepPlan) -> bool:
        """Wait for some seconds, or until the end of the plan. Return True on a stop."""
        poll_deadline = plan.end.within(seconds)
        while not (poll_deadline.has_passed or self._has_ended(plan)):
            if self.runtime.stop.wait(min(poll_deadline.remaining(), WALL_CLOCK_POLL_S)):
                return True
        return self.runtime.stop.is_set()

    def _has_ended(self, plan: SleepPlan) -> bool:
        is_due = plan.due_time is not None and self.runtime.clock.now() >= plan.due_time
        return is_due or plan.end.has_passed

    def _wait_until_stable(self) -> set[str]:
        """Wait until no process is writing, to avoid half-written files, and return further changes."""
        changed: set[str] = set()
        for _ in range(MAX_STABLE_POLLS):
            if self.runtime.stop.wait(STABLE_S) or not (further_changes := self._detector.find_changes()):
                break
            changed.update(further_changes)
        return changed

    def _log_waking(self, tick: int, missed_ticks: int, changed: list[str]) -> None:
        cause = "stop" if self.runtime.stop.is_set() else "change" if changed else "time"
        printable_paths = [path.encode("utf-8", "replace").decode() for path in changed]
        self.runtime.notify(Woken(why=cause, next_tick=tick, slept_through=missed_ticks, changed=printable_paths))


def _has_external_wait(org: Organisation, name: str) -> bool:
    """Return True if an agent waits for an event without a file change: a deadline, or a plan's condition."""
    try:
        open_requests = read_state(org, name).requests
    except CorruptState:
        return False
    return any(request.can_continue or request.has_deadline for request in open_requests)
