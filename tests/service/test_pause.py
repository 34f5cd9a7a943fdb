"""Pausing: who is paused takes no turns, everybody can see it, and nothing is lost for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import load_tick, run_once, ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.operations.agent_pause import load_pause, pause_agent, unpause_agent
from lemming.testing import FrozenClock, journal_lines, make_org, tree
from lemming.testing import resume as resume_of

TEXT = "since 2026-11-22T09:00:00.000Z by ada: too dear"


def statuses(base: Path) -> dict[str, str]:
    return {turn.agent: turn.status for turn in run_once(base, clock=FrozenClock()).turns}


def test_a_paused_agent_takes_no_turn_and_the_plan_says_why(base: Path) -> None:
    make_org(base, resume_of("ada"), resume_of("bob"))
    pause_agent(base, "bob", TEXT)
    assert statuses(base) == {"ada": "done", "bob": "skipped"}
    assert journal_lines(base, 1)[0]["skipped"] == {"bob": f"paused {TEXT}"}
    assert not (base / "agents/bob/turns.jsonl").exists()


def test_a_recorded_pause_is_replayed_and_verified_after_it_has_ended(base: Path) -> None:
    make_org(base, resume_of("ada"), resume_of("bob"))
    pause_agent(base, "bob", TEXT)
    run_once(base)
    unpause_agent(base, "bob")
    run_once(base)
    assert not verify_org(base).findings
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [1, 2]


def test_a_resumed_agent_is_shown_what_was_written_meanwhile(base: Path) -> None:
    make_org(base, resume_of("ada"), resume_of("bob"))
    pause_agent(base, "bob", TEXT)
    run_once(base)
    run_once(base)
    unpause_agent(base, "bob")
    run_once(base)
    [started] = [line for line in journal_lines(base, 3) if line["type"] == "turn_started" and line["agent"] == "bob"]
    prompt = json.dumps(started["prompt"])
    assert prompt.count("hello") >= 2


@pytest.mark.parametrize("at_once", [2, 8, 64])
def test_how_many_turns_run_at_once_makes_no_difference_to_a_pause(tmp_path: Path, at_once: int) -> None:
    orgs = []
    for number in (1, at_once):
        base = tmp_path / f"org{number}"
        agents = [resume_of(name) for name in ("ada", "bob", "cyd", "dan")]
        make_org(base, *agents, org={"max_parallel": number, "durability": "off"})
        for words in ((), ("bob",), ("cyd",)):
            for name in words:
                pause_agent(base, name, TEXT)
            run_once(base, clock=FrozenClock())
        orgs.append({path: raw for path, raw in tree(base).items() if path != "config/org.json"})
    assert orgs[0] == orgs[1]


def test_while_all_are_paused_only_the_counter_moves(base: Path) -> None:
    make_org(base, resume_of("ada"), resume_of("human", model={"key": "human"}))
    pause_agent(base, None, TEXT)
    before = tree(base)
    report = run_once(base)
    assert report.is_quiet
    reasons = {turn.agent: turn.reason for turn in report.turns}
    assert reasons == {"ada": f"the organisation is paused {TEXT}", "human": "a person speaks for it"}
    assert (load_tick(base), journal_ticks(base)) == (2, [])
    after = tree(base)
    assert {path for path in after if after[path] != before.get(path)} == {"tick.json"}


def test_an_engine_under_way_notices_at_its_next_tick(base: Path) -> None:
    make_org(base, resume_of("ada"))
    done = []
    for report in ticks(base, interval_s=0, max_ticks=3):
        done.append(report.turns[0].status)
        (pause_agent if report.tick == 1 else unpause_agent)(base, "ada", *([TEXT] if report.tick == 1 else []))
    assert done == ["done", "skipped", "done"]


def test_an_agent_that_wakes_for_changes_sees_none_in_a_pause(base: Path) -> None:
    make_org(base, resume_of("ada", schedule={"wake": "changed"}))
    file = base / "agents/ada/resume.json"
    odd = file.read_text().replace('"title": "Ada"', '"title"   :   "Ada"')
    file.write_text(odd)
    run_once(base)
    pause_agent(base, "ada", 'too "dear"')
    assert json.loads(file.read_text())["paused"] == 'too "dear"'
    unpause_agent(base, "ada")
    assert file.read_text() == odd
    assert run_once(base).is_quiet


@pytest.mark.parametrize("raw", [b"{}", b'{"inbox_limit": 5}\n', b'\xef\xbb\xbf{\n  "inbox_limit": 5\n}\n', None])
def test_the_settings_around_the_key_stay_as_they_were(base: Path, raw: bytes | None) -> None:
    make_org(base, resume_of("ada"))
    if raw is not None:
        fs.write_atomic(base, "config/org.json", raw)
    assert pause_agent(base, None, TEXT) == TEXT
    assert load_pause(base, None) == TEXT
    assert unpause_agent(base, None) == TEXT
    assert json.loads((base / "config/org.json").read_text("utf-8-sig")) == json.loads(
        (raw or b"{}").decode("utf-8-sig")
    )
    assert load_pause(base, None) == ""


def test_a_pause_written_by_hand_counts_and_can_be_ended(base: Path) -> None:
    make_org(base, resume_of("ada", paused="on holiday"))
    assert run_once(base).turns[0].reason == "paused: on holiday"
    assert unpause_agent(base, "ada") == "on holiday"
    assert statuses(base) == {"ada": "done"}


def test_a_second_pause_keeps_the_words_of_the_first(base: Path) -> None:
    make_org(base, resume_of("ada"))
    pause_agent(base, "ada", TEXT)
    assert pause_agent(base, "ada", "another") == TEXT


def test_a_broken_resume_is_left_as_it_is(base: Path) -> None:
    make_org(base, resume_of("ada"))
    (base / "agents/ada/resume.json").write_text("{")
    with pytest.raises(ConfigError):
        pause_agent(base, "ada", TEXT)
    with pytest.raises(ConfigError):
        pause_agent(base, "nobody", TEXT)
    assert (base / "agents/ada/resume.json").read_text() == "{"
    assert not (base / "agents/nobody").exists()


def test_the_commands_say_who_is_paused_since_when_and_by_whom(base: Path, lemming: Lemming) -> None:
    make_org(base, resume_of("ada"), resume_of("bob"))
    ran = lemming("pause", "bob", "--why", "too dear")
    assert (ran.status, ran.out) == (0, "")
    assert "bob is paused since 20" in ran.err
    assert "`lemming unpause bob` ends it" in ran.err
    assert "already paused" in lemming("pause", "bob").err
    status = lemming("status").out
    assert "bob is paused since 20" in status
    assert "too dear" in status
    assert [line["why"] for line in lemming("status", "--json").objects[0]["agents"]] == ["due", "paused"]
    assert "paused since" in lemming("plan").out
    assert "paused since" in lemming("plan", "--ticks", "2").out
    assert "paused since" in lemming("agents", "show", "bob").out
    ran = lemming("resume", "bob")
    assert "bob is unpaused; it was paused since 20" in ran.err
    assert "is not paused" in lemming("resume", "bob").err
    assert lemming("pause", "--json").objects[0]["was_paused"] is False
    assert "the organisation is paused since" in lemming("run-once").err
    assert "`lemming unpause` ends it" in lemming("status").out
    assert "the organisation is paused since" in lemming("resume", "bob").err
    assert lemming("resume", "--json").objects[0]["was_paused"] is True


def test_what_cannot_be_paused_is_said(base: Path, lemming: Lemming) -> None:
    make_org(base, resume_of("ada"), resume_of("human", model={"key": "human"}))
    assert lemming("pause", "adda").status == 2
    ran = lemming("pause", "human")
    assert (ran.status, "a person writes for it" in ran.err) == (2, True)


def test_the_failure_of_an_agent_that_was_paused_for_it_is_no_alarm(base: Path, lemming: Lemming) -> None:
    make_org(base, resume_of("ada"), script=[{"error": "AuthenticationFailed"}])
    run_once(base)
    assert lemming("status", "--check").status == 1
    lemming("pause", "ada")
    assert lemming("status", "--check").status == 0
