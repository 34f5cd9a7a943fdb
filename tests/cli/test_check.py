"""`lemming check`: what validate, doctor and verify say, and the exit status of the worst."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume, say


@pytest.fixture
def org(base: Path) -> Path:
    make_org(base, resume("ada"), script=[{"reply": say("fine")}])
    run_once(base, clock=FrozenClock())
    return base


def test_what_is_well_is_three_lines_and_the_root_that_verify_prints(org: Path, lemming: Lemming) -> None:
    ran = lemming("check")
    assert ran.status == 0, ran
    assert [line.split()[1] for line in ran.out.splitlines()] == ["validate", "doctor", "verify"]
    assert lemming("verify", "--quiet").out.strip() in ran.out
    assert lemming("check", "--quiet").out == ""


def test_the_worst_of_what_is_wrong_is_the_exit_status(org: Path, lemming: Lemming) -> None:
    (org / "agents/bob").mkdir()
    (org / "agents/bob/resume.json").write_text('{"name": "bob", "instructions": 1}')
    wrong = lemming("check")
    assert (wrong.status, "agents/bob/resume.json:1" in wrong.err) == (3, True), wrong
    assert "fail  validate  1 error" in wrong.out
    next((org / "agents/ada/outbox").glob("*.json")).unlink()
    lost = lemming("check")
    assert lost.status == 7
    assert "missing" in lost.out


def test_a_model_that_cannot_be_asked_is_the_machines(org: Path, lemming: Lemming) -> None:
    (org / "config/models.json").write_text('{"scripted": {"provider": "openai", "model": "gpt-6-luna"}}')
    ran = lemming("check")
    assert ran.status == 1, ran
    assert "fix: " in ran.out
    assert "fail  doctor" in ran.out
    assert "ok    verify" in ran.out


def test_settings_that_cannot_be_read_are_told_once(org: Path, lemming: Lemming) -> None:
    (org / "config/org.json").write_text('{"gates": [{"at": "call", "than": "ask"}]}')
    ran = lemming("check")
    assert ran.status == 3
    assert ran.err.count('unknown key "than"') == 1
    assert "than" not in ran.out
    assert "ok    doctor" in ran.out, "what it can look at without them"


def test_the_json_says_which_check_found_what(org: Path, lemming: Lemming) -> None:
    (org / "agents/ada/resume.json").write_text('{"name": "ada", "instructions": 1}')
    objects = lemming("check", "--json").objects
    assert {each["check"] for each in objects[:-1]} >= {"validate", "doctor"}
    last = objects[-1]
    assert (last["type"], last["validate"]["errors"]) == ("checked", 1)
    assert len(last["verify"]["root"]) == 64


def test_the_list_says_what_each_check_costs_and_which_command_asks_it(org: Path, lemming: Lemming) -> None:
    listed = lemming("check", "--list", "--json").objects
    asked = {each["name"]: each["commands"] for each in listed}
    assert {each["cost"] for each in listed} == {"names", "files", "journals", "world"}
    assert all(each["looks_at"] and each["commands"] for each in listed)
    assert (asked["resumes"], asked["disk"]) == (["validate"], ["doctor", "status"])
    assert (asked["ledgers"], asked["repeats"]) == (["verify"], ["findings"])
    assert asked["gates"] == ["validate"], "a capability brings its own"
    assert "resumes" in lemming("check", "--list").out


def test_the_list_needs_no_organisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: Lemming) -> None:
    monkeypatch.chdir(tmp_path)
    shown = bare("check", "--list")
    assert (shown.status, "resumes" in shown.out) == (0, True), shown
    assert bare("check").status == 2


def test_some_are_asked_by_their_names(org: Path, lemming: Lemming) -> None:
    (org / "agents/ada/resume.json").write_text('{"name": "ada", "instructions": 1}')
    next((org / "agents/ada/outbox").glob("*.json")).unlink()
    resumes = lemming("check", "resumes")
    assert (resumes.status, "agents/ada/resume.json:1" in resumes.err) == (3, True), resumes
    assert lemming("check", "memories", "gates").status == 0
    found, last = lemming("check", "written", "--json").objects
    assert (found["check"], found["kind"]) == ("written", "missing")
    assert last["written"] == {"errors": 1, "warnings": 0, "notes": 0}
    assert lemming("check", "written", "resumes").status == 7
    assert "disk" in lemming("check", "disk").out
    wrong = lemming("check", "resume")
    assert (wrong.status, 'did you mean "resumes"?' in wrong.err) == (2, True)
    assert "use the command `lemming validate`" in lemming("check", "resumes", "validate").err
    assert lemming("check", "validate") == lemming("validate")


def test_a_counter_that_three_checks_cannot_read_is_one_error_of_doctor(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), script=[{"reply": say("fine")}])
    run_once(base)
    (base / "tick.json").unlink()
    found = lemming("check", "--json").objects
    told = [each["about"] for each in found if each.get("about") and "does not exist" in each["text"]]
    assert told == ["tick", "repair"]


def test_what_is_newest_is_looked_at_alone(org: Path, lemming: Lemming) -> None:
    for _ in range(3):
        run_once(org, clock=FrozenClock())
    first, *_, last = sorted((org / "agents/ada/outbox").glob("*.json"))
    assert lemming("verify", "--newest", "2").status == 0
    first.unlink()
    newest = lemming("verify", "--newest", "2", "--json").objects[-1]
    assert (newest["ticks"], newest["turns"], newest["errors"], newest["root"]) == (2, 2, 0, None)
    assert lemming("check", "--newest", "2").status == 0
    last.unlink()
    (org / f"agents/ada/outbox/{last.name.split('_')[0]}_0123456789ab.json").write_text("{}")
    found = lemming("verify", "--newest", "2", "--json").objects[:-1]
    assert {each["kind"] for each in found} == {"missing", "unaccounted"}
    assert lemming("verify").status == 7
