"""`lemming tick`: one tick whole, from its journal alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typed import bell, typed

from lemming.commands.tick import MAX_KNOWN_SHOWN
from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say

Capsys = pytest.CaptureFixture[str]
WRITE = {"tool": "file_write", "args": {"path": "notes.txt", "content": "line"}}
READ = {"tool": "file_read", "args": {"path": "notes.txt"}}
KEEP = {"tool": "memory_write", "args": {"key": "mood", "value": "fine"}}


def make(base: Path, **org: Any) -> Path:
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write", "file_read"]}, turn={"max_steps": 2}),
        resume("bob"),
        resume("cyd", schedule={"run_every_n_ticks": 5}),
        {"name": "odd"},
        script=[
            {
                "agent": "ada",
                "step": 0,
                "reply": say("first", tool_calls=[WRITE, READ, KEEP], memory_updates=[{"key": "k", "value": [1]}]),
            },
            {"agent": "bob", "tick": 2, "reply": "not the contract"},
            {"reply": say("news", notes="quiet")},
        ],
        org=org,
    )
    return base


def test_everything_of_a_tick_is_shown(base: Path, capsys: Capsys) -> None:
    run_once(make(base), clock=FrozenClock())
    out = typed(capsys, base, "tick").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:3] == ["tick 1, 2026-01-01 00:00:00, committed", "order ada, bob", "not due cyd"]
    assert lines[3].startswith("broken odd: agents/odd/resume.json")
    assert "ada done" in lines
    assert 'tool file_write {"path":"notes.txt","content":"line"} ok wrote 4 bytes to notes.txt' in lines
    assert 'tool file_read {"path":"notes.txt"} ok line' in lines
    assert "memory k = [1]" in lines
    assert "memory mood = fine" in lines
    assert any(line.startswith("file agents/ada/workspace/notes.txt 4 bytes, sha256 ") for line in lines)
    assert any(line.endswith("ada, tick 1 first") and line.startswith("saw ") for line in lines)
    assert "notes quiet" in lines
    assert lines[-1].startswith("totals 2 done, 1 failed, 3 entries, 3 calls, 3 credits")


def test_the_files_told_are_those_the_turn_reported(base: Path) -> None:
    run_once(make(base))
    for turn in load_tick_record(base, 1).turns:
        assert turn.report is not None
        assert {place: effect.digest for place, effect in turn.writes.items()} == {
            file["path"]: file["sha256"] for file in turn.report.files
        }
        assert [entry.id for entry in turn.entries] == [entry["id"] for entry in turn.report.entries]
        for effect in turn.writes.values():
            assert (base / effect.path).read_bytes() == effect.content


def test_prompts_are_shown_when_asked_for(base: Path, capsys: Capsys) -> None:
    run_once(make(base))
    assert "You are ada." not in typed(capsys, base, "tick", "1").out
    assert "You are ada." in typed(capsys, base, "tick", "1", "--prompts").out
    (brief,) = typed(capsys, base, "tick", "--json").objects
    (whole,) = typed(capsys, base, "tick", "--json", "--prompts").objects
    assert "prompt" not in brief["turns"][0]
    prompt = whole["turns"][0]["prompt"]
    assert brief["turns"][0]["prompt_chars"] == sum(len(message["content"]) for message in prompt)


def test_json_has_the_totals_of_the_journal(base: Path, capsys: Capsys) -> None:
    run_once(make(base))
    (told,) = typed(capsys, base, "tick", "--json").objects
    assert [told["v"], told["type"], told["tick"]] == [1, "tick", 1]
    assert told["totals"] == journal_lines(base, 1)[-1]["totals"]
    assert told["turns"][0]["tools"][0]["args"] == WRITE["args"]
    assert told["turns"][0]["memory"] == {"k": [1], "mood": "fine"}


def test_a_reply_that_was_no_reply_says_why(base: Path, capsys: Capsys) -> None:
    make(base)
    run_once(base)
    run_once(base)
    out = typed(capsys, base, "tick", "2").out
    assert "invalid reply: " in out
    (told,) = typed(capsys, base, "tick", "2", "--json").objects
    bob = told["turns"][1]
    assert bob["status"] == "failed"
    assert bob["files"] == []
    assert [bool(answer["problem"]) for answer in bob["answers"]] == [True, True]


def test_a_tick_can_be_shown_after_its_files_are_gone(base: Path, capsys: Capsys) -> None:
    run_once(make(base))
    before = typed(capsys, base, "tick", "1").out
    shutil.rmtree(base / "agents/ada")
    assert typed(capsys, base, "tick", "1").out == before


def test_expired_entries_are_named(base: Path, capsys: Capsys) -> None:
    make(base, retention_ticks=1)
    for _ in range(5):
        run_once(base)
    (told,) = typed(capsys, base, "tick", "5", "--json").objects
    assert any("/00000001_" in file for file in told["expired"])
    assert not any("/00000005_" in file for file in told["expired"])
    assert told["expired_unread"] == {}  # they waited for cyd, which is due in this tick


def test_entries_that_expired_unread_are_counted(base: Path, capsys: Capsys) -> None:
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", schedule={"run_every_n_ticks": 50}),
        org={"retention_ticks": 1},
    )
    for _ in range(12):
        run_once(base)
    assert "unread    1 of them by bob" in typed(capsys, base, "tick", "12").out
    (told,) = typed(capsys, base, "tick", "12", "--json").objects
    assert told["expired_unread"] == {"bob": 1}


def test_an_interrupted_tick_says_how_far_it_came(base: Path, capsys: Capsys) -> None:
    make(base)
    with pytest.raises(Crash), crash_at(20):
        run_once(base)
    ran = typed(capsys, base, "tick")
    assert "unfinished; `lemming run-once` continues it" in ran.out
    assert "bob  not begun" in ran.out
    run_once(base)
    told = typed(capsys, base, "tick").out
    assert "committed, in 2 attempts" in told
    assert "started 2 times" in told


def test_a_call_that_never_ended_is_told_from_one_whose_outcome_is_unknown(base: Path, capsys: Capsys) -> None:
    reply = say("ringing", tool_calls=[{"tool": "bell", "args": {"loud": True}}])
    make_org(base, resume("ada", permissions={"tools": ["bell"]}), script=[{"reply": reply}])
    with bell(dies=True), pytest.raises(Crash):
        run_once(base)
    (use,) = load_tick_record(base, 1).turns[0].tools
    assert (use.args, use.success, use.is_unknown) == ({"loud": True}, None, False)
    assert "not finished" in typed(capsys, base, "tick").out
    run_once(base)
    (use,) = load_tick_record(base, 1).turns[0].tools
    assert (use.args, use.success, use.is_unknown) == ({"loud": True}, False, True)


def test_files_written_before_an_outside_tool_count_as_written(base: Path) -> None:
    reply = say("x", tool_calls=[WRITE, {"tool": "bell", "args": {}}], memory_updates=[{"key": "k", "value": 1}])
    tools = {"tools": ["file_write", "bell"]}
    make_org(base, resume("ada", permissions=tools), script=[{"reply": reply}])
    with bell(dies=False):
        run_once(base)
    (turn,) = load_tick_record(base, 1).turns
    assert turn.report is not None
    assert "agents/ada/workspace/notes.txt" not in {file["path"] for file in turn.report.files}
    assert turn.memory == {"k": 1}
    for effect in turn.writes.values():
        assert (base / effect.path).read_bytes() == effect.content


def test_an_unknown_tick_names_those_there_are(base: Path, capsys: Capsys) -> None:
    make(base)
    ran = typed(capsys, base, "tick")
    assert ran.status == 2
    assert "no tick has run yet" in ran.err
    run_once(base)
    ran = typed(capsys, base, "tick", "9")
    assert ran.status == 2
    assert "tick 9 has not run" in ran.err
    assert "name a tick up to 1" in ran.err


def seldom(base: Path) -> Path:
    """Ada is due in the ticks 4 and 8 of ten; nobody else is there."""
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 4}))
    for _ in range(10):
        run_once(base)
    return base


@pytest.mark.parametrize("tick", ["1", "5", "10"])
def test_a_quiet_tick_is_an_answer_and_no_error(base: Path, capsys: Capsys, tick: str) -> None:
    ran = typed(capsys, seldom(base), "tick", tick)
    assert ran.status == 0
    assert ran.out == f"tick {tick}: no agent ran; only the tick counter changed\n"
    (told,) = typed(capsys, base, "tick", tick, "--json").objects
    assert (told["tick"], told["order"], told["turns"]) == (int(tick), [], [])


@pytest.mark.parametrize("tick", [4, 8])
def test_a_journal_that_is_gone_is_not_taken_for_a_quiet_tick(base: Path, capsys: Capsys, tick: int) -> None:
    (seldom(base) / f"logs/ticks/{tick:08d}.jsonl").unlink()
    ran = typed(capsys, base, "tick", str(tick))
    assert ran.status == 2
    assert f"the journal of tick {tick} is missing" in ran.err


def test_much_that_a_turn_knew_already_is_counted(base: Path, capsys: Capsys) -> None:
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}))
    for _ in range(MAX_KNOWN_SHOWN + 2):
        run_once(base)
    out = typed(capsys, base, "tick").out
    assert "saw       9 entries that it had seen before (--json lists them)" in out
    (told,) = typed(capsys, base, "tick", "--json").objects
    assert [sum(seen["is_new"] for seen in turn["saw"]) for turn in told["turns"]] == [1, 1]
    assert len(told["turns"][1]["saw"]) == 10


def test_text_from_models_cannot_steer_the_terminal(base: Path, capsys: Capsys) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("a\x1b[2Jb")}])
    run_once(base)
    assert "\x1b" not in typed(capsys, base, "tick", "--prompts").out


def test_an_unfinished_tick_with_one_answer_of_unknown_price_costs_nobody_knows_what(base: Path) -> None:
    prices = {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 10}
    priced = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, **prices}
    look = {"tool": "memory_read", "args": {"key": "k"}}
    make_org(
        base,
        resume("ada", model={"key": "priced"}, permissions={}),
        resume("bob", permissions={}, turn={"max_steps": 2}),
        script=[{"reply": say("hi", tool_calls=[look])}],
        models={"priced": priced},
        org={"executor": "serial"},
    )

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.call == 1:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)
    totals = load_tick_record(base, 1).totals
    assert (totals["calls"], totals["cost_usd"]) == (2, None)
