"""The pause between two ticks: until the interval is over, or until there is something to wake up for.

Rules: docs/concepts.md, "Sleeping". Ticks that are slept through are counted, not run: nobody would
have taken a turn in them, for no file had changed while their time passed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lemming.kernel.agents import survey_agents
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.files import fs
from lemming.kernel.journal.events import Sleeping, Woken
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.report import TickReport
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.counter import load_counter
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tick.seams import TickLook, TickPart, goes_by_the_clock, parts_in
from lemming.kernel.tick.soundness.judged import sound_survey
from lemming.kernel.tools import EngineTool, toolset_of
from lemming.service.timer import Timer
from lemming.service.watch import Watch, context_files

LONGEST_SLEEP_S = 3600.0
FIRST_LOOK_S, LONGEST_LOOK_S, LOOKS_GROW = 0.5, 3.0, 1.25
LOOKING_SHARE = 0.01
SETTLED_S, SETTLING_LOOKS = 0.1, 20
WALL_LOOK_S = 30.0
"""So late may it be noticed that the wall clock has reached a moment: a monotonic clock stands still while
the machine is suspended, and does not follow when the clock is set."""


@dataclass(frozen=True)
class Night:
    """How long to sleep: until tick `tick` (None: no tick has a time), that is until `ends` at the latest.

    `due` are those who fire then; nobody when the sleep only ends to look after things. `moment`: that of the
    wall clock at which something is due.
    """

    tick: int | None
    ends: Deadline
    due: list[str]
    moment: datetime | None = None


@dataclass
class Sleeper(Timer):
    """Sleeps until a file changes that decides who takes a turn, or until one who may take one is due."""

    _watch: Watch = field(init=False)
    _ours: set[str] = field(default_factory=set)
    _resting: set[str] = field(default_factory=set)
    _was_hurried: bool = False
    _unchanged_for_s: float = 0.0  # from the tick's beginning

    def __post_init__(self) -> None:
        self._watch = Watch(self.runtime.base)

    @contextmanager
    def tick(self) -> Iterator[None]:
        """Surround a tick, and note what the engine writes in it. What changed before it, it will see."""
        agents = survey_agents(self.runtime.org).agents.values()
        self._watch.add_context(context_files(self.runtime.base, agents))
        if self._watch.changes():
            self._resting.clear()
        self._ours.clear()
        with super().tick(), fs.observed(self._note, only=self.runtime.base):
            yield

    def _note(self, _: str, path: str) -> None:
        self._ours.add(path)

    def sleep(self, report: TickReport, interval_s: float, most: float) -> int:
        """Sleep as `Timer.sleep` does, for longer while nobody is due and for less when something changes."""
        if not report.is_complete:
            return 0
        self._unchanged_for_s = self._since_tick.elapsed()
        changed = self._watch.changes(self._ours | _written_outside(report))
        self._rest(report, changed)
        if changed and not self._was_hurried and not self._used_foreign_tools(report):
            self._was_hurried = True
            self._log_waking(report.tick + 1, 0, changed)
            return 0
        self._was_hurried = False
        night = self._until_a_moment(self._night(report.tick, interval_s, most))
        if self.runtime.stop.is_set() or night.ends.has_passed:
            return self._slept_through(night, report.tick, interval_s)
        self._log_sleep(report.tick + 1, night)
        changed = self._wait(night)
        if changed:
            self._resting.clear()
        passed = self._slept_through(night, report.tick, interval_s)
        self._log_waking(report.tick + passed + 1, passed, changed)
        return passed

    def _rest(self, report: TickReport, changed: list[str]) -> None:
        """Note who will take no turn, due or not, until a file changes: it had nothing to do in a quiet tick.

        In a tick with turns somebody may have written what another reads.
        """
        if changed or not report.is_quiet or (self.runtime.carriers and self.runtime.carriers.has_taken_in):
            self._resting.clear()
        else:
            skipped = {turn.agent for turn in report.turns if turn.status == "skipped"}
            self._resting |= {name for name in skipped if not _waits_outside(self.runtime.org, name)}
            self._resting.update(*(part.agents for part in self._parts() if part.by_clock))

    def _parts(self) -> list[TickPart]:
        org = self.runtime.org
        return parts_in(org, sound_survey(org), self.runtime.load_config())

    def _used_foreign_tools(self, report: TickReport) -> bool:
        """Whether a tool may have changed files itself: what changed need not be people's doing."""
        known = toolset_of(self.runtime.load_config().org, self.runtime.org)
        used = {tool["tool"] for turn in report.turns for tool in turn.tools}
        return any(not isinstance(known[name], EngineTool) for name in used & known.keys())

    def _night(self, tick: int, interval_s: float, most: float) -> Night:
        """Return how long to sleep after tick `tick`."""
        schedules = self._schedules(tick + 1)
        longest = max(interval_s, LONGEST_SLEEP_S)
        furthest = longest // interval_s if interval_s > 0 else math.inf
        until = min([*schedules.values(), tick + most, tick + furthest])
        if self.runtime.carriers and (again_s := self.runtime.carriers.again_s) is not None:
            until = min(until, tick + max(1, math.ceil(again_s / interval_s) if interval_s > 0 else 1))
        if math.isinf(until):
            return Night(None, self._after_tick(longest), [])
        until = int(until)
        due = sorted(name for name, when in schedules.items() if when == until)
        return Night(until, self._after_tick((until - tick) * interval_s), due)

    def _after_tick(self, seconds: float) -> Deadline:
        return Deadline(seconds - self._since_tick.elapsed(), clock=self.monotonic)

    def _until_a_moment(self, night: Night) -> Night:
        """Return a night that ends when somebody is due by the clock, or an entry need wait no longer."""
        now = self.runtime.clock.now()
        moments = self._moments(now)
        if not moments:
            return night
        first = min(moments.values())
        ends = Deadline((first - now).total_seconds(), clock=self.monotonic)
        if ends.remaining() > night.ends.remaining():
            return replace(night, moment=first)
        due = sorted(name for name, moment in moments.items() if name and moment == first)
        return replace(night, ends=ends, due=due, moment=first)

    def _moments(self, now: datetime) -> dict[str, datetime]:
        """Return when agents are due next by the clock, by name; under "" the first entry that waits."""
        org, config = self.runtime.org, self.runtime.load_config()
        survey, found = survey_agents(org), dict[str, datetime]()
        parts = self._parts()
        tick, since = load_counter(org) if goes_by_the_clock(parts) else (0, "")
        look = TickLook(org, config, survey, tick, timestamp(now), since)
        after = parse_timestamp(since) if since else now
        for part in parts:
            with contextlib.suppress(ConfigError):  # its agent is told of as broken
                for it in filter(None, (next(each, None) for each in part.comes(look, after))):
                    for name in [it.agent] if it.agent in part.agents else part.agents:
                        found[name] = min(it.at, found.get(name, it.at))
        for name in [*found] if config.org.paused else survey.paused:
            found.pop(name, None)
        if waits_until := org.own(EntryIndex).next_moment(timestamp(now)):
            found[""] = parse_timestamp(waits_until)
        return found

    def _schedules(self, tick: int) -> dict[str, int]:
        """Return the next tick, from `tick` on, of each agent that may take a turn in it as things stand."""
        config = self.runtime.load_config()
        agents = survey_agents(self.runtime.org).agents
        return {
            name: next_due(agent.schedule, tick)
            for name, agent in agents.items()
            if name not in self._resting
            and (agent.schedule.cron is None or agent.schedule.run_every_n_ticks > 1)
            and not (config.org.paused or agent.paused)
            and takes_turns(agent, config)
        }

    def _slept_through(self, night: Night, tick: int, interval_s: float) -> int:
        """Return how many ticks had their time since tick `tick` began, but for the one that wakes us.

        A tick whose time came after the last look that found no change is run: somebody may have work in it.
        """
        if night.tick is None:
            return 0
        had_time = self._unchanged_for_s / interval_s if interval_s > 0 else math.inf
        return int(min(had_time, night.tick - tick - 1))

    def _wait(self, night: Night) -> list[str]:
        """Wait until the night is over, the engine's end or a change; return what changed.

        The longer nothing happens the more seldom it looks. Looking takes a hundredth of the time at most.
        """
        pause = FIRST_LOOK_S
        while not self._is_over(night):
            if self._pause(pause, night):
                return []
            looked = self._since_tick.elapsed()
            if self.runtime.carriers and (arrived := self.runtime.carriers.has_arrived()):
                return [arrived, *self._settle()]
            if changed := self._watch.changes():
                return sorted({*changed, *self._settle()})
            self._unchanged_for_s, took = looked, self._since_tick.elapsed() - looked
            pause = max(min(pause * LOOKS_GROW, LONGEST_LOOK_S), took / LOOKING_SHARE)
        return []

    def _pause(self, seconds: float, night: Night) -> bool:
        """Wait so long, or until the night is over; return whether the engine is to end."""
        pause = night.ends.within(seconds)
        while not (pause.has_passed or self._is_over(night)):
            if self.runtime.stop.wait(min(pause.remaining(), WALL_LOOK_S)):
                return True
        return self.runtime.stop.is_set()

    def _is_over(self, night: Night) -> bool:
        is_due = night.moment is not None and self.runtime.clock.now() >= night.moment
        return is_due or night.ends.has_passed

    def _settle(self) -> set[str]:
        """Wait until nobody is writing any more, lest half a file be read; return what changed meanwhile."""
        changed: set[str] = set()
        for _ in range(SETTLING_LOOKS):
            if self.runtime.stop.wait(SETTLED_S) or not (more := self._watch.changes()):
                break
            changed.update(more)
        return changed

    def _log_sleep(self, tick: int, night: Night) -> None:
        seconds = night.ends.remaining()
        self.runtime.notify(
            Sleeping(
                next_tick=tick,
                until_tick=night.tick,
                until=timestamp(self.runtime.clock.now() + timedelta(seconds=seconds)),
                seconds=round(seconds, 3),
                due=night.due,
            )
        )

    def _log_waking(self, tick: int, passed: int, changed: list[str]) -> None:
        why = "stop" if self.runtime.stop.is_set() else "change" if changed else "time"
        shown = [path.encode("utf-8", "replace").decode() for path in changed]
        self.runtime.notify(Woken(why=why, next_tick=tick, slept_through=passed, changed=shown))


def _waits_outside(org: Organisation, name: str) -> bool:
    """Return whether an agent waits for what no change of a file tells: a deadline, or what its plan says."""
    try:
        begun = read_state(org, name).requests
    except CorruptState:
        return False
    return any(it.goes_on or it.has_an_end for it in begun)


def _written_outside(report: TickReport) -> set[str]:
    """Return the files that turns wrote outside the organisation, where `fs` names them by other roots."""
    files = (file["path"] for turn in report.turns for file in turn.files)
    return {path for path in files if path.startswith("/")}
