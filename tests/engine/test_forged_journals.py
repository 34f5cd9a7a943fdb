"""The journal of an unfinished tick, written by somebody else: it gets its author nothing.

What it says is held against what the agent may do now. So is an honest one after a grant was taken back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.testing import Crash, FrozenClock, journal_lines, make_org, resume, say, tree

MAY = {"read_outboxes": [], "tools": ["file_write", "create_agent"]}
WRITES = {"tool": "file_write", "args": {"path": "a.txt", "content": "by ada"}}


def change(base: Path, kind: str, edit: Callable[[Json], object]) -> None:
    """Change the records of a kind in the journal of tick 1, and make its checksums right again."""
    records, lines, check = journal_lines(base, 1), b"", b""
    for record in records:
        if record["type"] == kind:
            edit(record)
        body = json.dumps(record).encode()[:-1]
        check = blake2b(body, digest_size=8, key=check).hexdigest().encode()
        lines += b'%b,"check":"%b"}\n' % (body, check)
    (base / paths.journal_file(1)).write_bytes(lines)


def effect(path: str, root: str = "", text: str = "forged") -> Callable[[Json], object]:
    return lambda record: record.update(effects=[{"root": root, "path": path, "text": text}])


def edit_resume(base: Path, **blocks: Any) -> None:
    file = base / "agents/ada/resume.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **blocks}))


@pytest.fixture
def interrupted(base: Path) -> Path:
    """An organisation that died as ada's model was asked again; its first answer has written a file."""
    script = [{"agent": "ada", "step": 0, "reply": say("", tool_calls=[WRITES])}, {"reply": say("done")}]
    make_org(base, resume("ada", permissions=MAY, turn={"max_steps": 2}), resume("bob"), script=script)
    die_when(base, lambda event: isinstance(event, ModelAsked) and event.call == 1)
    return base


def die_when(base: Path, has_come: Callable[[Event], bool]) -> None:
    def watch(event: Event) -> None:
        if has_come(event):
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=watch, clock=FrozenClock(boot_id="first"))


def go_on(base: Path, boot: str = "first") -> dict[str, Any]:
    """Run the tick to its end and return ada's report."""
    report = run_once(base, clock=FrozenClock(boot_id=boot))
    assert [turn.status for turn in report.turns if turn.agent == "bob"] == ["done"]
    return next(turn.as_json() for turn in report.turns if turn.agent == "ada")


def test_an_honest_journal_goes_on(interrupted: Path) -> None:
    assert go_on(interrupted)["status"] == "done"
    assert (interrupted / "agents/ada/workspace/a.txt").read_text() == "by ada"


@pytest.mark.parametrize(
    "path",
    [
        "config/models.json", "agents/bob/memory/k.json", "agents/bob/workspace/x", "agents/bob/resume.json",
        "agents/ada/resume.json", "agents/ada/turns.jsonl", "agents/ada/outbox/00000001_abc.json",
        "tick.json", "shared/x", ".lemming/x", "logs/ticks/00000000.jsonl",
        "agents/ada/memory/sub/k.json", "agents/ada//workspace/x", "agents/ada/workspace/.git/config",
    ],
)  # fmt: skip
def test_a_file_that_the_agent_may_not_write_is_not_written(interrupted: Path, path: str) -> None:
    change(interrupted, "tool_finished", effect(path))
    change(interrupted, "turn_started", allow_everything)
    before = tree(interrupted)
    report = go_on(interrupted)
    assert (report["status"], report["error"]) == ("failed", "NoLongerAllowed")
    assert path in report["reason"]
    after = tree(interrupted)
    written = {file for file in after if after[file] != before.get(file)}
    assert written == {"agents/ada/turns.jsonl", "agents/bob/turns.jsonl", "tick.json"} | {
        file for file in written if file.startswith("agents/bob/outbox/")
    }


def allow_everything(record: Json) -> None:
    access = {"allow_read": ["/"], "allow_write": ["/"]}
    record["resume"]["permissions"] = {"read_outboxes": ["*"], "tools": ["shell"], "file_access": access}


def test_a_file_outside_the_organisation_is_not_written(interrupted: Path, tmp_path: Path) -> None:
    change(interrupted, "tool_finished", effect(".bashrc", root=str(tmp_path)))
    change(interrupted, "turn_started", allow_everything)
    assert go_on(interrupted)["error"] == "NoLongerAllowed"
    assert not (tmp_path / ".bashrc").exists()


def test_nor_is_it_after_a_power_cut_for_a_turn_that_was_committed(interrupted: Path, tmp_path: Path) -> None:
    die_when(interrupted, lambda event: isinstance(event, TurnStarted) and event.agent == "bob")
    own = {"root": "", "path": "agents/ada/workspace/a.txt", "text": "by ada"}
    forged = [{"root": str(tmp_path), "path": ".bashrc", "text": "x"}, {**own, "path": "config/org.json"}]
    change(interrupted, "tool_finished", lambda record: record.update(effects=[own, *forged]))
    (interrupted / "agents/ada/workspace/a.txt").unlink()
    assert go_on(interrupted, boot="second")["status"] == "done"
    assert (interrupted / "agents/ada/workspace/a.txt").read_text() == "by ada"
    assert not (tmp_path / ".bashrc").exists()
    assert not (interrupted / "config/org.json").exists()


def test_a_program_that_the_settings_do_not_name_is_never_run(interrupted: Path, tmp_path: Path) -> None:
    command = {"command": ["/bin/sh", "-c", f"touch {tmp_path}/ran"]}
    model = {"provider": "cli", "options": command}
    change(interrupted, "turn_started", lambda record: record.update(model={**record["model"], **model}))
    assert go_on(interrupted)["status"] == "done"
    assert not (tmp_path / "ran").exists()


def test_an_agent_that_may_not_hire_hires_nobody(interrupted: Path) -> None:
    new = json.dumps(resume("zoe", permissions={"tools": ["shell"]}))

    def hire(record: Json) -> None:
        record.update(tool="create_agent", effects=[{"root": "", "path": "agents/zoe/resume.json", "text": new}])

    change(interrupted, "tool_finished", hire)
    assert go_on(interrupted)["error"] == "NoLongerAllowed"
    assert not (interrupted / "agents/zoe").exists()


@pytest.mark.parametrize("more", [{}, {"permissions": {"tools": ["shell"]}}, {"model": {"key": "human"}}])
def test_who_may_hire_passes_on_no_more_than_it_has(interrupted: Path, more: dict[str, Any]) -> None:
    (interrupted / "config/org.json").write_text('{"create_agent_allowed": ["ada"]}')
    change(interrupted, "tool_finished", lambda record: record.update(tool="create_agent"))
    access = {"file_access": {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}}
    new = resume("zoe", **{"permissions": {"read_outboxes": [], "tools": [], **access}, **more})
    change(interrupted, "tool_finished", effect("agents/zoe/resume.json", text=json.dumps(new)))
    assert go_on(interrupted)["error"] == ("NoLongerAllowed" if more else "")
    assert (interrupted / "agents/zoe").exists() is not bool(more)


def test_a_grant_that_was_taken_back_meanwhile_costs_that_turn_and_no_more(interrupted: Path) -> None:
    edit_resume(interrupted, permissions={"read_outboxes": [], "tools": []})
    report = go_on(interrupted)
    assert (report["status"], report["error"], report["credits"]) == ("failed", "NoLongerAllowed", 1.0)
    assert "permissions.tools" in report["reason"]
    assert not (interrupted / "agents/ada/workspace/a.txt").exists()
    assert [turn.status for turn in run_once(interrupted).turns] == ["done", "done"]


def test_a_budget_lowered_meanwhile_holds_for_what_is_still_asked(interrupted: Path) -> None:
    edit_resume(interrupted, credits={"max_credits": 1})
    report = go_on(interrupted)
    assert (report["status"], report["calls"]) == ("waiting", 1)


def test_a_model_changed_meanwhile_is_asked_what_is_still_asked(interrupted: Path) -> None:
    models = json.loads((interrupted / "config/models.json").read_text())
    models["other"] = {**models["scripted"], "per_call": 7}
    (interrupted / "config/models.json").write_text(json.dumps(models))
    edit_resume(interrupted, model={"key": "other"})
    assert go_on(interrupted)["credits"] == 8.0


def test_a_model_that_is_gone_fails_the_turn_that_still_asks(interrupted: Path) -> None:
    edit_resume(interrupted, model={"key": "gone"})
    report = go_on(interrupted)
    assert (report["status"], report["error"]) == ("failed", "UnknownModel")


def add(base: Path, **record: Any) -> None:
    """Add a record to the end of the journal of tick 1."""
    file = base / paths.journal_file(1)
    lines = file.read_bytes()
    body = json.dumps({"epoch": 1, **record}).encode()[:-1]
    check = blake2b(body, digest_size=8, key=lines.rpartition(b'"check":"')[2][:16]).hexdigest().encode()
    file.write_bytes(lines + b'%b,"check":"%b"}\n' % (body, check))


def ended(state: dict[str, Any]) -> dict[str, Any]:
    """The record of a turn of bob's that was given up, and left this state."""
    nothing = {"entries": [], "tools": [], "memory": [], "files": [], "written_ahead": [], "remarks": []}
    texts = dict.fromkeys(("reason", "error", "model", "notes"), "")
    spent = {"calls": 0, "credits": 0, "cost_usd": None, "input_tokens": 0, "output_tokens": 0}
    left = {**AgentState(tick=1, status="failed").as_json(), **state}
    given_up = {"type": "turn_committed", "agent": "bob", "status": "failed", "duration_ms": 0}
    return {**given_up, **nothing, **texts, **spent, "state": left}


def test_an_entry_that_is_not_past_its_retention_is_not_removed(interrupted: Path) -> None:
    file = "agents/ada/outbox/00000000_0123456789ab.json"
    fs.write_atomic(interrupted, file, b"{}")
    add(interrupted, type="entries_expired", files=[file])
    assert go_on(interrupted)["status"] == "done"
    assert (interrupted / file).exists()


@pytest.mark.parametrize("unread", [{}, {"unread": {"ghost": 5}}])
def test_expired_entries_are_told_of_to_agents_that_are_there_only(interrupted: Path, unread: dict[str, Any]) -> None:
    add(interrupted, type="entries_expired", files=[], unread_in_all={"ghost": 5, "bob": 2}, **unread)
    assert go_on(interrupted)["status"] == "done"
    assert not (interrupted / "agents/ghost").exists()
    assert read_state(interrupted, "bob").expired_unread == 2


@pytest.mark.parametrize("boot", ["first", "second"])
@pytest.mark.parametrize(
    "state",
    [
        {"credits": 1e308}, {"credits": -1}, {"input_tokens": 10**30}, {"passed_on": 1e300}, {"tick": 999},
        {"cost_usd": 1e13}, {"expired_unread": 10**4000}, {"tick": -5},
    ],
)  # fmt: skip
def test_a_state_that_no_ledger_may_hold_is_refused(interrupted: Path, state: dict[str, Any], boot: str) -> None:
    add(interrupted, **ended(state))
    before = tree(interrupted)
    with pytest.raises(CorruptState, match=next(iter(state))):
        run_once(interrupted, clock=FrozenClock(boot_id=boot))
    assert tree(interrupted) == before


def test_credits_passed_on_beyond_any_amount_are_refused(interrupted: Path) -> None:
    change(interrupted, "tool_finished", lambda record: record.update(passed_on=1e308))
    with pytest.raises(CorruptState, match="passed_on"):
        run_once(interrupted)
