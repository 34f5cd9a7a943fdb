"""What the calendar has the engine look at, and wake for."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from asleep import reader
from fault_injection import fail_nth_lookup
from test_looking_again import wait_for_rest, write
from test_sleeping_by_the_clock import HOUR, asleep

from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Sleeping
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, make_org, resume, say


def test_a_job_of_the_calendar_ends_the_sleep_at_its_moment(base: Path) -> None:
    calendar = resume("calendar", model={"key": "clock"})
    make_org(base, calendar, reader("dan", permissions={"read_outboxes": ["calendar"]}))
    job = {"agent": "dan", "text": "Now.", "cron": "30 8 * * *", "timezone": "Europe/Berlin"}
    fs.write_atomic(base, "config/calendar.json", dump_pretty({"jobs": {"now": job}}))
    with asleep(base) as night:
        night.tick()  # dan's first turn
        assert night.tick().is_quiet
        assert night.alarm.now == pytest.approx(HOUR / 2 - 20, abs=0.01)
        assert night.told(Sleeping)[-1].due == ["calendar"]
        assert [turn.agent for turn in night.tick().turns] == ["calendar", "dan"]
        assert night.tick().is_quiet
        assert night.told(Sleeping)[-1].due == []


@pytest.mark.usefixtures("stamps")
def test_an_entry_that_comes_by_hand_has_no_other_of_its_outbox_read_again(base: Path) -> None:
    open_for_all = {"read_outboxes": ["*"], "tools": []}
    make_org(
        base,
        resume("ada", permissions=open_for_all, turn={"take": "one"}),
        resume("clock", model={"key": "clock"}, permissions=open_for_all),
        resume("post", model={"key": "human"}),
        org={"timezone": "UTC"},
        script=[{"reply": say("x")}],
    )
    jobs = {"daily": {"agent": "ada", "text": "x", "cron": "0 9 * * *"}}
    fs.write_atomic(base, "config/calendar.json", json.dumps({"jobs": jobs}).encode())
    for number in range(30):
        write(base, "post", 0, f"mail{number}")
    wait_for_rest(base)
    org = Organisation(base)
    run_once(org, clock=FrozenClock())
    for number in range(3):
        write(base, "post", 1, f"more{number}")
        with fail_nth_lookup(base, 0, errno.EIO) as looks:
            run_once(org, clock=FrozenClock())
        opened_files = [it for it in looks if it.startswith("open agents/post/outbox/")]
        assert 1 <= len(opened_files) <= 2 * (number + 1)  # and those of which stamps tell nothing yet
        assert all("more" in it for it in opened_files)
