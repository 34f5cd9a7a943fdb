"""What people type about calls that wait for approval, and what `validate` says of gates that ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, LINE, Ring, edit, finished, lemming, make, requests, ring, tick

from lemming.kernel.base.jsontext import parse
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import say


def gates(base: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parse((base / "config/org.json").read_bytes())["gates"]
    return found


def test_for_tool_is_written_into_the_gate_that_asked_and_taking_it_out_asks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [{"step": 0, "reply": say("calling", tool_calls=[ring()])}]
    base = make(tmp_path, script=script, schedule={"run_every_n_ticks": 1})
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--for", "tool") == 0
    assert "config/org.json#/gates/0" in capsys.readouterr().err
    assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]
    tick(base)
    assert Ring.rung == ["once", "once"]
    assert len(requests(base)) == 1
    edit(base, "config/org.json", gates=[ASK])
    tick(base)
    assert len(requests(base)) == 2


def test_for_tool_that_was_cut_off_after_the_decision_is_finished_by_the_same_again(tmp_path: Path) -> None:
    base = make(tmp_path, ring())
    tick(base)
    assert lemming(base, "approve", "1/ada/0") == 0
    for _ in range(2):
        assert lemming(base, "approve", "1/ada/0", "--for", "tool") == 0
        assert gates(base) == [{**ASK, "approved": {"ada": ["ring"]}}]
    tick(base)
    assert Ring.rung == ["once"]


def test_all_of_one_tool_are_listed_first_and_approved_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = {"tool": "file_write", "args": {"path": "a.txt", "content": "a"}}
    base = make(tmp_path, ring("a"), ring("b"), write)
    tick(base)
    assert lemming(base, "approve", "--all") == 2
    assert lemming(base, "approve", "--all", "--tool", "rings") == 2
    capsys.readouterr()
    assert lemming(base, "approve", "--all", "--tool", "ring", "--yes") == 0
    said = capsys.readouterr().out
    assert "argument text:\n  | a\n" in said
    assert "argument text:\n  | b\n" in said
    assert [item.call["tool"] for item in list_person_inbox(base) if item.call] == ["file_write"]
    assert lemming(base, "deny", "1/ada/2") == 0
    tick(base)
    assert Ring.rung == ["a", "b"]


def test_one_list_has_all_that_waits_and_its_exit_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = {"kind": "request", "payload": {"text": "which one?", "target": "human"}, "tags": []}
    reply = say("", outbox_entries=[asks], tool_calls=[ring()])
    base = make(tmp_path, script=[{"tick": 1, "reply": reply}, {"reply": say("seen")}])
    assert lemming(base, "approvals") == 0
    tick(base)
    capsys.readouterr()
    assert lemming(base, "approvals", "--json") == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"][:10] for line in lines] == ["which one?", 'ring: {"te']
    assert [line.get("call", {}).get("id") for line in lines] == [None, "1/ada/0"]
    assert lemming(base, "approve", lines[0]["id"]) == 2
    assert "the request asks for an answer, not for approval" in capsys.readouterr().err
    lemming(base, "status")
    assert "waits for approval: ring\n" in capsys.readouterr().out
    lemming(base, "status", "--json")
    lines = json.loads(capsys.readouterr().out)["agents"]
    assert {it["agent"]: it["waits"] for it in lines if it["waits"]} == {"ada": "waits for approval: ring"}
    for command in ("status", "plan"):
        lemming(base, command)
        assert "2 requests wait for human" in capsys.readouterr().out


def test_one_whole_shows_the_exact_call_what_it_is_bound_to_and_what_it_would_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, {"tool": "file_write", "args": {"path": "a.txt", "content": "one\n"}})
    tick(base)
    capsys.readouterr()
    assert lemming(base, "approvals", "1/ada/0") == 1
    said = capsys.readouterr().out
    for part in ("1/ada/0", "it is loud", LINE, "agents/ada/workspace/a.txt (missing)", "+one"):
        assert part in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["approve"], "no call is named"),
        (["approve", "1/ada/0", "--all"], "ID and --all exclude"),
        (["approve", "9/ada/0"], "no call 9/ada/0 waits for approval"),
        (["approve", "1/ada/0", "--edit", "text"], "has no value"),
        (["approve", "1/ada/0", "--for", "ever"], 'got "ever"'),
        (["approve", "--ahead", "ada", "ring", "[]"], "ARGS must be a JSON object"),
        (["answer", "1/ada/0"], "the answer is empty"),
        (["answer", "1/ada/0", "--field", "decision=perhaps"], "decision"),
        (["deny", "1/ada/0", "--as", "ada"], "ada is not a person"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_decided(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, ring())
    tick(base)
    assert lemming(base, *words) == 2
    assert said in capsys.readouterr().err
    assert len(list_person_inbox(base)) == 1


def test_nobody_edits_a_call_to_reach_further_than_its_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = {"tool": "file_write", "args": {"path": "a.txt", "content": "a"}}
    access = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace"]}
    may = {"read_outboxes": ["human"], "tools": ["file_write"], "file_access": access}
    base = make(tmp_path, write, permissions=may)
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--edit", "path=shared/a.txt") == 2
    assert "refused by permissions.file_access.allow_write" in capsys.readouterr().err
    assert lemming(base, "approve", "1/ada/0", "--edit", "path=b.txt") == 0


def test_who_approved_is_told_of_the_tick_and_of_what_the_call_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, {"tool": "file_write", "args": {"path": "a.txt", "content": "one\n"}})
    tick(base)
    lemming(base, "approve", "1/ada/0")
    tick(base)
    capsys.readouterr()
    lemming(base, "tick", "2")
    assert "(approved by human: human/00000002_" in capsys.readouterr().out
    lemming(base, "why", "agents/ada/workspace/a.txt")
    assert "approved by human: human/00000002_" in capsys.readouterr().out


def test_a_plan_that_is_proposed_is_approved_with_the_same_command(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"decision": {"enum": ["approve", "reject"]}, "reasons": {"type": "string"}},
        "required": ["decision"],
    }
    payload = {"text": "Approve this plan?", "target": "human", "schema": schema}
    asks = say("", outbox_entries=[{"kind": "request", "payload": payload, "tags": []}])
    base = make(tmp_path, script=[{"tick": 1, "reply": asks}, {"reply": say("seen")}])
    tick(base)
    assert lemming(base, "deny", requests(base)[0].id, "--reason", "too long") == 0
    (file,) = (base / "agents/human/outbox").iterdir()
    said = json.loads(file.read_text())["payload"]
    assert (said["decision"], said["reasons"]) == ("reject", "too long")


def test_validate_names_persons_there_are_not_and_lines_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, ring(), gates=[{**ASK, "persons": ["hunam"]}])
    assert lemming(base, "validate") != 0
    said = capsys.readouterr().err
    assert 'there is no person "hunam"' in said
    assert '"human"' in said
    edit(base, "config/org.json", gates=[ASK])
    assert lemming(base, "validate") == 0
    edit(base, "agents/human/resume.json", permissions={"read_outboxes": []})
    assert lemming(base, "validate") != 0
    said = capsys.readouterr().err
    assert "human may not read ada: the call is refused" in said
    assert "ada may not read human" not in said
    assert 'add "ada" to its read_outboxes' in said


def test_validate_says_where_nobody_could_approve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = make(tmp_path, ring(), people=())
    assert lemming(base, "validate") != 0
    assert "there is no person who can approve" in capsys.readouterr().err


def test_hiring_needs_agreement_where_a_gate_says_so(tmp_path: Path) -> None:
    hire = {"tool": "create_agent", "args": {"name": "bob", "title": "Bob", "instructions": "You are bob."}}
    hire["args"]["model_key"] = "scripted"
    may = {"read_outboxes": ["human"], "tools": ["create_agent"]}
    administers = {"at": "call", "class": "administer", "then": "ask"}
    org = {"create_agent_allowed": ["ada"]}
    base = make(tmp_path, hire, permissions=may, gates=[administers], org=org, credits={"max_credits": 9})
    tick(base)
    assert finished(base, 1)[0][0] == "pending"
    assert not (base / "agents/bob").exists()
    assert '"name": "bob"' in requests(base)[0].payload["call"]["diff"]
    assert lemming(base, "approve", "1/ada/0") == 0
    tick(base)
    assert finished(base, 2)[0][0] == "ok"
    assert (base / "agents/bob/resume.json").exists()
