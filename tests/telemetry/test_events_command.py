"""`lemming events`, `run-forever --json` and observers say the same of the same tick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from terminal import Lemming, read_until, start, typed_at
from traced import die_at_an_answer, make_traced

from lemming.cli import run
from lemming.commands.events import TYPES
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, TickBegins, TickEnds
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import Record
from lemming.telemetry.journal_follower import iter_events
from lemming.testing import Crash, make_org, resume

NOT_IN_JOURNALS = {"model_asked", "problem"}


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    return typed_at(base, capsys)


def without_length(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines without how long a tick took: a journal knows how long its answers took."""
    return [
        {key: value for key, value in line.items() if (line["type"], key) != ("tick_committed", "duration_ms")}
        for line in lines
    ]


def test_what_a_run_printed_is_what_the_journals_tell(
    base: Path, lemming: Lemming, capsys: pytest.CaptureFixture[str]
) -> None:
    make_traced(base)
    run(["-C", str(base), "run-forever", "--max-ticks", "2", "--interval", "0", "--json"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kept = [line for line in printed if line["type"] not in NOT_IN_JOURNALS]
    told = lemming("events").objects
    assert without_length(told) == without_length(kept)
    assert {"tick_started", "turn_started", "model_replied", "model_failed", "tool_finished"} <= {
        line["type"] for line in told
    }
    assert {line["tick"] for line in told} == {1, 2}


def test_observers_get_the_same_values(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), org={"max_parallel": 1})
    told: list[Event] = []
    run_once(base, notify=told.append)
    kept = [event for event in told if isinstance(event, (Record, TickBegins, TickEnds))]
    again = list(iter_events(1, read_journal(base, 1)))
    assert again[:-1] == kept[:-1]
    assert [type(event) for event in again] == [type(event) for event in kept]


def test_a_tick_that_is_told_in_parts_is_told_once(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    records = read_journal(base, 1)
    parts = [event for count in range(len(records)) for event in iter_events(1, records[: count + 1], printed=count)]
    assert parts == list(iter_events(1, records))


def test_types_and_an_agent_choose(base: Path, lemming: Lemming) -> None:
    make_traced(base)
    run_once(base)
    calls = lemming("events", "--type", "tool_finished", "--type", "model_failed").objects
    assert {line["type"] for line in calls} == {"tool_finished", "model_failed"}
    assert {line["agent"] for line in lemming("events", "--agent", "bob").objects} == {"bob"}
    assert 'there is no agent "bobb" now: did you mean "bob"?' in lemming("events", "--agent", "bobb").err


def test_a_type_that_is_none_is_said_with_the_nearest(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("events", "--type", "turn_end")
    assert ran.status == 2
    assert "turn_ended" in ran.err


def test_a_span_that_has_no_tick_is_said(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    ran = lemming("events", "--ticks", "7..9")
    assert (ran.status, ran.out) == (2, "")
    assert "no journal of tick 7..9" in ran.err


def test_a_tick_under_way_is_told_as_far_as_it_is(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    with pytest.raises(Crash):
        run_once(base, notify=die_at_an_answer)
    told = [line["type"] for line in lemming("events").objects]
    assert told == ["tick_started", "turn_started", "model_replied"]
    run_once(base)
    assert [line["type"] for line in lemming("events").objects][-1] == "tick_committed"


@pytest.mark.long
def test_who_follows_is_told_each_event_once(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    with start("-C", str(base), "events", "--ticks", "1..2", "--follow") as following:
        try:
            heard = read_until(following.stdout, "tick_committed")
            run_once(base)
            assert following.stdout is not None
            heard += following.stdout.read()
            assert following.wait(PATIENCE_S) == 0
        finally:
            following.kill()
    types = [json.loads(line)["type"] for line in heard.splitlines()]
    assert types == ["tick_started", "turn_started", "model_replied", "turn_ended", "tick_committed"] * 2


def test_the_page_names_every_type(lemming: Lemming) -> None:
    page = (Path(__file__).parents[2] / "docs/events.md").read_text()
    assert [name for name in TYPES if f"`{name}`" not in page] == []
