"""What a rehearsal does about tools that reach outside, and about models that gave no answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from newsroom import again

from lemming.engine import run_once
from lemming.journal_tools.fork import SettingOverride
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files import fs
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import FrozenClock, make_org, resume, say, tree, write_script

OTHER = SettingOverride.parse("agents/ada/resume.json:/model/key=other")


class Bell(Tool):
    """Rings outside."""

    name = "bell_outside"
    description = "Ring a bell."
    rung: ClassVar[list[str]] = []

    def execute(self, agent_name: str, base_path: Path, *, how: str) -> ToolResult:
        self.rung.append(how)
        return ToolResult(True, f"ding {len(self.rung)}")


class Down(Backend):
    """A server that is down, and counts who tried."""

    keeps_deadline = True
    tried: ClassVar[list[str]] = []

    def __init__(self, *, base: Path | None = None) -> None:
        del base

    def complete(self, request: Request) -> Reply:
        self.tried.append(request.agent)
        from lemming.kernel.base.errors import AuthenticationFailed

        raise AuthenticationFailed("no key")


@pytest.fixture(autouse=True)
def _bell(monkeypatch: pytest.MonkeyPatch) -> Any:
    register_provider("down", Down)
    ToolRegistry.register(Bell())
    monkeypatch.setattr(Bell, "rung", [])
    monkeypatch.setattr(Down, "tried", [])
    yield
    ToolRegistry.unregister(Bell.name)


def rings(how: str) -> dict[str, Any]:
    return {"tool": Bell.name, "args": {"how": how}}


def bells(base: Path, *, other: str) -> Path:
    """Two ticks in which ada rings softly; the other model rings in its own way."""
    write = {"tool": "file_write", "args": {"path": "a.txt", "content": "soft"}}
    reply = say("rang", tool_calls=[rings("softly"), write])
    models = {"other": {"provider": "scripted", "options": {"file": "config/other.jsonl"}}}
    ada = resume("ada", permissions={"tools": [Bell.name, "file_write"], "read_outboxes": []})
    make_org(base, ada, script=[{"reply": reply}], models=models, org={"durability": "off"})
    fs.write_atomic(
        base, "config/other.jsonl", f"{to_line({'reply': say('rang', tool_calls=[rings(other)])})}\n".encode()
    )
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    Bell.rung.clear()
    return base


def test_a_call_that_is_the_same_has_its_recorded_result(base: Path, tmp_path: Path) -> None:
    bells(base, other="softly")
    found = again(base, tmp_path / "fork", OTHER)
    assert (Bell.rung, found.skipped_calls, len(found.unrecorded_prompts)) == ([], [], 2)
    results = (tmp_path / "fork/agents/ada/turns.jsonl").read_text()
    assert "ding 1" in results
    assert "ding 2" in results


def test_another_call_is_not_made_and_the_rehearsal_says_so(base: Path, tmp_path: Path) -> None:
    bells(base, other="loudly")
    found = again(base, tmp_path / "fork", OTHER)
    assert Bell.rung == []
    assert [(it.tick, it.agent, it.tool) for it in found.skipped_calls] == [
        (1, "ada", Bell.name),
        (2, "ada", Bell.name),
    ]
    assert "this is a rehearsal" in (tmp_path / "fork/agents/ada/turns.jsonl").read_text()


def test_another_call_is_made_where_a_person_wants_it(base: Path, tmp_path: Path) -> None:
    bells(base, other="loudly")
    found = again(base, tmp_path / "fork", OTHER, makes_calls=True)
    assert (Bell.rung, found.skipped_calls) == (["loudly", "loudly"], [])


def test_a_tool_that_was_taken_away_gives_no_recorded_result(base: Path, tmp_path: Path) -> None:
    bells(base, other="softly")
    none = SettingOverride.parse('agents/ada/resume.json:/permissions/tools=["file_write"]')
    again(base, tmp_path / "fork", OTHER, none)
    assert "refused by permissions.tools" in (tmp_path / "fork/agents/ada/turns.jsonl").read_text()


def test_files_outside_the_organisation_stay_as_they_are(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write = {"tool": "file_write", "args": {"path": f"{outside}/a.txt", "content": "hello"}}
    grants = {"allow_read": [], "allow_write": [str(outside)]}
    ada = resume("ada", permissions={"tools": ["file_write"], "read_outboxes": [], "file_access": grants})
    make_org(base, ada, script=[{"reply": say("wrote", tool_calls=[write])}], org={"durability": "off"})
    run_once(base, clock=FrozenClock())
    assert (outside / "a.txt").read_text() == "hello"
    (outside / "a.txt").write_text("mine by now")
    again(base, tmp_path / "fork")
    assert tree(outside) == {"a.txt": b"mine by now"}


def test_a_failure_of_the_record_stands_and_no_fallback_is_asked(base: Path, tmp_path: Path) -> None:
    models = {key: {"provider": "down", "attempts": 1, "model": key} for key in ("first", "second")}
    ada = resume("ada", model={"key": "first", "fallback": ["second"]})
    make_org(base, ada, models=models, org={"durability": "off"})
    run_once(base, clock=FrozenClock())
    assert Down.tried == ["ada", "ada"]
    found = again(base, tmp_path / "fork")
    assert (Down.tried, found.unrecorded_prompts, found.ends) == (["ada", "ada"], [], [])


def test_a_recording_cannot_answer_another_question(base: Path, tmp_path: Path) -> None:
    make_org(tmp_path / "first", resume("ada"), org={"durability": "off"})
    run_once(tmp_path / "first", clock=FrozenClock())
    played = {"provider": "replay", "options": {"journals": f"{tmp_path}/first/logs/ticks"}}
    make_org(base, resume("ada", model={"key": "played"}), models={"played": played}, org={"durability": "off"})
    run_once(base, clock=FrozenClock())
    found = again(base, tmp_path / "fork", SettingOverride.parse("agents/ada/resume.json:/instructions=Shout."))
    assert "a recording, which cannot answer another prompt" in str(found.stopped_by)
    assert found.last == 0
    assert again(base, tmp_path / "same").reused == 1


def test_a_script_that_was_edited_is_not_read_where_the_question_is_the_same(base: Path, tmp_path: Path) -> None:
    make_org(base, resume("ada"), org={"durability": "off"})
    run_once(base, clock=FrozenClock())
    write_script(base, [{"reply": say("something else")}])
    assert again(base, tmp_path / "fork").entries == []
