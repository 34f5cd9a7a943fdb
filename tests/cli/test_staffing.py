"""`lemming agents new`, `copy`, `rename` and `rm`: what they write, and what goes on working."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.capabilities.gates.gate_settings import get_gates
from lemming.engine import run_once
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.repair.damage_repair import find_repairs, make_repairs
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import CorruptState
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.operations.open_org import open_org
from lemming.testing import Crash, crash_at, make_org, resume, say, tree, write_script

HUMAN = resume("human", model={"key": "human"})
PERSON = {"human": {"provider": "human"}}


def two_agents(base: Path) -> None:
    """Ada writes each tick, and bob, who may spend 9 credits, answers her."""
    bob = resume("bob", permissions={"read_outboxes": ["ada"]}, schedule={"wake": "changed"})
    make_org(base, HUMAN, resume("ada"), bob)
    write_script(base, [{"agent": "ada", "reply": say("news")}, {"agent": "bob", "reply": say("an answer")}])
    (base / "config/credits.json").write_text('{"ada": {"max_credits": 9}}')


def test_a_new_agent_takes_what_people_set_by_hand(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming(
        "agents", "new", "clerk", "--read", "ada", "--tool", "file_write", "--allow-read", "./shared",
        "--allow-write", "./shared", "--steps", "3", "--kinds", "report,status", "--wake", "always",
    )  # fmt: skip
    assert ran.status == 0
    clerk = load_agent(base, "clerk")
    assert (clerk.turn.max_steps, clerk.turn.kinds) == (3, ["report", "status"])
    assert clerk.permissions.file_access.allow_read == ["./shared"]
    assert clerk.permissions.file_access.allow_write == ["./shared"]
    assert clerk.schedule.wake == "always"
    assert lemming("agents", "new", "second", "--read", "ada", "--wake", "addressed").status == 0
    assert load_agent(base, "second").schedule.wake == "addressed"


def test_a_team_is_one_flag_and_the_three_settings_that_agree_are_written(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("lead", permissions={"read_outboxes": ["human"]}), models=PERSON)
    assert lemming("agents", "new", "scout", "--asked-by", "lead", "--model", "scripted").status == 0
    lead, scout = load_agent(base, "lead"), load_agent(base, "scout")
    assert (lead.permissions.read_outboxes, scout.permissions.read_outboxes) == (["human", "scout"], ["lead"])
    assert [member.agent for member in lead.extensions["team"].ask_members] == ["scout"]
    assert scout.schedule.wake == "addressed"
    ran = lemming("agents", "new", "chief", "--ask", "scout,lead", "--read", "human", "--model", "scripted")
    assert ran.status == 0
    assert "agents/scout/resume.json" in ran.out
    assert load_agent(base, "scout").permissions.read_outboxes == ["lead", "chief"]
    chief = load_agent(base, "chief")
    assert chief.permissions.read_outboxes == ["human", "scout", "lead"]
    assert [member.agent for member in chief.extensions["team"].ask_members] == ["scout", "lead"]
    assert lemming("validate").status == 0


def test_gates_budget_strategy_and_the_clock_are_flags(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, models=PERSON)
    words = ["--approve", "execute,file_write", "--budget", "$2.50", "--strategy", "react", "--tool", "file_write"]
    ran = lemming("agents", "new", "ops", *words, "--cron", "0 9 * * 1-5", "--model", "scripted")
    assert ran.status == 0
    ops = load_agent(base, "ops")
    assert [gate.file_value for gate in get_gates(ops)] == [
        {"at": "spend", "then": "block", "dollars": 2.5, "per": "agent"},
        {"at": "call", "then": "ask", "class": ["execute"]},
        {"at": "call", "then": "ask", "tool": ["file_write"]},
    ]
    assert ops.permissions.read_outboxes == ["human"]  # or nobody could answer
    assert (ops.turn.strategy, ops.schedule.cron, ops.schedule.wake) == ("react", "0 9 * * 1-5", "always")
    assert ops.schedule.timezone  # this machine's: without one it would never fire
    assert "never" not in ran.err
    ran = lemming("agents", "new", "far", "--cron", "@daily", "--timezone", "Asia/Tokyo", "--budget", "7")
    far = load_agent(base, "far")
    assert (far.schedule.timezone, far.credits.max_credits) == ("Asia/Tokyo", 7)
    lemming("agents", "new", "low", "--budget", "200000 tokens", "--model", "scripted")
    assert [gate.file_value for gate in get_gates(load_agent(base, "low"))] == [
        {"at": "spend", "then": "block", "tokens": 200_000, "per": "agent"}
    ]
    assert lemming("validate").status == 0


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["--ask", "adda"], 'did you mean "ada"?; or create it first: lemming agents new adda'),
        (["--asked-by", "x"], "lemming agents new x"),
        (["--budget", "lots"], 'a budget must be credits, dollars or tokens, got "lots"'),
        (["--budget", "$1/day"], 'for a limit a day add "window": "1d"'),
        (["--approve", "file_wrte"], "file_wrte"),
        (["--strategy", "reakt"], "reakt"),
        (["--cron", "@daily", "--timezone", "Tokyo"], 'did you mean "Asia/Tokyo"?'),
        (["--tool", "forecast"], "lemming tools new NAME"),
    ],
)
def test_a_flag_that_means_nothing_is_refused_and_nothing_is_written(
    base: Path, lemming: Lemming, words: list[str], about: str
) -> None:
    make_org(base, HUMAN, resume("ada"), models=PERSON)
    before = tree(base)
    ran = lemming("agents", "new", "bob", "--model", "scripted", *words)
    assert (ran.status != 0, about in ran.err) == (True, True), ran
    assert tree(base) == before


def test_who_reads_somebody_to_come_takes_his_turns_until_then(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, models=PERSON)
    ran = lemming("agents", "new", "bob", "--read", "carol", "--model", "scripted")
    assert "which does not exist yet: lemming agents new carol" in ran.err
    assert [turn.status for turn in run_once(base).turns if turn.agent == "bob"] == ["done"]


def test_a_name_that_costs_a_tick_is_told(base: Path, lemming: Lemming) -> None:
    make_org(base, HUMAN, resume("writer", permissions={"read_outboxes": ["human"]}), models=PERSON)
    ran = lemming("agents", "new", "publisher", "--read", "writer", "--model", "scripted")
    assert "publisher comes before writer in a tick, by its name" in ran.err
    assert "by its name" not in lemming("agents", "new", "z", "--read", "writer", "--model", "scripted").err


def test_a_new_agent_that_has_nothing_new_to_read_costs_nothing(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 1000}))
    lemming("agents", "new", "bob", "--read", "ada", "--model", "scripted")
    statuses = [{turn.agent: turn.status for turn in run_once(base).turns}["bob"] for _ in range(3)]
    assert statuses == ["done", "skipped", "skipped"]


def test_a_new_agent_begins_with_the_resume_of_another(base: Path, lemming: Lemming) -> None:
    examples = [{"input": "a", "output": "b"}]
    make_org(base, HUMAN, resume("ada", examples=examples, permissions={"read_outboxes": ["human"]}))
    assert lemming("agents", "new", "bob", "--from", "ada", "--read", "ada", "--every", "2").status == 0
    ada, bob = load_agent(base, "ada"), load_agent(base, "bob")
    assert (bob.examples, bob.instructions, bob.model) == (ada.examples, ada.instructions, ada.model)
    assert (bob.permissions.read_outboxes, bob.schedule.run_every_n_ticks) == (["ada"], 2)
    assert lemming("agents", "copy", "bob", "eve").status == 0
    assert load_agent(base, "eve").permissions == bob.permissions


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new", "bob", "--from", "adda"], 'did you mean "ada"?'),
        (["new", "bob", "--kinds", "reprot"], "must be one of message, report, request, response, status"),
        (["new", "bob", "--from", "ada", "--model", "nope"], 'model key "nope" does not exist'),
        (["copy", "ada", "ada"], 'there is an agent "ada" already'),
        (["rename", "ada", "human"], 'agent "human" already exists'),
        (["rename", "ada", "Not A Name"], "a name has 1 to 63 characters"),
        (["rename", "ada", "all"], '"all" must not be an agent\'s name'),
        (["rm", "adda"], 'did you mean "ada"?'),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    base: Path, lemming: Lemming, words: list[str], said: str
) -> None:
    make_org(base, HUMAN, resume("ada"))
    ran = lemming("agents", *words)
    assert ran.status == 2
    assert said in ran.err
    assert sorted(path.name for path in (base / "agents").iterdir()) == ["ada", "human"]


def test_a_reader_of_nobody_there_is_warned_of(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    warning = 'it reads "adda", which does not exist yet: did you mean "ada"? (in its read_outboxes)'
    assert warning in lemming("agents", "new", "b", "--read", "adda").err


def test_a_removed_agent_can_be_put_back(base: Path, lemming: Lemming) -> None:
    two_agents(base)
    run_once(base)
    ran = lemming("agents", "rm", "ada")
    assert ran.status == 0
    assert not (base / "agents/ada").exists()
    assert 'bob still names "ada": permissions.read_outboxes in agents/bob/resume.json' in ran.err
    assert "`lemming agents rm ada --mend` removes it there" in ran.err
    assert run_once(base).turns[0].agent == "bob"
    assert lemming("verify").status == 0
    shutil.move(base / ran.out.strip(), base / "agents/ada")
    assert lemming("verify").out.count("note") == 0


TEAM = {"ask": [{"agent": "ada", "as": "helper"}, "eve"], "hand_to": ["ada"]}


@pytest.mark.parametrize("times", [["--mend"], ["", "--mend"]])
def test_a_removed_agent_is_taken_out_of_teams_where_that_is_wanted(
    base: Path, lemming: Lemming, times: list[str]
) -> None:
    lead = resume("lead", team=TEAM, permissions={"read_outboxes": ["ada", "eve"]})
    make_org(base, resume("ada"), resume("eve"), lead)
    for option in times:
        assert lemming("agents", "rm", "ada", *filter(None, [option])).status == 0
    left = json.loads((base / "agents/lead/resume.json").read_text())
    assert left["team"] == {"ask": ["eve"], "hand_to": []}
    assert left["permissions"]["read_outboxes"] == ["eve"]
    assert not run_once(base).by_status("failed")


def test_what_a_person_has_laid_out_stays_where_a_name_is_taken_out(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("lead"))
    text = """{"name": "lead", "instructions": "x",
  "permissions": {"read_outboxes": ["eve", "ada"]},   "team": {"ask": ["ada", "eve"]}}"""
    (base / "agents/lead/resume.json").write_text(text)
    assert lemming("agents", "rm", "ada", "--mend").status == 0
    assert (base / "agents/lead/resume.json").read_text() == text.replace(', "ada"', "").replace('"ada", ', "")


def test_a_renamed_agent_stays_in_its_teams(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("eve"), resume("lead", team=TEAM))
    assert lemming("agents", "rename", "ada", "bob").status == 0
    team = json.loads((base / "agents/lead/resume.json").read_text())["team"]
    assert team == {"ask": [{"agent": "bob", "as": "helper"}, "eve"], "hand_to": ["bob"]}


def test_a_renamed_agent_keeps_its_past_its_readers_and_its_credits(base: Path, lemming: Lemming) -> None:
    two_agents(base)
    run_once(base)
    assert lemming("agents", "rename", "ada", "eve").status == 0
    assert load_agent(base, "bob").permissions.read_outboxes == ["eve"]
    assert json.loads((base / "config/credits.json").read_text()) == {"eve": {"max_credits": 9}}
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "eve")] == ["news"]
    write_script(base, [{"agent": "eve", "reply": say("more")}, {"agent": "bob", "reply": say("another")}])
    assert {turn.agent: turn.status for turn in run_once(base).turns if turn.agent != "human"} == {
        "eve": "done",
        "bob": "done",
    }
    assert lemming("verify").status == 0
    assert lemming("validate").status == 0


def test_nobody_is_shown_a_renamed_agents_entries_again(base: Path, lemming: Lemming) -> None:
    two_agents(base)
    (base / "agents/ada/outbox").mkdir(exist_ok=True)
    by_hand = {"id": "hello", "agent": "ada", "tick": 1, "kind": "message", "payload": {"text": "by hand"}}
    run_once(base)
    (base / "agents/ada/outbox/00000001_hello.json").write_text(json.dumps(by_hand))
    assert run_once(base).turns[-1].status != "failed"
    assert "*" not in lemming("inbox", "bob").out
    assert lemming("agents", "rename", "ada", "eve").status == 0
    shown = lemming("inbox", "bob").out
    assert "by hand" in shown
    assert "*" not in shown
    assert lemming("verify").status == 0


def test_an_agent_renamed_by_hand_leaves_nothing_to_verify_but_notes(base: Path, lemming: Lemming) -> None:
    two_agents(base)
    run_once(base)
    (base / "agents/ada").rename(base / "agents/eve")
    file = base / "agents/eve/resume.json"
    file.write_text(file.read_text().replace('"ada"', '"eve"'))
    write_script(base, [{"agent": "eve", "reply": say("more")}])
    run_once(base)
    assert lemming("verify").status == 0


@pytest.mark.parametrize("words", [["rm", "ada"], ["rename", "ada", "eve"]])
def test_nobody_leaves_in_the_middle_of_a_tick(base: Path, lemming: Lemming, words: list[str]) -> None:
    two_agents(base)
    with pytest.raises(Crash), crash_at(15):
        run_once(base)
    ran = lemming("agents", *words)
    assert (ran.status, "tick 1 is not finished" in ran.err) == (2, True)
    assert (base / "agents/ada/resume.json").exists()


def whole_files(base: Path) -> dict[str, bytes]:
    return {path: content for path, content in tree(base).items() if not path.endswith(".tmp")}


def test_a_rename_that_is_cut_off_anywhere_is_finished_by_the_same_again_or_by_repair(
    base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    two_agents(base)
    run_once(base)
    before = tree(base)
    whole = shutil.copytree(base, tmp_path / "whole")
    rename_agent(whole, "ada", "eve")
    renamed = tree(whole)
    for number in range(1, 100):
        cut = shutil.copytree(base, tmp_path / f"cut{number}")
        try:
            with crash_at(number):
                rename_agent(cut, "ada", "eve")
            break
        except Crash:
            pass
        if not (cut / "renaming.json").exists():
            assert whole_files(cut) in (before, renamed)
            continue
        with pytest.raises(CorruptState, match="rename of ada to eve was interrupted"):
            run_once(cut)
        if number % 2:
            with pytest.raises(Crash), crash_at(2):
                rename_agent(cut, "ada", "eve")
            rename_agent(cut, "ada", "eve")
        else:
            with open_org(cut, command="repair") as runtime:
                make_repairs(runtime, find_repairs(cut))
        assert whole_files(cut) == renamed
        shutil.rmtree(cut)
    assert number > 10
    write_script(cut, [{"reply": say("more")}])
    assert {turn.agent: turn.status for turn in run_once(cut).turns}["eve"] == "done"


def test_another_rename_waits_for_the_one_that_was_cut_off(base: Path, lemming: Lemming) -> None:
    two_agents(base)
    with pytest.raises(Crash), crash_at(4):
        rename_agent(base, "ada", "eve")
    assert "finish it with `lemming agents rename ada eve`" in lemming("agents", "rename", "bob", "eva").err
    assert lemming("repair").out.startswith("renaming.json: the rename of ada to eve was interrupted")
    assert lemming("agents", "rename", "ada", "eve").status == 0
    assert lemming("repair").status == 0
