"""`lemming doctor`: what is not well with a machine and an organisation, and how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import load_tick, persist_tick, run_once
from lemming.kernel.files import fs
from lemming.queries.checks import environment_checks
from lemming.testing import Crash, crash_at, make_org, resume


def test_doctor_is_content_with_a_good_org(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("doctor", "--json")
    assert ran.status == 0
    assert {finding["about"] for finding in ran.objects} >= {"python", "packages", "org", "disk", "tick"}
    assert {(finding["level"], finding["fix"]) for finding in ran.objects} == {("ok", "")}


def test_doctor_of_very_many_agents_opens_an_entry_of_each_and_says_so(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    monkeypatch.setattr(environment_checks, "compute_entries_per_outbox", lambda _: 4)  # as of 700 agents
    assert "(newest 1 entries of each)" in lemming("doctor").out


def test_doctor_never_prints_a_key(base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    make_org(base, resume("ada", model={"key": "gpt"}), models={"gpt": {"provider": "openai", "model": "m"}})
    ran = lemming("doctor")
    assert "OPENAI_API_KEY is set" in ran.out
    assert "not-to-be-seen" not in ran.out


def test_doctor_and_repair_agree_about_an_interrupted_tick(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    with pytest.raises(Crash), crash_at(6):
        run_once(base)
    fs.write_atomic(base, "tick.json", b'{"current_tick": 1}')
    ran = lemming("doctor")
    assert "tick.json says 1, but tick 1 is over: tick 2 has started" in ran.out
    assert '"current_tick": 3' not in ran.out
    assert "`lemming repair`" in ran.out
    lemming("repair", "--yes")
    assert load_tick(base) == 2
    assert lemming("run-once").status == 0


def test_addresses_are_shown_without_user_and_password(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "me:hunter2@box:11434")
    monkeypatch.setenv("FOO_AUTH", "not-to-be-seen")
    models = {
        "here": {"provider": "openai", "options": {"base_url": "http://me:hunter2@127.0.0.1:8000/v1?key=hunter2"}},
        "there": {
            "provider": "anthropic",
            "options": {"base_url": "https://me:hunter2@models.example", "api_key_env": "FOO_AUTH"},
        },
        "box": {"provider": "ollama", "model": "m"},
        "host": {"provider": "ollama", "model": "m", "options": {"host": "https://me:hunter2@gpu"}},
    }
    make_org(base, *(resume(key, model={"key": key}) for key in models), models=models)
    for words in (["doctor"], ["doctor", "--json"], ["models", "list"], ["models", "list", "--json"]):
        ran = lemming(*words)
        assert "hunter2" not in ran.out + ran.err
        assert "not-to-be-seen" not in ran.out + ran.err
        for shown in ("asks http://127.0.0.1:8000/v1", "FOO_AUTH is set, and sent to https://models.example",
                      "server at box:11434", "server at https://gpu"):  # fmt: skip
            assert shown in ran.out


def test_doctor_says_what_is_missing_and_how_to_mend_it(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada", model={"key": "gpt"}),
        resume("bob", permissions={"tools": ["shel"]}),
        models={"gpt": {"provider": "openai", "model": "gpt-4o-mini"}},
    )
    ran = lemming("doctor")
    assert ran.status == 1
    assert "OPENAI_API_KEY is not set" in ran.out
    assert "gpt-4o-mini is shut down on 2027-01-14" in ran.out
    assert "2 agents, 1 error, 0 warnings" in ran.out


def test_doctor_sees_a_tick_that_was_moved_back(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    lemming("run-forever", "--max-ticks", "2", "--interval", "0", "-q")
    persist_tick(base, 1)
    ran = lemming("doctor")
    assert ran.status == 1
    assert "fix: `lemming repair`" in ran.out


def test_doctor_without_an_org_says_how_to_make_one(
    tmp_path: Path, bare: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = bare("doctor")
    assert ran.status == 1
    assert "lemming init" in ran.out


def test_models_are_listed_with_what_each_still_needs(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("ada"),
        models={
            "gpt": {"provider": "openai", "model": "m"},
            "own": {"provider": "openai", "options": {"base_url": "http://127.0.0.1:1/v1"}},
            "prog": {"provider": "cli", "options": {"command": ["no-such-program"]}},
            "typo": {"provider": "opnai"},
        },
    )
    found = {model["key"]: model for model in lemming("models", "list", "--json").objects}
    told = {key: model["is_ready"] for key, model in found.items() if key != "default"}
    without_model = dict.fromkeys(("human", "plan", "clock", "scripted"), True)
    assert told == {"gpt": False, "own": None, "prog": False, "typo": False, **without_model}
    assert found["gpt"]["fix"] == "export OPENAI_API_KEY=..."
    assert found["typo"]["fix"] == 'did you mean "openai"?'
