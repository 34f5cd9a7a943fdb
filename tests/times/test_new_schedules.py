"""A schedule that is new, or was moved, makes up for nothing, also where a reading of the clock was kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume

BERLIN = {"timezone": "Europe/Berlin"}
DAILY = {"cron": "0 9 * * *", **BERLIN}  # at 08:00 UTC
MONDAY = datetime(2026, 11, 23, 7, tzinfo=UTC)
SCHEDULES = ".lemming/schedules.json"


class Office:
    """An organisation of `ada`, who goes by the clock: a reading of 08:00 in Berlin is kept."""

    def __init__(self, base: Path, **org: Any) -> None:
        self.base, self.clock = base, FrozenClock(MONDAY)
        make_org(base, resume("ada", schedule=DAILY), org=org)
        self.tick()

    def hire(self, name: str, **schedule: Any) -> None:
        """Write a resume with a schedule."""
        folder = self.base / "agents" / name
        folder.mkdir(exist_ok=True)
        (folder / "resume.json").write_text(json.dumps(resume(name, schedule={**BERLIN, **schedule})))

    def tick(self, **later: float) -> list[str]:
        """Run a tick so much later, and return who had a turn."""
        self.clock.advance(timedelta(**later).total_seconds())
        return [turn.agent for turn in run_once(self.base, clock=self.clock).turns if turn.status == "done"]


def test_a_new_schedule_is_not_due_for_a_moment_before_it_was_seen(base: Path) -> None:
    office = Office(base)
    office.hire("bob", cron="30 8 * * *")
    assert office.tick(minutes=45) == []  # 08:45 in Berlin, and the last reading is of 08:00
    assert office.tick(minutes=30) == ["ada"]
    assert office.tick(hours=24) == ["ada", "bob"]


def test_a_schedule_that_was_moved_is_not_due_for_a_moment_before_that(base: Path) -> None:
    office = Office(base)
    office.hire("ada", cron="30 8 * * *")
    assert office.tick(minutes=45) == []
    assert office.tick(hours=24) == ["ada"]


def test_a_schedule_is_moved_by_the_time_zone_of_the_settings_as_well(base: Path) -> None:
    office = Office(base, timezone="Europe/Berlin")
    office.hire("ada", cron="0 9 * * *", timezone=None)
    office.tick()
    settings = json.loads((base / "config/org.json").read_text())
    (base / "config/org.json").write_text(json.dumps({**settings, "timezone": "Europe/Athens"}))
    assert office.tick(minutes=30) == []  # 09:30 in Athens
    assert office.tick(hours=24) == ["ada"]


def test_whatever_else_changes_in_a_resume_moves_no_schedule(base: Path) -> None:
    office = Office(base)
    office.hire("ada", **DAILY, missed="skip", grace_minutes=600)
    assert office.tick(hours=2) == ["ada"]


def test_a_resume_that_is_broken_for_a_while_loses_no_moment(base: Path) -> None:
    office, file = Office(base), base / "agents/ada/resume.json"
    whole = file.read_text()
    office.hire("bob", cron="0 23 * * *")  # so that readings are kept
    office.tick()
    file.write_text(whole[:20])
    office.tick(minutes=30)
    file.write_text(whole)
    assert office.tick(hours=1) == ["ada"]


def test_what_an_earlier_version_left_counts_as_known(base: Path) -> None:
    office = Office(base)
    (base / SCHEDULES).unlink()
    assert office.tick(hours=2) == ["ada"]


@pytest.mark.parametrize("content", ["[]", "{", '{"ada": 7}', '{"ada": {"schedule": 1, "since": "x"}}'])
def test_a_file_that_nobody_understands_counts_as_none(base: Path, content: str) -> None:
    office = Office(base)
    (base / SCHEDULES).write_text(content)
    assert office.tick(hours=2) == ["ada"]


def test_the_file_is_written_when_a_schedule_changes_and_no_more(base: Path) -> None:
    office = Office(base)
    first = (base / SCHEDULES).stat().st_ino
    office.tick(hours=2)
    office.tick(hours=24)
    assert (base / SCHEDULES).stat().st_ino == first
    office.hire("bob", cron="30 8 * * *")
    office.tick(minutes=1)
    assert json.loads((base / SCHEDULES).read_text()).keys() == {"ada", "bob"}


def test_wherever_the_engine_dies_a_new_schedule_is_not_due(base: Path) -> None:
    office = Office(base)
    office.hire("bob", cron="30 8 * * *")
    office.clock.advance(timedelta(hours=2).total_seconds())
    for number in range(1, 60):
        try:
            with crash_at(number):
                office.tick()
            break
        except Crash:
            continue
    assert office.tick() == []
    assert not (base / "agents/bob/outbox").exists()
    assert office.tick(hours=24) == ["ada", "bob"]


def test_a_schedule_that_was_new_while_the_clock_was_years_ahead_is_not_waited_for(base: Path) -> None:
    office = Office(base)
    office.tick(days=3650)
    office.hire("bob", cron="30 8 * * *")
    office.tick(hours=1)
    assert office.tick(days=-3650) == []
    assert office.tick(hours=24) == ["ada", "bob"]


def test_a_schedule_that_was_new_while_the_clock_was_hours_ahead_is_due_once_it_has_passed(base: Path) -> None:
    office = Office(base)
    office.tick(hours=10)
    office.hire("bob", cron="30 * * * *")
    office.tick(minutes=5)
    assert office.tick(hours=-5) == []
    assert office.tick(hours=1) == []
    assert office.tick(hours=5) == ["bob"]
