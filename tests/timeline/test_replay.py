"""Replay: the recording alone gives the same files again, and whatever comes out otherwise is found."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import TICKS, Bell, Refusing, busy_org, call, edit, refuse_models, rewrite_journal, speak

from lemming.cli import run
from lemming.engine import load_tick, run_once
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.replay_runtime import OUTSIDE, ReplayMismatch
from lemming.journal_tools.replay.tick_replay import ReplayResult, list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree, write_script


@pytest.fixture(autouse=True)
def bell() -> Iterator[Bell]:
    bell = Bell()
    ToolRegistry.register(bell)
    register_provider("refusing", Refusing)
    yield bell
    ToolRegistry.unregister("bell")


@pytest.fixture
def org(past: Path, base: Path) -> Path:
    """An organisation with a past."""
    return Path(shutil.copytree(past, base))


def rerun(base: Path, again: Path, last: int | None = None) -> list[ReplayResult]:
    return list(replay_into(base, again, list_replayable_ticks(base, last)))


# --- the same ----------------------------------------------------------------------------------


def test_a_replay_into_a_folder_gives_the_same_files_byte_for_byte(org: Path, again: Path) -> None:
    assert [each.tick for each in rerun(org, again)] == list(range(1, TICKS + 1))
    assert tree(again) == tree(org)
    assert load_state_root(again) == load_state_root(org)


def test_the_recorded_organisation_has_had_all_that_this_is_about(org: Path) -> None:
    records = [record for tick in journal_ticks(org) for record in journal_lines(org, tick)]
    kinds = {record["type"] for record in records}
    statuses = {record["status"] for record in records if "status" in record}
    assert kinds >= {"model_failed", "tool_started", "tool_finished", "turn_skipped", "entries_expired"}
    assert statuses == {"done", "waiting", "skipped", "failed"}
    expired = {file for record in records if record["type"] == "entries_expired" for file in record["files"]}
    assert any(file.startswith("agents/human/") for file in expired)
    assert (org / "agents/zoe/turns.jsonl").exists()


def test_no_model_is_called_and_no_tool_runs(base: Path, again: Path, bell: Bell) -> None:
    refuse_models(busy_org(base))
    assert bell.rung == 1
    assert len(list(replay_ticks(base, journal_ticks(base)))) == TICKS
    assert len(rerun(base, again)) == TICKS
    assert bell.rung == 1


def test_a_replay_in_place_writes_nothing(org: Path) -> None:
    before = tree(org, without=())
    turns = [each.turns for each in replay_ticks(org, journal_ticks(org))]
    assert len(turns) == TICKS
    assert min(turns) >= 1
    assert tree(org, without=()) == before


def test_a_replayed_organisation_can_be_run_on_and_replayed(org: Path, again: Path, tmp_path: Path) -> None:
    rerun(org, again)
    run_once(again)
    rerun(again, tmp_path / "third")
    assert load_state_root(tmp_path / "third") == load_state_root(again)


def test_a_replay_can_stop_earlier(org: Path, again: Path) -> None:
    assert [each.tick for each in rerun(org, again, 3)] == [1, 2, 3]
    assert json.loads((again / "tick.json").read_text()) == {"current_tick": 4}
    assert not (again / "agents/zoe").exists()


def test_an_agent_that_came_later_arrives_in_its_tick(base: Path, again: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(resume("bob")))
    run_once(base)
    rerun(base, again)
    assert tree(again) == tree(base)


def test_what_a_person_sent_after_the_last_tick_is_there_too(org: Path, again: Path) -> None:
    speak(org, TICKS + 1, FrozenClock())
    rerun(org, again)
    assert tree(again) == tree(org)


def test_an_entry_sent_while_a_tick_ran_arrives_in_the_next(base: Path, again: Path) -> None:
    class Interrupting(Backend):
        keeps_deadline = True

        def __init__(self, *, base: Path) -> None:
            self._base = base

        def complete(self, request: Request) -> Reply:
            if request.tick == 1:
                late = FrozenClock()
                late.advance(1)
                speak(self._base, 1, late)
            return Reply(text=json.dumps(say("hello")))

    register_provider("interrupting", Interrupting)
    models = {"scripted": {"provider": "interrupting"}, "human": {"provider": "human"}}
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), models=models)
    clock = FrozenClock()
    for _ in range(2):
        run_once(base, clock=clock)
        clock.advance(60)
    rerun(base, again)
    assert tree(again) == tree(base)


def test_a_turn_that_the_engine_gave_up_is_passed_over_and_the_rest_is_the_same(base: Path, again: Path) -> None:
    class Deadly(Backend):
        keeps_deadline = True

        def complete(self, request: Request) -> Reply:
            if request.agent == "ada" and request.tick == 1:
                raise Crash("the machine is gone")
            return Reply(text=json.dumps(say("hello")))

    register_provider("deadly", Deadly)
    models = {"scripted": {"provider": "deadly"}}
    make_org(base, resume("ada"), resume("bob"), models=models, org={"max_attempts": 1})
    with pytest.raises(Crash):
        run_once(base)
    run_once(base)
    run_once(base)
    assert [each.not_repeatable for each in replay_ticks(base, [1, 2])] == [("ada",), ()]
    assert [each.not_repeatable for each in rerun(base, again)] == [("ada",), ()]
    assert tree(again) == tree(base)


@pytest.mark.parametrize("number", range(4, 40, 7))
def test_a_tick_that_was_interrupted_and_continued_replays_like_any_other(base: Path, again: Path, number: int) -> None:
    wants = [call("bell"), call("memory_write", key="k", value=1)]
    permissions = {"read_outboxes": ["*"], "tools": ["bell"]}
    script: list[dict[str, Any]] = [{"agent": "ada", "reply": say("x", tool_calls=wants)}, {"reply": say("y")}]
    make_org(base, resume("ada", permissions=permissions), resume("bob"), script=script)
    clock = FrozenClock()
    with contextlib.suppress(Crash), crash_at(number):
        run_once(base, clock=clock)
    for _ in range(2):
        clock.advance(60)
        run_once(base, clock=clock)
    ticks = journal_ticks(base)
    assert len(list(replay_ticks(base, ticks))) == len(rerun(base, again)) == len(ticks)
    assert tree(again) == tree(base)


def test_files_outside_the_organisation_are_left_alone(base: Path, again: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files = {"allow_read": [], "allow_write": [str(outside)]}
    permissions = {"read_outboxes": [], "tools": ["file_write"], "file_access": files}
    wants = call("file_write", path=f"{outside}/note.txt", content="then")
    script = [{"reply": say("done", tool_calls=[wants])}]
    make_org(base, resume("ada", permissions=permissions), script=script)
    run_once(base)
    (outside / "note.txt").write_text("now")
    rerun(base, again)
    assert (outside / "note.txt").read_text() == "now"
    assert Path(f"{again}/{OUTSIDE}{outside}/note.txt").read_text() == "then"


def test_credits_granted_since_do_not_change_a_turn_that_ran_out(base: Path) -> None:
    ada = resume("ada", credits={"max_credits": 1})
    make_org(base, ada, script=[{"reply": "this needs a correction, for which there are no credits"}])
    run_once(base)
    fs.write_atomic(base, "config/credits.json", dump_pretty({"ada": {"max_credits": 100}}))
    assert [each.turns for each in replay_ticks(base, [1])] == [1]


# --- not the same ------------------------------------------------------------------------------


def test_an_edited_resume_shows_as_a_changed_prompt(org: Path, again: Path) -> None:
    edit(org, "agents/bob/resume.json", "You are bob.", "You are a pirate.")
    with pytest.raises(ReplayMismatch) as caught:
        rerun(org, again)
    assert (caught.value.tick, caught.value.agent, caught.value.what) == (1, "bob", "prompt")
    assert {"-You are bob.", "+You are a pirate."} <= set(caught.value.diff.splitlines())


def test_an_edited_context_file_shows_where_it_was_first_read(org: Path, again: Path) -> None:
    edit(org, "shared/facts.txt", "Ants march.", "Ants sleep.")
    with pytest.raises(ReplayMismatch) as caught:
        rerun(org, again)
    assert (caught.value.tick, caught.value.agent) == (2, "ada")
    assert "+Ants sleep." in caught.value.diff


def test_an_edited_schedule_shows_as_a_changed_plan(org: Path, again: Path) -> None:
    edit(org, "agents/ada/resume.json", '"run_every_n_ticks": 1', '"run_every_n_ticks": 2')
    with pytest.raises(ReplayMismatch) as caught:
        rerun(org, again)
    assert (caught.value.tick, caught.value.what) == (1, "plan")
    assert '-    "ada",' in caught.value.diff


def _say_otherwise(record: Json) -> Json:
    if record["type"] == "model_replied" and record["agent"] == "ada":
        record["text"] = record["text"].replace("hello", "goodbye")
    return record


def test_a_changed_answer_shows_as_a_changed_effect(org: Path) -> None:
    rewrite_journal(org, 5, _say_otherwise)
    with pytest.raises(ReplayMismatch) as caught:
        list(replay_ticks(org, journal_ticks(org)))
    assert (caught.value.tick, caught.value.agent, caught.value.what) == (5, "ada", "turn")
    assert '"sha256"' in caught.value.diff


def test_a_changed_effect_is_shown_with_the_text_of_the_file(org: Path, again: Path) -> None:
    rewrite_journal(org, TICKS, _say_otherwise)
    with pytest.raises(ReplayMismatch) as caught:
        rerun(org, again)
    assert (caught.value.tick, caught.value.agent) == (TICKS, "ada")
    assert '-    "text": "hello"' in caught.value.diff
    assert '+    "text": "goodbye"' in caught.value.diff


@pytest.mark.parametrize("kind", ["model_replied", "tool_finished"])
def test_a_missing_answer_is_an_error_and_never_a_live_call(org: Path, again: Path, kind: str) -> None:
    refuse_models(org)
    rewrite_journal(org, 2, lambda record: None if record["type"] == kind else record)
    for attempt in (replay_ticks(org, [1, 2]), replay_into(org, again, list_replayable_ticks(org, None))):
        with pytest.raises(ReplayMismatch, match="no recorded answer") as caught:
            list(attempt)
        assert caught.value.tick == 2


def test_a_ledger_changed_between_two_turns_is_a_changed_state(base: Path) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    edit(base, "agents/ada/turns.jsonl", '"credits":1.0', '"credits":0.5')
    run_once(base)
    with pytest.raises(ReplayMismatch, match="state before the turn") as caught:
        list(replay_ticks(base, [1, 2]))
    assert caught.value.tick == 2


def test_an_organisation_without_its_first_journals_is_not_run_again(org: Path, again: Path) -> None:
    fs.remove(org, "logs/ticks/00000001.jsonl")
    with pytest.raises(UsageError, match="the journals begin at tick 2"):
        rerun(org, again)


def test_a_folder_that_holds_something_is_refused(org: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an empty or a new folder"):
        rerun(org, tmp_path)
    with pytest.raises(UsageError, match="outside the organisation"):
        rerun(org, org / "shared/again")


# --- the command -------------------------------------------------------------------------------


def test_the_command_prints_the_state_root_of_the_new_folder(
    org: Path, again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-C", str(org), "replay", "--into", str(again)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{load_state_root(org)}\n"
    assert "8 ticks" in printed.err
    assert "all results are the same" in printed.err


def test_the_command_prints_the_diff_and_ends_with_1(
    org: Path, again: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(org, "agents/bob/resume.json", "You are bob.", "You are a pirate.")
    assert run(["-C", str(org), "replay", "--into", str(again)]) == 1
    printed = capsys.readouterr()
    assert "+You are a pirate." in printed.out.splitlines()
    assert "tick 1, bob: the prompt differs from the recorded prompt" in printed.err


def test_the_command_takes_a_span_and_tells_programs(org: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-C", str(org), "replay", "3-5", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line["tick"]) for line in lines] == [("tick_replayed", tick) for tick in (3, 4, 5)]
    rewrite_journal(org, 5, _say_otherwise)
    assert run(["-C", str(org), "replay", "5", "--json"]) == 1
    error = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (error["type"], error["tick"], error["agent"], error["what"]) == ("error", 5, "ada", "turn")
    assert run(["-C", str(org), "replay", "5-", "--json"]) == 2
    assert run(["-C", str(org), "replay", "99"]) == 2


def test_scripts_are_not_asked_in_a_replay(org: Path, again: Path) -> None:
    write_script(org, [{"reply": say("something else")}])
    assert len(rerun(org, again)) == TICKS


def test_quiet_ticks_at_the_end_and_a_script_elsewhere_change_nothing(base: Path, again: Path) -> None:
    elsewhere = {"provider": "scripted", "options": {"file": "script.jsonl"}}
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 3}), models={"scripted": elsewhere})
    (base / "script.jsonl").write_text('{"reply": {"notes": "x"}}\n')
    for _ in range(5):
        run_once(base)
    assert [tick.tick for tick in rerun(base, again)] == [3]
    assert load_tick(again) == 6
    assert load_state_root(again) == load_state_root(base)


def test_a_journal_that_somebody_has_emptied_is_told_by_name(base: Path, again: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("x")}])
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    (base / "logs/ticks/00000002.jsonl").write_bytes(b"")
    with pytest.raises(CorruptState) as found:
        rerun(base, again)
    assert found.value.where == "logs/ticks/00000002.jsonl"


def test_an_agent_that_was_renamed_between_two_ticks_is_no_difference(org: Path) -> None:
    rename_agent(org, "bob", "zed")
    run_once(org, clock=FrozenClock())
    assert [result.tick for result in replay_ticks(org, [TICKS + 1])] == [TICKS + 1]
    assert len([*replay_ticks(org, journal_ticks(org))]) == TICKS + 1


def test_a_request_that_failed_before_a_model_was_asked_has_the_time_of_its_tick(base: Path) -> None:
    human = resume("human", model={"key": "human"})
    make_org(
        base,
        resume("ada", turn={"take": "one"}),
        human,
        models={"human": {"provider": "human"}},
        org={"durability": "off"},
    )
    request = {"text": "Make it.", "target": "ada", "until": {"by": "nobody"}}
    write_person_entry(base, "human", tick=1, kind="request", payload=request, tags=[], created_at="")
    run_once(base, clock=FrozenClock())
    assert [result.turns for result in replay_ticks(base, [1])] == [1]
    turn = load_tick_record(base, 1).find_turn("ada")
    assert turn
    (entry,) = turn.entries
    assert entry.payload["status"] == "failed"
    assert entry.created_at == journal_lines(base, 1)[0]["at"]
