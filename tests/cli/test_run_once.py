"""`run-once`: what it says, what it prints, what it ends with."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from terminal import PROGRAM, Lemming, start

from lemming.commands.terminal import one_line
from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import Unavailable, error_name
from lemming.operations.open_org import open_org
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume, say, tree

EVENTS = ["tick_started", "turn_started", "model_asked", "model_replied", "turn_ended", "tick_committed"]


def test_a_turn_is_told_in_one_line_with_the_text_it_wrote(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("The ferry is late.", kind="report")}])
    ran = lemming("run-once")
    assert ran.status == 0
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines[0] == "tick 1"
    assert lines[1].startswith("  ada  report    The ferry is late.  1 credit")
    assert lines[2].startswith("  bob  report    The ferry is late.")
    assert "2 done, 2 entries, 2 credits; next is tick 2" in lines[3]


def test_json_prints_the_events_in_order_and_says_nothing_else(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("run-once", "--json")
    assert [event["type"] for event in ran.objects] == EVENTS
    assert {event["v"] for event in ran.objects} == {1}
    assert ran.objects[-1]["totals"]["done"] == 1
    assert ran.err == ""


def test_quiet_says_nothing_when_all_is_well(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("run-once", "-q")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_tools_and_memories_are_told_beside_the_entry(base: Path, lemming: Lemming) -> None:
    calls = [{"tool": "shell", "args": {"command": "ls"}}]
    reply = say("hi", tool_calls=calls, memory_updates=[{"key": "goal", "value": 1}])
    make_org(base, resume("ada"), script=[{"reply": reply}])
    assert "shell (refused or failed); remembered goal" in lemming("run-once").err


def test_text_of_a_model_cannot_steer_the_terminal(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("\x1b]0;owned\x07 hi\r\nthere")}])
    assert "?]0;owned? hi there" in lemming("run-once").err
    assert "\x1b" not in lemming("outbox", "ada").out


def test_nobody_due_is_no_failure(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 7}))
    ran = lemming("run-once")
    assert ran.status == 0
    assert ran.err.startswith("tick 1: no agent is due; next is tick 2\n")


def test_no_agents_at_all_is_said_with_the_way_out(base: Path, lemming: Lemming) -> None:
    (base / "agents").mkdir(parents=True)
    assert "lemming agents new NAME" in lemming("run-once").err


def test_a_broken_resume_is_told_and_ends_with_1(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", schedule="daily"))
    ran = lemming("run-once")
    assert ran.status == 1
    assert "bob  broken    agents/bob/resume.json" in ran.err
    assert "ada  message" in ran.err


Script = list[dict[str, Any]]
REFUSED: dict[str, Any] = {"error": "AuthenticationFailed"}


@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param([{"reply": say("hi")}], 0, id="done"),
        pytest.param([{"agent": "ada", "reply": "not JSON"}, {"reply": say("hi")}], 1, id="one failed"),
        pytest.param([{"agent": "ada", **REFUSED}, {"reply": say("hi")}], 1, id="one refused"),
        pytest.param([{"agent": "ada", **REFUSED}, {"reply": "not JSON"}], 1, id="failed differently"),
        pytest.param([REFUSED], 5, id="all refused"),
        pytest.param([{"error": "UnknownModel"}], 5, id="no such model"),
        pytest.param([{"error": "RequestRejected"}], 1, id="all rejected"),
    ],
)
def test_the_exit_status_says_how_it_went(base: Path, lemming: Lemming, script: Script, status: int) -> None:
    make_org(base, resume("ada"), resume("bob"), script=script, models=_one_attempt())
    assert lemming("run-once", "-q").status == status


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"provider": "opnai"}, id="no such provider"),
        pytest.param({"provider": "openai", "options": {"base_ulr": "x"}}, id="an option it does not know"),
        pytest.param({"provider": "cli", "options": {"command": ["/no/such/program"]}}, id="no such program"),
        pytest.param({"provider": "cli", "options": {"command": ["false"]}}, id="a program that fails"),
        pytest.param({"provider": "scripted", "options": {"file": "gone.jsonl"}}, id="no such script"),
        pytest.param({"provider": "local", "model": "nosuch"}, id="no such weights"),
    ],
)
def test_models_that_cannot_be_used_end_with_5(base: Path, lemming: Lemming, entry: dict[str, Any]) -> None:
    make_org(base, resume("ada"), models={"scripted": {**entry, "attempts": 1}})
    assert lemming("run-once", "--trust").status == 5


def test_who_failed_before_a_model_was_asked_does_not_hide_that_none_can_be(base: Path, lemming: Lemming) -> None:
    unread = resume("bob", context=[{"file": "./workspace/gone.txt"}])
    make_org(base, resume("ada"), unread, script=[REFUSED], models=_one_attempt())
    assert lemming("run-once").status == 5


def test_a_backend_that_fails_after_an_answer_is_a_failed_turn(base: Path, lemming: Lemming) -> None:
    first = {"step": 0, "reply": say("hi", tool_calls=[{"tool": "memory_list", "args": {}}])}
    make_org(base, resume("ada", turn={"max_steps": 2}), script=[first, REFUSED], models=_one_attempt())
    assert lemming("run-once").status == 1


def test_an_error_class_of_a_plugins_own_is_called_by_the_one_above_it() -> None:
    class Asleep(Unavailable):
        pass

    assert error_name(Asleep("no")) == Asleep("no").as_json()["error"] == "Unavailable"


def test_everybody_out_of_credits_ends_with_6(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}), resume("bob", credits={"max_credits": 1}))
    assert lemming("run-once").status == 0
    assert lemming("run-once").status == 6


def test_somebody_out_of_credits_is_no_failure(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 0}), resume("bob"))
    ran = lemming("run-once")
    assert ran.status == 0
    assert "ada  skipped   out of credits" in ran.err


def test_a_running_engine_is_named_and_ends_with_4(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    with open_org(base, command="run-forever"):
        ran = lemming("run-once")
    assert ran.status == 4
    assert ran.err.startswith("error[LMG-103]:")
    assert "(run-forever)" in ran.err


def test_a_dry_run_shows_every_prompt_and_changes_nothing(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob", instructions="Count the sheep."))
    before = tree(base, without=())
    with open_org(base):  # another engine is no hindrance
        held = tree(base, without=())
        ran = lemming("run-once", "--dry-run")
        assert tree(base, without=()) == held
    assert ran.status == 0
    assert ran.out.index("=== ada") < ran.out.index("=== bob") < ran.out.index("Count the sheep.")
    assert "plus what ada would write earlier in this tick" in ran.out
    assert {name: text for name, text in tree(base, without=()).items() if ".lemming" not in name} == before


def test_a_dry_run_says_who_would_take_no_turn(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 0}), resume("bob", model={"key": "gone"}))
    kinds = [(event["type"], event.get("reason", "")) for event in lemming("run-once", "--dry-run", "--json").objects]
    assert [kind for kind, _ in kinds] == ["tick_started", "no_turn", "no_turn"]
    assert "out of credits" in kinds[1][1]
    assert 'model key "gone" does not exist' in kinds[2][1]


def test_when_the_reader_is_gone_the_turn_ends_and_nothing_more_is_said(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    process = start("-C", str(base), "run-once", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process:
        assert process.stderr.read() == ""
        assert process.wait() == 141
    assert load_tick(base) == 1


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert one_line("word " * 100, 20) == "word word word word…"


def _one_attempt() -> dict[str, Any]:
    return {"scripted": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}}


def killed_after(base: Path, answers: int) -> None:
    """Kill a tick of three agents when so many answers of models are in its journal."""
    make_org(base, resume("ada"), resume("bob"), resume("eve"), org={"executor": "serial"})
    for number in range(1, 200):
        shutil.rmtree(base / "logs", ignore_errors=True)
        for folder in (base / "agents").iterdir():
            for file in folder.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.name == "resume.json" or file.unlink()
        with pytest.raises(Crash), crash_at(number):
            run_once(base)
        journal = journal_lines(base, 1)
        if sum(record["type"] == "model_replied" for record in journal) == answers:
            return
    raise AssertionError("the tick ended")


def test_a_tick_that_continues_says_what_is_kept(base: Path, lemming: Lemming) -> None:
    killed_after(base, 2)
    assert "tick 1 was interrupted: 2 answers kept, 2 turns left" in lemming("status").out
    totals = lemming("tick", "--json").objects[0]["totals"]
    assert (totals["calls"], totals["credits"]) == (2, 2)
    assert "2 calls" in lemming("tick").out
    lines = lemming("run-once").err.splitlines()
    assert lines[0] == "tick 1 continues: 2 of 3 answers kept, not paid twice, 2 turns left"
    assert lines[1].startswith("  ada  message   hello  kept, 1 credit")
    assert "kept" not in lines[2]


def test_the_events_say_what_a_tick_goes_on_with(base: Path, lemming: Lemming) -> None:
    killed_after(base, 1)
    first = lemming("run-once", "--json").objects[0]
    assert (first["type"], first["answers_kept"], first["answers_missing"]) == ("tick_started", 1, 2)
    assert "answers_kept" not in lemming("run-once", "--json").objects[0]


@pytest.mark.long
def test_chaos_here_kills_itself_when_so_many_answers_are_kept(base: Path) -> None:
    make_org(base, *map(resume, ("ada", "bob", "eve")), org={"executor": "serial"})
    killed = subprocess.run([*PROGRAM, "-C", str(base), "chaos", "--here", "2"], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    kept = [record for record in journal_lines(base, 1) if record["type"] == "model_replied"]
    assert len(kept) == 2
    goes_on = start("-C", str(base), "run-once", "--trust")
    assert "tick 1 continues: 2 of 3 answers kept, not paid twice" in goes_on.communicate()[1]
    assert goes_on.returncode == 0
    assert sum(record["type"] == "model_replied" for record in journal_lines(base, 1)) == 3


def test_chaos_here_says_so_when_there_were_fewer_answers(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("chaos", "--here", "2")
    assert ran.status == 2
    assert "the tick had 1 answer; nothing was killed" in ran.err
    assert load_tick(base) == 2


# --- agents by name --------------------------------------------------------------------------------


def test_an_agent_that_goes_by_the_clock_has_a_turn_when_it_is_named(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("keeper", schedule={"cron": "@daily", "timezone": "UTC"}))
    ran = lemming("run-once", "--agent", "keeper")
    assert ran.status == 0
    assert "keeper  message" in ran.err
    assert "ada" not in ran.err


def test_a_paused_agent_that_is_named_says_so_and_how_it_goes_on(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", paused="too dear"))
    ran = lemming("run-once", "--agent", "ada")
    assert "ada does not run: paused: too dear (`lemming unpause ada`)" in ran.err


def test_a_name_that_is_mistyped_is_refused_with_the_nearest(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("keeper"))
    ran = lemming("run-once", "--agent", "keper")
    assert ran.status == 2
    assert 'did you mean "keeper"?' in ran.err
    assert load_tick(base) == 1


def test_a_tick_in_which_nobody_is_due_says_how_an_agent_gets_a_turn_now(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 5}))
    assert "`lemming run-once --agent NAME` runs an agent now" in lemming("run-once").err


def test_a_dry_run_shows_the_turns_of_those_who_are_named(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("rare", schedule={"run_every_n_ticks": 5}))
    ran = lemming("run-once", "--agent", "rare", "--dry-run")
    assert "=== rare" in ran.out
    assert "=== ada" not in ran.out


def test_an_output_schema_that_is_none_ends_as_a_turn_that_failed(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", output={"schema": {"type": "objct"}}))
    assert lemming("run-once").status == 1
