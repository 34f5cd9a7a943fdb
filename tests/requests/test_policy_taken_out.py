"""Requests and approvals are records of the organisation: screens show them where the policies are deleted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_taken_out import PEOPLE, python, without

from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume

SCREENS = """
import contextlib, io, json, sys
from lemming.cli import run
from lemming.queries.views.view_registry import build_view

def typed(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = run(["-C", sys.argv[1], *words])
    return status, out.getvalue(), err.getvalue()

screens = {words: typed(*words.split()) for words in ("requests --json", "waiting --json", "requests", "waiting")}
call = next(item["id"] for item in map(json.loads, screens["waiting --json"][1].splitlines()) if "call" in item)
screens["the call"] = typed("waiting", call)
print(json.dumps([screens, [build_view(sys.argv[1], name) for name in ("waiting", "feed")]]))
"""
PATH = "./workspace/plan.txt"
CALL = {"tool": "file_write", "args": {"path": PATH, "content": "x"}}
QUESTION = {"kind": "request", "payload": {"text": "May I go home?", "target": "human"}}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation in which a person owes an answer, and a decision about a call."""
    gates = [{"at": "call", "tool": "file_write", "then": "ask"}]
    reads = {"read_outboxes": ["*"]}
    agents = [
        resume("ada", gates=gates, permissions={**reads, "tools": ["file_write"]}),
        resume("human", model={"key": "human"}, permissions=reads),
    ]
    script = [{"tick": 1, "reply": {"tool_calls": [CALL], "outbox_entries": [QUESTION]}}]
    base = make_org(tmp_path_factory.mktemp("owed") / "org", *agents, models=PEOPLE, script=script)
    run_once(base, clock=FrozenClock())
    return base


def lemming(place: Path, base: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(place, "-m", "lemming", "-C", str(base), *arguments)


def list_items(text: str) -> list[dict[str, Any]]:
    """Return the items of a person's inbox that `lemming waiting --json` printed, those with a call last."""
    return sorted(map(json.loads, text.splitlines()), key=lambda item: "call" in item)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["approvals", "requests"])
def test_screens_show_the_same_obligations_without_the_policy(base: Path, tmp_path: Path, name: str) -> None:
    here, there = without("embedded", tmp_path / "here"), without(name, tmp_path / "there")
    shown, left = (python(place, "-c", SCREENS, str(base)) for place in (here, there))
    assert left.returncode == 0, left.stderr
    assert json.loads(left.stdout) == json.loads(shown.stdout)
    screens, views = json.loads(left.stdout)
    question, call = list_items(screens["waiting --json"][1])
    assert (question["text"], question["person"]) == ("May I go home?", "human")
    assert call["call"]["args"]["path"] == PATH
    assert PATH in screens["the call"][1]
    assert "May I go home?" in json.dumps(views)
    assert PATH in json.dumps(views)


@pytest.mark.parametrize(("name", "command"), [("approvals", "approve"), ("requests", "answer")])
def test_an_answer_that_no_policy_takes_up_is_refused(base: Path, tmp_path: Path, name: str, command: str) -> None:
    place = without(name, tmp_path)
    question, call = list_items(lemming(place, base, "waiting", "--json").stdout)
    refused = lemming(place, base, command, (call if command == "approve" else question)["id"])
    assert refused.returncode != 0
    assert f'the capability "{name}" is not installed' in refused.stderr
    assert [*base.glob("agents/human/outbox/*")] == []
