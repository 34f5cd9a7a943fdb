"""What a person said for always is of an agent, and not of the next one that has its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, edit, finished, lemming, make, ring, tick

from lemming.kernel.base.jsontext import parse
from lemming.testing import resume, say

APPROVED = {**ASK, "approved": {"ada": ["ring"], "ghost": ["ring", "file_write"]}}


def gates(base: Path, file: str = "config/org.json") -> Any:
    return parse((base / file).read_bytes())["gates"]


def with_ghost(base: Path, **more: Any) -> Path:
    """Make an organisation whose gates ask neither about ada nor about ghost; ada may create agents."""
    made = make(base, gates=[APPROVED], **more)
    may = {"read_outboxes": ["human"], "tools": ["ring", "create_agent"]}
    edit(made, "agents/ada/resume.json", permissions=may, gates=[{**ASK, "approved": {"ghost": ["ring"]}}])
    edit(made, "config/org.json", create_agent_allowed=["ada"])
    edit(made, "agents/human/resume.json", permissions={"read_outboxes": ["*"]})
    (made / "agents/ghost").mkdir()
    (made / "agents/ghost/resume.json").write_text("{}")
    edit(made, "agents/ghost/resume.json", **resume("ghost"))
    return made


def without_its_folder(base: Path) -> Path:
    """Take away ghost's folder, as a person does who deletes an agent by hand."""
    (base / "agents/ghost/resume.json").unlink()
    (base / "agents/ghost").rmdir()
    return base


def test_it_goes_with_an_agent_that_is_removed(tmp_path: Path) -> None:
    base = with_ghost(tmp_path)
    assert lemming(base, "agents", "rm", "ghost") == 0
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]
    assert gates(base, "agents/ada/resume.json") == [ASK]


def test_it_goes_on_under_the_new_name_of_an_agent(tmp_path: Path) -> None:
    base = with_ghost(tmp_path)
    assert lemming(base, "agents", "rename", "ghost", "spirit") == 0
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"], "spirit": ["ring", "file_write"]}}]
    assert gates(base, "agents/ada/resume.json") == [{**ASK, "approved": {"spirit": ["ring"]}}]


def test_a_resume_keeps_what_it_says_of_its_own_agent(tmp_path: Path) -> None:
    base = with_ghost(tmp_path)
    edit(base, "agents/ghost/resume.json", gates=[{**ASK, "approved": {"ghost": ["ring"]}}])
    assert lemming(base, "agents", "rename", "ghost", "spirit") == 0
    assert gates(base, "agents/spirit/resume.json") == [{**ASK, "approved": {"spirit": ["ring"]}}]


def test_a_new_agent_inherits_nothing_of_one_whose_folder_somebody_took_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = without_its_folder(with_ghost(tmp_path))
    capsys.readouterr()
    assert lemming(base, "agents", "new", "ghost", "--model", "scripted", "--instructions", "Haunt.") == 0
    assert 'removed the standing approvals of a former agent named "ghost"' in capsys.readouterr().err
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]
    assert gates(base, "agents/ada/resume.json") == [ASK]


def document_of_ghost(folder: Path, **more: Any) -> Path:
    """Write a document that has an agent called ghost."""
    may = {"read_outboxes": ["human"], "tools": ["ring"]}
    ghost = {"instructions": "Haunt.", "model": {"key": "scripted"}, "permissions": may}
    document = folder / "ghost.json"
    document.write_text(json.dumps({"agents": {"ghost": ghost}, **more}))
    return document


def test_an_agent_of_a_document_inherits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = without_its_folder(with_ghost(tmp_path / "org"))
    document = document_of_ghost(tmp_path)
    assert lemming(base, "apply", str(document), "--dry-run") == 0
    assert gates(base) == [APPROVED]
    assert lemming(base, "apply", str(document), "--yes") == 0
    assert 'config/org.json: removed the standing approvals of a former agent named "ghost"' in capsys.readouterr().err
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]
    assert gates(base, "agents/ada/resume.json") == [ASK]
    assert lemming(base, "apply", str(document), "--yes") == 0
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]


def test_what_a_document_itself_says_for_always_is_written(tmp_path: Path) -> None:
    base = without_its_folder(with_ghost(tmp_path / "org"))
    gate = {**ASK, "approved": {"ghost": ["ring"]}}
    document = document_of_ghost(tmp_path, settings={"gates": [gate]})
    assert lemming(base, "apply", str(document), "--yes") == 0
    assert gates(base) == [gate]


def test_what_an_agent_that_is_there_was_given_stays_when_a_document_changes_it(tmp_path: Path) -> None:
    base = with_ghost(tmp_path / "org")
    document = document_of_ghost(tmp_path)
    assert lemming(base, "apply", str(document), "--yes") == 0
    assert gates(base) == [APPROVED]


def test_an_agent_that_is_imported_inherits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = without_its_folder(with_ghost(tmp_path / "org"))
    folder = tmp_path / "project/.claude/agents"
    folder.mkdir(parents=True)
    (folder / "ghost.md").write_text("---\nname: ghost\ndescription: Haunts\n---\nHaunt.\n")
    assert lemming(base, "import", "claude", str(tmp_path / "project"), "--into", str(base)) == 0
    assert (base / "agents/ghost/resume.json").exists()
    assert 'config/org.json: removed the standing approvals of a former agent named "ghost"' in capsys.readouterr().err
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]


def test_no_agent_creates_one_that_would_inherit_it(tmp_path: Path) -> None:
    args = {"name": "ghost", "title": "Ghost", "instructions": "Haunt.", "tools": ["ring"]}
    calls = [{"tool": "create_agent", "args": args}, ring("mine")]
    script = [{"tick": 1, "step": 0, "reply": say("", tool_calls=calls)}, {"reply": say("")}]
    base = without_its_folder(with_ghost(tmp_path, script=script))
    rings = {**ASK, "tool": "ring", "approved": {"ghost": ["ring"]}}
    edit(base, "config/org.json", gates=[rings])
    edit(base, "agents/ada/resume.json", gates=[])
    tick(base)
    assert not (base / "agents/ghost").exists()
    assert 'config/org.json#/gates/0/approved/ghost lets calls of a former "ghost" pass' in finished(base, 1)[0][1]


def test_an_agent_whose_name_no_gate_knows_is_created(tmp_path: Path) -> None:
    args = {"name": "other", "title": "Other", "instructions": "Haunt.", "tools": ["ring"]}
    script = [
        {"tick": 1, "step": 0, "reply": say("", tool_calls=[{"tool": "create_agent", "args": args}])},
        {"reply": say("")},
    ]
    base = with_ghost(tmp_path, script=script)
    for file in ("config/org.json", "agents/ada/resume.json"):
        edit(base, file, gates=[])
    tick(base)
    assert (base / "agents/other/resume.json").exists()
