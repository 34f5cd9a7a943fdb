"""Time on the command line: entries for later, and who is due when by the clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock, parse_timestamp
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume

HUMAN = resume("human", model={"key": "human"})
BERLIN = {"timezone": "Europe/Berlin"}
DAILY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}


def sent(base: Path) -> datetime:
    return parse_timestamp(read_outbox_entries(base, "human")[0].not_before)


def test_send_in_prints_back_when_that_is_and_who_is_shown_it_then(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"), org=BERLIN)
    before = SystemClock().now()
    ran = lemming("send", "--to", "ada", "--in", "1h30m", "look again")
    assert timedelta(minutes=89) < sent(base) - before < timedelta(minutes=91)
    assert "nobody sees it before" in ran.err
    assert "CE" in ran.err  # CET or CEST
    assert "(in 90 min); then ada" in ran.err
    assert "(not before 20" in lemming("outbox", "human").out
    assert "look again" not in lemming("inbox", "ada").out


def test_send_at_takes_a_moment_in_the_organisations_time_zone(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada"), org=BERLIN)
    lemming("send", "--at", "2099-07-01 12:00", "hello")
    assert sent(base) == datetime(2099, 7, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--at", "soon"], 'expected a time, got "soon"\n  fix: write "tomorrow 9:00"'),
        (["--in", "soon"], 'expected a duration, got "soon"\n  fix: write 90s'),
        (["--at", "2001-01-01"], "must be in the future, got Mon 1 Jan 2001 09:00 CET"),
        (["--at", "17:30", "--in", "2h"], "--at and --in exclude each other"),
    ],
)
def test_send_refuses_what_is_no_moment_to_come(base: Path, lemming: Lemming, words: list[str], says: str) -> None:
    make_org(base, HUMAN, resume("ada"), org=BERLIN)
    ran = lemming("send", *words, "hello")
    assert ran.status == 2
    assert says in ran.err
    assert not read_outbox_entries(base, "human")


def test_screens_say_when_an_agent_is_due_by_the_clock(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule=DAILY), resume("bob"))
    plan = lemming("plan").out
    assert "ada  not due until " in plan
    assert "09:00 CE" in plan
    assert ", cron" in plan
    shown = lemming("agents", "ada").out
    assert "At 09:00 every day (0 9 * * *, Europe/Berlin), next " in shown
    ada, bob = json.loads(lemming("status", "--json").out)["agents"]
    assert (ada["next_tick"], bob["next_tick"], bob["next_at"]) == (None, 1, None)
    assert parse_timestamp(ada["next_at"]) > SystemClock().now()


def test_plan_says_who_is_due_because_a_moment_has_passed(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule=DAILY))
    run_once(base, clock=FrozenClock(SystemClock().now() - timedelta(days=2)))
    [line] = [line for line in lemming("plan").out.splitlines() if "ada" in line]
    assert "not due" not in line
    assert json.loads(lemming("plan", "--json").out)["order"][0]["agent"] == "ada"


def problems(ran_out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran_out.splitlines()]


def test_validate_names_what_is_wrong_with_times(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada", schedule={"cron": "0 9 * * mon-fir", "timezone": "Europe/Berlni"}),
        resume("bob", schedule={"cron": "@daily"}),
        resume("cyd", schedule={"missed": "skip"}),
    )
    ran = lemming("validate", "--json")
    found = [(it["pointer"], it["hint"], it["severity"]) for it in problems(ran.out)]
    assert found == [
        ("/schedule/cron", 'did you mean "mon-fri"?', "error"),
        ("/schedule/timezone", 'did you mean "Europe/Berlin"?', "error"),
        ("/schedule/cron", 'add "timezone": "Europe/Berlin" here, or for all in config/org.json', "error"),
        ("/schedule/missed", "add cron", "warning"),
    ]
    assert ran.status


def test_send_every_writes_a_job_and_says_what_is_still_missing(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("ada", permissions={"read_outboxes": ["human"]}), org=BERLIN)
    ran = lemming("send", "--every", "0 9 * * mon", "--to", "ada", "What was last week?")
    assert 'job "what-was-last-week": ada is asked at 09:00 on Monday; first Mon ' in ran.err
    assert "these jobs never run" in ran.err
    lemming("agents", "new", "calendar", "--model", "clock", "--read", "*")
    assert "ada may not read calendar" in lemming("validate").err
    lemming("send", "--every", "@daily", "--to", "ada", "What was last week?")
    jobs = json.loads((base / "config/calendar.json").read_text())["jobs"]
    assert list(jobs) == ["what-was-last-week", "what-was-last-week-2"]


def test_calendar_shows_the_next_moment_and_the_last_outcome(base: Path, lemming: Lemming) -> None:
    calendar = resume("calendar", model={"key": "clock"})
    ada = resume("ada", permissions={"read_outboxes": ["calendar"]})
    make_org(base, calendar, ada, HUMAN, org=BERLIN)
    lemming("send", "--every", "0 9 * * *", "--to", "ada", "The page?")
    assert "not run yet" in lemming("calendar").out
    run_once(base, clock=FrozenClock(SystemClock().now() - timedelta(days=2)))
    run_once(base)
    shown = lemming("calendar").out
    assert "open since tick 2" in shown
    assert "At 09:00 every day (0 9 * * *)" in shown
    job = lemming("calendar", "--json").objects[0]
    assert (job["name"], job["last_tick"], job["last_end"]) == ("the-page", 2, None)


def test_plan_until_lists_what_comes_up_by_the_clock(base: Path, lemming: Lemming) -> None:
    calendar = resume("calendar", model={"key": "clock"})
    make_org(base, calendar, resume("ada", schedule=DAILY), HUMAN, org=BERLIN)
    lemming("send", "--every", "0 9 * * *", "--to", "ada", "The page?")
    lemming("send", "--in", "1h", "--to", "ada", "wake up")
    found = [each["what"] for each in lemming("plan", "--until", "2d", "--json").objects]
    assert sorted(found) == [
        "a turn, cron 0 9 * * *", "a turn, cron 0 9 * * *", "an entry of human: wake up",
        "job the-page: The page?", "job the-page: The page?",
    ]  # fmt: skip
    assert "nothing is scheduled by the clock" in lemming("plan", "--until", "1s").err
    assert lemming("plan", "--until", "whenever").status == 2
    assert " 09:00 CE" in lemming("plan", "--until", "2d").out
