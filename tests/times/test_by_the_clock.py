"""Cron schedules in ticks: who is due follows from two recorded readings of the clock."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import load_tick, run_once, run_tick
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.journal.turn_report import TickReport
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, tree

DAILY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}
MONDAY = datetime(2026, 11, 23, 7, tzinfo=UTC)  # 08:00 in Berlin


class Watched:
    """An organisation whose clock a test moves."""

    def __init__(self, base: Path, **schedule: Any) -> None:
        self.base, self.clock = (make_org(base, resume("ada", schedule={**DAILY, **schedule})), FrozenClock(MONDAY))
        self.told: list[str] = []

    def hear(self, event: Event) -> None:
        if isinstance(event, ProblemFound):
            self.told.append(event.problem.message)

    def tick(self, **later: float) -> TickReport:
        self.clock.advance(timedelta(**later).total_seconds())
        return run_once(self.base, clock=self.clock, notify=self.hear)

    def fires(self, **later: float) -> bool:
        return not self.tick(**later).is_quiet

    @property
    def counter(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads((self.base / "tick.json").read_text())
        return plain


def test_who_has_a_cron_schedule_is_due_in_the_first_tick_at_or_after_its_moment(base: Path) -> None:
    org = Watched(base)
    assert not org.fires()  # no tick before it: nothing is made up for
    assert not org.fires(minutes=59)
    assert org.fires(minutes=1)
    assert not org.fires(seconds=1)
    assert not org.fires(hours=23)
    assert org.fires(hours=1)


def test_a_quiet_tick_keeps_its_reading_in_the_counter_and_a_tick_with_turns_in_its_journal_too(base: Path) -> None:
    org = Watched(base)
    org.tick()
    assert org.counter == {"current_tick": 2, "read_at": "2026-11-23T07:00:00.000Z"}
    org.tick(hours=2)
    started = journal_lines(base, 2)[0]
    assert (started["since"], started["at"]) == ("2026-11-23T07:00:00.000Z", "2026-11-23T09:00:00.000Z")
    assert org.counter == {"current_tick": 3, "read_at": "2026-11-23T09:00:00.000Z"}


def test_an_organisation_that_uses_no_clock_keeps_no_reading(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base, clock=FrozenClock())
    assert json.loads((base / "tick.json").read_text()) == {"current_tick": 2}
    started = journal_lines(base, 1)
    assert "since" not in started[0]
    assert started[1]["resume"]["schedule"].keys() == {"run_every_n_ticks", "phase_offset", "wake"}


def test_a_week_of_downtime_is_made_up_for_with_one_turn_that_says_how_many_it_stands_for(base: Path) -> None:
    org = Watched(base)
    org.tick()
    assert org.fires(days=7)
    prompt = journal_lines(base, 2)[1]["prompt"][-1]["content"]
    assert "due by your schedule 7 times since Mon 23 Nov 2026 09:00 CET" in prompt
    assert not org.fires(minutes=1)


def test_one_moment_is_said_in_the_prompt(base: Path) -> None:
    org = Watched(base)
    org.tick()
    assert org.fires(hours=2)
    prompt = journal_lines(base, 2)[1]["prompt"][-1]["content"]
    assert "You are due by your schedule: Mon 23 Nov 2026 09:00 CET." in prompt


@pytest.mark.parametrize(("late", "fires"), [(59, True), (61, False)])
def test_what_was_missed_for_longer_than_the_grace_is_skipped_where_that_is_wanted(
    base: Path, late: int, fires: bool
) -> None:
    org = Watched(base, missed="skip", grace_minutes=60)
    org.tick()
    assert org.fires(minutes=60 + late) is fires
    assert org.fires(days=1, minutes=-late)


def test_a_clock_that_is_set_back_makes_nobody_due_twice_and_is_told(base: Path) -> None:
    org = Watched(base)
    org.tick()
    assert org.fires(hours=2)
    assert not org.fires(hours=-2)
    assert "the clock was set back" in org.told[0]
    assert not org.fires(hours=1, minutes=30)
    assert org.fires(days=1)


def test_a_clock_that_was_years_ahead_is_not_waited_for(base: Path) -> None:
    org = Watched(base)
    org.tick()
    assert org.fires(days=3650)
    assert not org.fires(days=-3650)
    assert org.fires(hours=3)


def test_both_must_hold_where_there_is_a_number_of_ticks_too(base: Path) -> None:
    org = Watched(base, cron="* * * * *", run_every_n_ticks=2)
    assert [org.fires(minutes=1) for _ in range(6)] == [False, True, False, True, False, True]


def test_a_time_zone_comes_from_the_settings_where_the_schedule_names_none(base: Path) -> None:
    org = Watched(base, timezone=None)
    report = org.tick()
    assert report.turns[0].error == "ConfigError"
    assert 'requires a time zone (set "timezone"' in report.turns[0].reason
    fs.write_atomic(base, "config/org.json", b'{"timezone": "Europe/Berlin"}')
    org.tick()
    assert org.fires(hours=2)


def test_a_wrong_schedule_takes_out_its_agent_and_a_wrong_zone_for_all_stops_the_engine(base: Path) -> None:
    org = Watched(base, cron="0 9 * * mon-fir")
    [turn] = org.tick().turns
    assert "resume.json:14:5" in turn.reason
    assert '/schedule/cron: "mon-fir" is not a valid day of the week' in turn.reason
    assert 'did you mean "mon-fri"?' in turn.reason
    fs.write_atomic(base, "config/org.json", b'{"timezone": "Europe/Berlni"}')
    with pytest.raises(ConfigError, match=r'/timezone: time zone .* does not exist.*did you mean "Europe/Berlin"'):
        run_once(base, clock=org.clock)


def test_an_interrupted_tick_goes_on_with_the_reading_it_began_with(base: Path) -> None:
    org = Watched(base)
    org.tick()
    org.clock.advance(7200)
    with pytest.raises(Crash), crash_at(9):
        run_once(base, clock=org.clock)
    assert load_tick(base) == 2
    assert org.fires(days=30)
    assert org.counter["read_at"] == "2026-11-23T09:00:00.000Z"


def test_ticks_that_were_run_by_number_know_each_others_readings(base: Path) -> None:
    org = Watched(base, cron="* * * * *")
    run_tick(base, 1, clock=org.clock)
    persisted = org.tick()
    assert persisted.is_quiet
    for number in (2, 3):
        org.clock.advance(60)
        assert not run_tick(base, number, clock=org.clock).is_quiet
    assert journal_lines(base, 3)[0]["since"] == "2026-11-23T07:01:00.000Z"


def test_replay_and_a_run_on_a_copy_agree_with_what_was(base: Path, tmp_path: Path) -> None:
    org = Watched(base)
    for _ in range(75):
        org.tick(hours=1)
    ticks = list_replayable_ticks(base, None)
    assert len(ticks) == 3
    assert len(list(replay_ticks(base, ticks))) == 3
    again = tmp_path / "again"
    shutil.copytree(base / "config", tmp_path / "config")
    assert len(list(replay_into(base, again, ticks))) == 3
    assert tree(again) == tree(base)


def test_date_and_time_stand_in_the_prompt_of_who_asks_for_them(base: Path) -> None:
    org = {"timezone": "Europe/Berlin"}
    make_org(base, resume("ada", clock=True), resume("bob"), resume("cyd", clock=True, schedule={}), org=org)
    edit = json.loads((base / "agents/cyd/resume.json").read_text())
    edit["schedule"]["timezone"] = "Asia/Tokyo"
    fs.write_atomic(base, "agents/cyd/resume.json", json.dumps(edit).encode())
    run_once(base, clock=FrozenClock(MONDAY))
    ada, bob, cyd = (line["prompt"][-1]["content"] for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert "it was Monday, 23 November 2026, 08:00 CET (2026-11-23T08:00+01:00, Europe/Berlin)." in ada
    assert "16:00 JST" in cyd
    assert "2026" not in bob
