"""The calendar: jobs are requests of an agent whose brain is the clock, and what became of them is a view."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.calendars.calendar_jobs import parse_agent_job
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.org_requests import load_requests, outbox_stamp
from lemming.queries.org_validation import validate_config
from lemming.read_model.read_model import ReadModel
from lemming.testing import SCRIPT_FILE, FrozenClock, journal_lines, make_org, resume, say, tree

START = datetime(2026, 11, 23, 7, tzinfo=UTC)  # Monday, 08:00 in Berlin
NINE: dict[str, Any] = {"agent": "dan", "text": "Write the page.", "cron": "0 9 * * *"}
QUIET = {"run_every_n_ticks": 1, "wake": "addressed"}


def answer(*, agent: str = "dan", tick: int | None = None, **payload: Any) -> dict[str, Any]:
    entry = {"kind": "response", "payload": {"text": "done", **payload}, "tags": []}
    when = {"tick": tick} if tick else {}
    return {"agent": agent, **when, "reply": say("x", outbox_entries=[entry])}


class Watched:
    """An organisation with a calendar, whose clock a test moves."""

    def __init__(self, base: Path, *, script: list[dict[str, Any]] | None = None, **jobs: Any) -> None:
        self.base, self.clock, self.number = base, FrozenClock(START), 0
        calendar = resume("calendar", model={"key": "clock"}, permissions={"read_outboxes": ["*"]})
        people = [resume(name, schedule=QUIET, permissions={"read_outboxes": ["calendar"]}) for name in ("dan", "eve")]
        org = {"timezone": "Europe/Berlin"}
        script = [answer(), answer(agent="eve")] if script is None else script
        models = {"scripted": {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "attempts": 1}}
        script = [*script, {"reply": "not the contract"}]
        make_org(base, calendar, *people, script=script, org=org, models=models)
        self.keep({"jobs": jobs})
        self.tick()  # the first reading of the clock

    def keep(self, calendar: dict[str, Any]) -> None:
        fs.write_atomic(self.base, "config/calendar.json", json.dumps(calendar).encode())

    def tick(self, **later: float) -> TickReport:
        self.clock.advance(timedelta(**later).total_seconds())
        self.last = run_once(self.base, clock=self.clock)
        return self.last

    def asks(self, **later: float) -> list[str]:
        """Run a tick so much later; return the jobs that were asked for in it."""
        tick = self.tick(**later).tick
        return [str(it.payload["job"]) for it in self.asked if it.tick == tick]

    @property
    def asked(self) -> list[OutboxEntry]:
        return read_outbox_entries(self.base, "calendar")


def test_a_job_is_asked_for_in_the_first_tick_after_its_moment_and_answered_as_any_request(base: Path) -> None:
    org = Watched(base, page=NINE)
    assert org.asks(minutes=59) == []
    assert org.last.is_quiet
    assert org.asks(minutes=1) == ["page"]
    [request] = org.asked
    assert request.payload == {
        "text": "Write the page.", "target": "dan", "job": "page", "due": "2026-11-23T08:00:00.000Z",
    }  # fmt: skip
    [response] = read_outbox_entries(base, "dan")
    assert (response.kind, response.payload["reply_to"]) == ("response", request.id)
    assert org.asks(minutes=1) == []
    assert org.last.is_quiet
    assert org.asks(hours=23, minutes=59) == ["page"]


def test_a_week_of_downtime_is_one_request_that_says_how_many_it_stands_for(base: Path) -> None:
    org = Watched(base, page=NINE, young={**NINE, "missed": "skip"})
    assert org.asks(days=7, minutes=30) == ["page"]
    [request] = org.asked
    assert (request.payload["times"], request.payload["due"]) == (7, "2026-11-29T08:00:00.000Z")
    assert org.asks(minutes=31) == ["page", "young"]


@pytest.mark.parametrize(
    ("overlap", "asked"),
    [
        ("skip", [["page"], [], [], ["page"]]),
        ("queue", [["page"], [], ["page"], ["page"]]),
        ("allow", [["page"], ["page"], [], ["page"]]),
    ],
)
def test_a_moment_that_comes_while_the_last_request_is_open(base: Path, overlap: str, asked: list[list[str]]) -> None:
    silent = {"agent": "dan", "reply": say("x", outbox_entries=[], tool_calls=[])}
    later = [{"agent": "dan", "tick": tick, "error": "Unavailable"} for tick in (2, 3)]
    org = Watched(base, script=[*later, answer(), silent], page={**NINE, "cron": "0 * * * *", "overlap": overlap})
    first = [org.asks(hours=1), org.asks(hours=1)]  # the agent cannot answer yet
    org.tick(minutes=1)
    assert [*first, org.asks(minutes=1), org.asks(hours=1)] == asked


@pytest.mark.parametrize("has_looked", [False, True])
def test_what_was_kept_of_requests_hides_no_open_job(base: Path, has_looked: bool) -> None:
    away = {"agent": "dan", "error": "Unavailable"}
    org = Watched(base, script=[away], page={**NINE, "cron": "0 * * * *"})
    assert org.asks(hours=1) == ["page"]
    forged = {author: (outbox_stamp(base, author), list[str]()) for author in ("calendar", "dan", "eve")}
    Organisation(base).get_cache(ReadModel).save_outboxes(forged)  # what it would be if no entry were about requests
    org.base = Organisation.from_path(base)
    if has_looked:
        assert [*load_requests(org.base).requests] == []
    assert org.asks(hours=1) == []


def test_a_job_after_another_is_asked_for_once_that_one_was_answered(base: Path) -> None:
    org = Watched(base, page=NINE, post={"agent": "eve", "text": "Post it.", "after": "page"})
    assert org.asks(hours=1) == ["page"]
    assert [org.asks(minutes=1) for _ in range(3)] == [["post"], [], []]
    assert org.asks(hours=24) == ["page"]
    assert org.asks(minutes=1) == ["post"]


def test_a_job_at_a_time_may_depend_on_another_that_was_answered_lately(base: Path) -> None:
    post = {"agent": "eve", "text": "Post it.", "cron": "0 * * * *", "after": "page", "within_minutes": 90}
    org = Watched(base, page=NINE, post=post)
    assert org.asks(minutes=30) == []
    assert org.asks(minutes=30) == ["page"]
    assert [org.asks(hours=1) for _ in range(3)] == [["post"], [], []]


def test_an_answer_that_came_too_long_ago_starts_nothing(base: Path) -> None:
    post = {"agent": "eve", "text": "Post it.", "after": "page", "within_minutes": 5}
    org = Watched(base, page=NINE, post=post)
    assert org.asks(hours=1) == ["page"]
    assert org.asks(minutes=6) == []


def test_jobs_rest_on_holidays_and_while_they_are_paused(base: Path) -> None:
    org = Watched(base)
    page = {**NINE, "overlap": "allow"}
    jobs = {"page": page, "alarm": {**page, "on_holidays": True}, "off": {**page, "paused": "too dear"}}
    org.keep({"jobs": jobs, "holidays": ["11-23", "2026-11-25"]})
    assert [org.asks(days=1) for _ in range(4)] == [["alarm"], ["page", "alarm"], ["alarm"], ["page", "alarm"]]


def test_a_broken_calendar_takes_out_who_asks_for_its_jobs_and_nobody_else(base: Path) -> None:
    org = Watched(base, page={**NINE, "cron": "0 9 * * mon-fir"})
    [turn] = [turn for turn in org.tick().turns if turn.status == "failed"]
    assert (turn.agent, turn.status) == ("calendar", "failed")
    assert "config/calendar.json" in turn.reason
    assert 'did you mean "mon-fri"?' in turn.reason


@pytest.mark.parametrize(
    ("calendar", "pointer", "said"),
    [
        ({"jobs": {"a": {**NINE, "timezone": "Europe/Berln"}}}, "/jobs/a/timezone", "Europe/Berln"),
        ({"jobs": {"a": {"agent": "dan", "text": "x"}}}, "/jobs/a", 'job "a" must have "cron" or "after"'),
        ({"jobs": {"a": {"agent": "dan", "text": "x", "after": "b"}}}, "/jobs/a/after", 'job "b" does not exist'),
        ({"jobs": {"a": NINE}, "holidays": ["Easter"]}, "/holidays/0", 'a holiday must be a date, got "Easter"'),
        ({"jobs": {f"j{number}": NINE for number in range(61)}}, "/jobs", "jobs must be at most 60, got 61"),
        ({"jobs": {"a": {**NINE, "agent": "dann"}}}, "/jobs/a/agent", 'no agent "dann"'),
    ],
)
def test_what_is_wrong_with_a_calendar_is_said_with_its_place_and_what_to_do(
    base: Path, calendar: dict[str, Any], pointer: str, said: str
) -> None:
    org = Watched(base)
    org.keep(calendar)
    found = validate_config(base, load_config(base))
    (problem,) = (it for it in found if it.file == "config/calendar.json")
    assert (problem.pointer, said in str(problem), bool(problem.hint)) == (pointer, True, True)


def test_a_job_of_an_agent_with_a_broken_resume_is_not_told_that_there_is_no_such_agent(base: Path) -> None:
    Watched(base).keep({"jobs": {"a": NINE}})
    (base / "agents/dan/resume.json").write_text("{")
    assert "config/calendar.json" not in [problem.file for problem in validate_config(base, load_config(base))]


def test_a_cron_expression_has_the_time_zone_of_its_job_or_of_all(base: Path) -> None:
    org = Watched(base)
    (base / "config/org.json").write_text("{}")
    found = []
    for zone in ({}, {"timezone": "Europe/Berlin"}):
        after = {"agent": "dan", "text": "x", "after": "a"}
        org.keep({"jobs": {"a": {**NINE, **zone}, "b": after}})
        problems = validate_config(base, load_config(base))
        found.append([it.pointer for it in problems if it.file == "config/calendar.json"])
    assert found == [["/jobs/a/cron"], []]


def test_a_job_that_an_agent_keeps_needs_a_cron_expression() -> None:
    with pytest.raises(ValueError, match='must have "cron"'):
        parse_agent_job("dan", {"text": "x", "at": "2026-11-23 09:00"})


def test_a_clock_set_back_asks_for_nothing_twice(base: Path) -> None:
    org = Watched(base, page={**NINE, "overlap": "allow"})
    assert org.asks(hours=1) == ["page"]
    assert org.asks(hours=-1) == []
    assert org.asks(hours=1, minutes=30) == []
    assert org.asks(hours=24) == ["page"]


def keeper(base: Path, **args: str) -> Watched:
    org = Watched(base, script=[{"agent": "eve", "reply": say("x", outbox_entries=[])}])
    call = {"tool": "keep_job", "args": {"name": "review", **args}}
    script = [{"agent": "fay", "tick": 2, "reply": say("x", outbox_entries=[], tool_calls=[call])}, answer(agent="fay")]
    permissions = {"read_outboxes": ["calendar"], "tools": ["keep_job"]}
    fay = resume("fay", permissions=permissions, schedule={"wake": "changed"})
    make_org(base, fay, script=script, org={"timezone": "Europe/Berlin"})
    org.tick()
    return org


def test_an_agent_keeps_a_job_of_its_own_within_bounds(base: Path) -> None:
    org = keeper(base, cron="0 9 * * mon-fri", text="Look through the week.")
    result = next(line for line in journal_lines(base, 2) if line["type"] == "tool_finished")
    assert result["output"] == '"review": At 09:00 on Monday through Friday (Europe/Berlin)'
    assert org.asks(hours=1) == ["fay.review"]
    assert org.asked[0].payload["target"] == "fay"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"cron": "* * * * *", "text": "x"}, "more often than every 60 minutes"),
        ({"cron": "0 9 * * mon-fir", "text": "x"}, 'did you mean "mon-fri"?'),
        ({"text": "x"}, "must have five fields, got 0"),
        ({}, 'no job "review"'),
    ],
)
def test_a_job_of_an_agents_own_that_cannot_be_is_refused_in_words(base: Path, args: dict[str, str], says: str) -> None:
    keeper(base, **args)
    result = next(line for line in journal_lines(base, 2) if line["type"] == "tool_finished")
    assert not result["success"]
    assert says in result["output"]


def test_replay_and_a_run_on_a_copy_agree(base: Path, tmp_path: Path) -> None:
    org = Watched(base, page=NINE, post={"agent": "eve", "text": "Post it.", "after": "page"})
    for _ in range(30):
        org.tick(hours=1)
    assert not verify_org(base).errors
    ticks = list_replayable_ticks(base, None)
    assert list(replay_ticks(base, ticks))
    assert list(replay_into(base, tmp_path / "again", ticks))
    assert tree(tmp_path / "again") == tree(base)


@pytest.mark.sample(4)
@pytest.mark.parametrize("at_once", [8, 1, 2, 64])
def test_however_many_turns_run_at_once_the_files_are_the_same(base: Path, tmp_path: Path, at_once: int) -> None:
    trees = []
    for place, settings in ((base, {"executor": "serial"}), (tmp_path / "other", {"max_parallel": at_once})):
        people = [resume(f"p{n}", schedule=QUIET, permissions={"read_outboxes": ["calendar"]}) for n in range(8)]
        often = [
            resume(f"c{n}", schedule={"cron": "*/20 * * * *"}, permissions={"tools": ["remind_me"]}) for n in range(4)
        ]
        call = {"tool": "remind_me", "args": {"text": "again", "after": "30m"}}
        script = [*(answer(agent=f"p{n}") for n in range(8)), {"reply": say("x", outbox_entries=[], tool_calls=[call])}]
        org = {"timezone": "Europe/Berlin"}
        calendar = resume("calendar", model={"key": "clock"})
        make_org(place, calendar, *people, *often, script=script, org={**org, **settings})
        jobs = {f"j{n}": {"agent": f"p{n}", "text": "x", "cron": f"{n} * * * *"} for n in range(8)}
        fs.write_atomic(place, "config/calendar.json", json.dumps({"jobs": jobs}).encode())
        clock = FrozenClock(START)
        for _ in range(8):
            run_once(place, clock=clock)
            clock.advance(600)
        trees.append(tree(place, without=("config", ".lemming", "logs")))
    assert len(trees[0]) > 60
    assert trees[0] == trees[1]


def test_a_job_that_is_new_or_was_moved_is_not_due_for_a_moment_before_it_was_seen(base: Path) -> None:
    org = Watched(base, page=NINE, other={**NINE, "cron": "0 12 * * *"})
    half_past_eight = {**NINE, "cron": "30 8 * * *"}
    org.keep({"jobs": {"page": NINE, "new": half_past_eight, "other": half_past_eight}})
    org.tick(minutes=45)
    assert org.asked == []
    org.tick(minutes=30)
    assert [entry.payload["job"] for entry in org.asked] == ["page"]
