"""`lemming apply` judges a document where it goes: it writes nothing unsound, and names guards that go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.testing import make_org, resume, tree

HUMAN = {"human": {"provider": "human"}}
CODE = 'from lemming.tools import tool\n\n\n@tool\ndef greet() -> str:\n    """Greets."""\n    return ""\n'


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("agents: {bob: {does: x, tools: [file_wrte]}}", '"file_wrte"'),
        ("agents: {bob: {does: x, model: other}}\nmodels: {other: {provider: opnai}}", "opnai"),
        ("agents: {bob: {does: x, approve: [excute]}}", "excute"),
        ("settings: {gates: [{at: call, class: excute, then: ask}]}", "excute"),
        ('files: {"shared/a\\0b": x}', "not a file of an organisation"),
    ],
    ids=["tool", "provider", "class in a resume", "class in the settings", "path"],
)
def test_what_is_unsound_where_it_goes_is_not_written(
    said: str, told: str, base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), models=HUMAN)
    (tmp_path / "idea.yaml").write_text(said)
    before = tree(base, without=())
    ran = lemming("apply", str(tmp_path / "idea.yaml"), "--yes")
    assert ran.status == 3, ran
    assert told in ran.err
    assert tree(base, without=()) == before


def test_what_was_wrong_before_is_no_business_of_the_documents(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", permissions={"tools": ["file_wrte"]}))
    (tmp_path / "idea.json").write_text(json.dumps({"files": {"shared/a.txt": "x"}}))
    assert lemming("apply", str(tmp_path / "idea.json")).status == 0
    assert (base / "shared/a.txt").read_text() == "x"


def test_toml_that_is_nested_deep_is_told_as_such(tmp_path: Path, bare: Lemming) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 5000}{']' * 5000}\n")
    ran = bare("apply", str(tmp_path / "deep.toml"), str(tmp_path / "org"))
    assert ran.status == 3, ran
    assert "nested too deep" in ran.err


@pytest.mark.parametrize("tool_files", [["agents/*/tools/*.py"], []], ids=["loaded", "written only"])
def test_code_waits_for_leave_also_where_the_settings_that_load_it_are_there_already(
    tool_files: list[str], base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), org={"tool_files": tool_files})
    (tmp_path / "idea.json").write_text(json.dumps({"files": {"agents/ada/tools/greet.py": CODE}}))
    ran = lemming("apply", str(tmp_path / "idea.json"))
    assert ran.status == 2, ran
    assert "contains:" in ran.err
    assert "agents/ada/tools/greet.py" in ran.err
    assert not (base / "agents/ada/tools").exists()
    assert lemming("apply", str(tmp_path / "idea.json"), "--yes").status == 0


def test_a_tool_that_the_document_brings_is_no_mistake(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    greeter = {"does": "Greet.", "tools": ["greet"], "model": "scripted"}
    idea = {"agents": {"bob": greeter}, "files": {"tools/greet.py": CODE}}
    (tmp_path / "idea.json").write_text(json.dumps(idea))
    lemming("apply", str(tmp_path / "idea.json"), "--yes")
    assert (base / "agents/bob/resume.json").exists()


ASKS = {"at": "call", "class": ["execute"], "then": "ask"}
BLOCKS = {"at": "out", "deny": ["secret"], "then": "block"}
GUARDED: dict[str, Any] = {
    "gates": [ASKS, BLOCKS],
    "trust": {},
    "paused": "for the holidays",
    "shell": {"sandbox": "bwrap"},
    "http": {"hosts": ["example.org"]},
}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"gates": []}, 'removes gate {"at": "call", "class": ["execute"], "then": "ask"}'),
        ({"gates": [ASKS]}, 'removes gate {"at": "out", "deny": ["secret"], "then": "block"}'),
        ({"gates": [BLOCKS, ASKS]}, "changes the order of the gates"),
        ({"gates": [{"at": "call", "then": "pass"}, ASKS, BLOCKS]}, "lets pass, before other gates"),
        ({"trust": None}, "removes trust {}"),
        ({"paused": ""}, 'changes paused from "for the holidays" to ""'),
        ({"shell": {"sandbox": "none"}}, 'changes shell.sandbox from "bwrap" to "none"'),
        ({"loops": {"stop_after": 9000}}, 'changes loops from null to {"stop_after": 9000}'),
        ({"http": {"hosts": ["*"]}}, 'changes http.hosts from ["example.org"] to ["*"]'),
    ],
)
def test_each_guard_that_goes_is_named(
    settings: dict[str, Any], told: str, base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), org=GUARDED)
    (tmp_path / "idea.json").write_text(json.dumps({"settings": settings}))
    ran = lemming("apply", str(tmp_path / "idea.json"), "--dry-run")
    assert f"config/org.json: {told}" in " ".join(ran.err.split()), ran


def test_a_limit_that_goes_and_a_tool_that_is_granted_are_named(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", permissions={"tools": ["file_read"]}))
    (base / "config/credits.json").write_text(json.dumps({"ada": {"max_credits": 5}}))
    idea = {"agents": {"ada": {"does": "x", "tools": ["shell"]}}, "credits": {"ada": {"max_credits": 500}}}
    (tmp_path / "idea.json").write_text(json.dumps(idea))
    said = " ".join(lemming("apply", str(tmp_path / "idea.json"), "--dry-run").err.split())
    assert "config/credits.json: changes ada.max_credits from 5 to 500" in said
    assert 'agents/ada/resume.json: changes permissions.tools from ["file_read"] to ["shell"]' in said


def test_a_file_that_is_trusted_less_is_so_where_the_document_goes(
    base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), org={"trust": {}})
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/theirs.txt").write_text("obey")
    (base / "shared/ours.txt").write_text("fine")
    (base / "trust/shared").mkdir(parents=True)
    mark = {"file": "shared/theirs.txt", "trust": "outside", "tick": 3, "agent": "ada", "from": []}
    (base / "trust/shared/theirs.txt.json").write_text(json.dumps(mark))
    file, there = tmp_path / "org.json", tmp_path / "there"
    assert lemming("export", "org", "--json", "--output", str(file)).status == 0
    assert json.loads(file.read_text())["trust"] == {"shared/theirs.txt": "outside"}
    lemming("apply", str(file), str(there), "--yes")
    found = json.loads((there / "trust/shared/theirs.txt.json").read_text())
    assert (found["file"], found["trust"]) == ("shared/theirs.txt", "outside")
    assert not (there / "trust/shared/ours.txt.json").exists()


@pytest.mark.parametrize("said", [{"shared/other.txt": "outside"}, {"shared/a.txt": 1}])
def test_a_label_of_no_file_and_one_that_is_no_word_are_mistakes(
    said: dict[str, Any], base: Path, tmp_path: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"), org={"trust": {}})
    (tmp_path / "idea.json").write_text(json.dumps({"files": {"shared/a.txt": "x"}, "trust": said}))
    assert lemming("apply", str(tmp_path / "idea.json"), "--yes").status == 3
    assert not (base / "shared/a.txt").exists()


def test_a_document_raises_no_label_that_stands_there(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), org={"trust": {}})
    (base / "trust/shared").mkdir(parents=True)
    mark = {"file": "shared/a.txt", "trust": "outside", "tick": 3, "agent": "ada", "from": []}
    (base / "trust/shared/a.txt.json").write_text(json.dumps(mark))
    idea = {"files": {"shared/a.txt": "x"}, "trust": {"shared/a.txt": "owner"}}
    (tmp_path / "idea.json").write_text(json.dumps(idea))
    assert lemming("apply", str(tmp_path / "idea.json"), "--yes").status == 0
    assert json.loads((base / "trust/shared/a.txt.json").read_text()) == mark
