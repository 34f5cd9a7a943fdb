"""`status`, `status --check` and `doctor` name what is wrong, why, and since when."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.operations.open_org import open_org
from lemming.queries.views.header_view import build_header_view
from lemming.testing import make_org, resume, say, write_script

SINCE = r"ada: failing since tick 1 \(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\): "


@pytest.fixture
def dead(base: Path, lemming: Lemming) -> Path:
    """An organisation after three ticks in which one agent's provider refused the key."""
    script = [{"agent": "ada", "error": "AuthenticationFailed"}, {"reply": say("hello")}]
    make_org(base, resume("ada"), resume("bob"), script=script)
    for _ in range(3):
        lemming("run-once", "-q")
    return base


def test_status_says_who_fails_why_and_since_when(dead: Path, lemming: Lemming) -> None:
    ran = lemming("status")
    assert ran.status == 0
    assert re.search(SINCE, ran.err)
    assert "AuthenticationFailed" in ran.err or "key" in ran.err
    assert "bob" not in ran.err
    [trouble] = lemming("status", "--json").objects[0]["troubles"]
    assert (trouble["about"], trouble["since_tick"]) == ("ada", 1)
    assert trouble["since"].startswith("20")


def test_an_agent_that_a_limit_stops_is_not_said_to_lack_credits(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), org={"gates": [{"at": "spend", "dollars": 1, "per": "agent", "then": "block"}]})
    lemming("run-once", "-q")
    ran = lemming("status")
    assert "skipped, may not spend (1)" in ran.out
    assert "out of credits" not in ran.out + ran.err


def test_one_reason_that_stops_many_agents_is_said_once(base: Path, lemming: Lemming) -> None:
    names = ["a", "bob", "cid", "dot", "eve"]
    make_org(base, *map(resume, names), script=[{"error": "AuthenticationFailed"}])
    lemming("run-once", "-q")
    ran = lemming("status")
    assert ran.err.count("failing since tick 1") == 1
    assert "a, bob, cid and 2 more: failing" in ran.err
    assert "fix: set the key that config/models.json names" in ran.err
    assert len(lemming("status", "--json").objects[0]["troubles"]) == len(names)


def test_status_check_ends_with_a_status_for_monitors(dead: Path, lemming: Lemming) -> None:
    assert lemming("status", "--check").status == 1
    assert lemming("status", "--check", "--json").status == 1
    write_script(dead, [{"reply": say("back")}])
    lemming("run-once", "-q")
    ran = lemming("status", "--check")
    assert (ran.status, ran.out.splitlines()[-1]) == (0, "all is well")


def test_doctor_names_the_agent_that_fails(dead: Path, lemming: Lemming) -> None:
    ran = lemming("doctor", "--json")
    assert ran.status == 1
    [finding] = [found for found in ran.objects if found["about"] == "agents"]
    assert finding["level"] == "fail"
    assert re.match(SINCE, finding["text"])
    assert finding["fix"]


def test_an_open_circuit_is_named_until_it_closes(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("run-once", "-q")
    (base / ".lemming").mkdir(exist_ok=True)

    def write(seconds: float) -> None:
        until = timestamp(SystemClock().now() + timedelta(seconds=seconds))
        state = {"failures": 5, "openings": 1, "open_until": until, "reason": "Unavailable: no route"}
        (base / ".lemming/circuits.json").write_text(json.dumps({"openai https://api.example.org": state}))

    write(300)
    ran = lemming("status", "--check")
    assert ran.status == 1
    assert "openai https://api.example.org: paused until" in ran.err
    assert "Unavailable: no route" in ran.err
    assert any("paused until" in found["text"] for found in lemming("doctor", "--json").objects)
    write(-1)
    assert lemming("status", "--check").status == 0


def test_a_broken_resume_and_an_empty_purse_are_wrong(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}), resume("bob"))
    lemming("run-once", "-q")
    assert lemming("status", "--check").status == 0
    (base / "agents/bob/resume.json").write_text('{"name": "bob",}')
    lemming("run-once", "-q")
    ran = lemming("status", "--check")
    assert ran.status == 1
    assert re.search(r"ada: cannot run since tick 2 \(20.*Z\): out of credits", ran.err)
    assert "fix: lemming credits grant ada AMOUNT" in ran.err
    assert "bob: out of service since tick 2 (20" in ran.err


def test_a_broken_resume_is_dated_by_turns_that_failed_of_it_alone(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"))
    whole = (base / "agents/bob/resume.json").read_text()
    (base / "agents/bob/resume.json").write_text(whole.replace('"default"', '"nowhere"'))
    lemming("run-once", "-q")
    (base / "agents/bob/resume.json").write_text('{"name": "bob",}')
    assert "bob: out of service: agents/bob/resume.json" in lemming("status").err
    trouble = lemming("status", "--json").objects[0]["troubles"][0]
    assert (trouble["about"], trouble["since_tick"], trouble["since"]) == ("bob", None, "")
    lemming("run-once", "-q")
    told = lemming("status").err
    assert "bob: out of service since tick 2" in told
    assert lemming("status", "--json").objects[0]["troubles"][0]["since_tick"] == 2


def test_a_broken_resume_leaves_what_its_agent_did_and_spent(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("bob"))
    lemming("run-once", "-q")
    before = lemming("status", "--json").objects[0]["agents"][0]
    assert before["turns"] == 1
    (base / "agents/bob/resume.json").write_text('{"name": "bob",}')
    after = lemming("status", "--json").objects[0]["agents"][0]
    same = ("turns", "credits", "cost_usd", "last_tick", "last_status")
    assert [after[key] for key in same] == [before[key] for key in same]
    row = next(it for it in lemming("status").out.splitlines() if it.startswith("bob"))
    assert f"{before['credits']:g} of ?" in row
    assert "the last turn of every agent that is not broken succeeded" in lemming("doctor").out


def test_a_tick_comes_to_the_same_in_status_as_in_what_ran_it(base: Path, lemming: Lemming) -> None:
    quiet = resume("bob", schedule={"wake": "addressed"})
    make_org(base, resume("human", model={"key": "human"}), resume("ada"), quiet)
    ran = lemming("run-once").err
    assert re.search(r"tick 1 in .*: 1 done, 1 skipped, ", ran)
    assert "tick 1: 1 done, 1 skipped, " in lemming("status").out
    (shown,) = lemming("status", "--json").objects
    assert shown["last_tick"]["totals"]["skipped"] == build_header_view(base)["last"]["totals"]["skipped"] == 1


def test_a_mended_resume_is_no_longer_wrong(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"))
    whole = (base / "agents/bob/resume.json").read_text()
    (base / "agents/bob/resume.json").write_text("[]")
    lemming("run-once", "-q")
    assert lemming("status", "--check").status == 1
    (base / "agents/bob/resume.json").write_text(whole)
    assert lemming("status", "--check").status == 0


def test_an_agent_with_nothing_new_to_read_is_well(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 1, "wake": "changed"}))
    for _ in range(3):
        lemming("run-once", "-q")
    assert lemming("status", "--check").status == 0


def test_a_tick_too_long_ago_is_wrong_where_that_is_asked(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("run-once", "-q")
    assert lemming("status", "--check", "--max-age", "600").status == 0
    os.utime(base / "tick.json", (1_000_000_000, 1_000_000_000))
    assert lemming("status", "--check").status == 0
    ran = lemming("status", "--check", "--max-age", "600")
    assert ran.status == 1
    assert "the last tick ended" in ran.err


def test_an_interrupted_tick_is_wrong_unless_an_engine_has_it(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("run-once", "-q")
    journal = base / "logs/ticks/00000001.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    (base / "tick.json").write_text('{"current_tick": 1}')
    ran = lemming("status", "--check")
    assert ran.status == 1
    assert ran.out.count("tick 1 was interrupted") == 1
    assert "interrupted" not in ran.err  # the first line has said it, with more
    with open_org(base, command="run-forever"):
        assert lemming("status", "--check").status == 0
