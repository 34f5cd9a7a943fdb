"""An engine that sleeps wakes for a moment: of a cron schedule, or of an entry that waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from asleep import EVERY_TENTH, MINUTE, Alarm, Night, human, reader

from lemming.engine import load_tick, run_opened
from lemming.kernel.base.clock import timestamp
from lemming.kernel.journal.engine_events import Event, Sleeping
from lemming.kernel.tick.tick_counter import load_counter, persist_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.change_poller import ChangePoller
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, make_org, resume

START = datetime(2026, 11, 23, 7, 0, 20, tzinfo=UTC)
NINE = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}  # an hour after START, but for 20 seconds
HOUR = 3600.0


class AlarmClock(FrozenClock):
    """A clock that goes with an alarm."""

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(START)
        self.alarm, self.ahead = alarm, timedelta()

    def now(self) -> datetime:
        return START + self.ahead + timedelta(seconds=self.alarm.now)


@contextmanager
def asleep(base: Path) -> Iterator[Night]:
    alarm, events = Alarm(), list[Event]()
    with open_org(base, clock=AlarmClock(alarm), notify=events.append, stop=alarm) as runtime:
        yield Counting(base, ChangePoller(runtime, lambda: alarm.now), alarm, events)


class Counting(Night):
    """A night that keeps the clock's reading in the counter, as the engine does."""

    def tick(self, meanwhile=lambda: None):  # type: ignore[no-untyped-def]
        with self.sleeper.around_tick():
            report = run_opened(self.sleeper.runtime, load_tick(self.base), advance=True)
        meanwhile()
        self.passed = self.sleeper.sleep(report, MINUTE, float("inf"))
        counted, read_at = load_counter(self.base)
        persist_tick(self.base, counted + self.passed, read_at=read_at)
        return report


def test_it_sleeps_until_the_moment_of_a_schedule(base: Path) -> None:
    make_org(base, resume("ada", schedule={**NINE, "cron": "30 8 * * *"}))
    with asleep(base) as night:
        assert night.tick().is_quiet
        assert night.alarm.now == pytest.approx(HOUR / 2 - 20, abs=0.01)
        assert night.told(Sleeping)[0].due == ["ada"]
        report = night.tick()
        assert [turn.status for turn in report.turns] == ["done"]
        assert report.tick == 31
        assert night.told(Sleeping)[1].due == []  # it looks after things once an hour


def test_a_moment_further_off_than_an_agent_that_goes_by_ticks_is_no_reason_to_wake(base: Path) -> None:
    make_org(base, resume("ada", schedule=NINE), resume("bob", schedule=EVERY_TENTH))
    with asleep(base) as night:
        night.tick()
        assert (night.alarm.now, night.told(Sleeping)[0].due) == (9 * MINUTE, ["bob"])


def test_an_entry_that_waits_ends_the_sleep_at_its_moment(base: Path) -> None:
    make_org(base, reader("ada"), human())
    moment = timestamp(START + timedelta(minutes=30))
    payload = {"text": "now", "not_before": moment}
    write_person_entry(base, "human", tick=1, kind="message", payload=payload, tags=[], created_at="")
    with asleep(base) as night:
        assert not night.tick().is_quiet  # its first turn
        assert night.tick().is_quiet
        assert night.alarm.now == pytest.approx(HOUR / 2, abs=0.01)
        assert [turn.agent for turn in night.tick().turns if turn.status == "done"] == ["ada"]


def test_who_is_paused_wakes_nobody(base: Path) -> None:
    make_org(base, resume("ada", schedule=NINE, paused="too dear"), resume("bob", schedule=EVERY_TENTH))
    with asleep(base) as night:
        for _ in range(7):
            night.tick()
        assert all("ada" not in sleeping.due for sleeping in night.told(Sleeping))


@pytest.mark.parametrize("ahead", [timedelta(minutes=58), timedelta(hours=9)], ids=["set", "suspended"])
def test_a_moment_that_came_while_the_monotonic_clock_stood_still_is_noticed_within_a_minute(
    base: Path, ahead: timedelta
) -> None:
    """As after a suspend, or when somebody sets the clock: the alarm goes on where it was."""
    make_org(base, resume("ada", schedule=NINE))
    with asleep(base) as night:
        clock = night.sleeper.runtime.clock
        assert isinstance(clock, AlarmClock)
        leap = 90.0

        def move_on() -> None:
            clock.ahead = ahead

        night.alarm.planned.append((leap, move_on))
        assert night.tick().is_quiet
        moment = datetime(2026, 11, 23, 8, tzinfo=UTC)
        due_at = max(leap, (moment - START - ahead).total_seconds())
        assert due_at <= night.alarm.now <= due_at + MINUTE
        assert [turn.agent for turn in night.tick().turns if turn.status == "done"] == ["ada"]


def test_a_clock_that_is_put_back_while_it_sleeps_wakes_it_no_later(base: Path) -> None:
    make_org(base, resume("ada", schedule=NINE))
    with asleep(base) as night:
        clock = night.sleeper.runtime.clock
        assert isinstance(clock, AlarmClock)

        def put_back() -> None:
            clock.ahead = -timedelta(minutes=10)

        night.alarm.planned.append((90.0, put_back))
        assert night.tick().is_quiet
        assert night.tick().is_quiet  # it woke at the moment as it was, and goes on waiting
        late = clock.now() - datetime(2026, 11, 23, 8, tzinfo=UTC)
        assert timedelta() <= late <= timedelta(minutes=1)
        assert [turn.agent for turn in night.tick().turns if turn.status == "done"] == ["ada"]
