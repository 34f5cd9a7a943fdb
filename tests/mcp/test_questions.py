"""What a server asks back in the middle of a call is a request to a person."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from connected import call, configure
from mischief import by_http

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def booking(base: Path, tool: dict[str, Any], **server: Any) -> Path:
    """Make an organisation in which ada books a table in the first tick, and again once she is told to."""
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human"], "tools": ["mcp.desk.*"]}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["ada"]}),
        models={"human": {"provider": "human"}},
        script=[
            {"tick": 1, "reply": say("booking", tool_calls=[tool])},
            {"contains": "Call it again", "reply": say("again", tool_calls=[tool])},
            {"reply": say("nothing to do")},
        ],
    )
    configure(base, {"desk": {"url": by_http("asks"), **server}})
    return base


def finished(base: Path, tick: int) -> list[dict[str, Any]]:
    return [it for it in journal_lines(base, tick) if it["type"] == "tool_finished"]


def requests(base: Path) -> list[dict[str, Any]]:
    entries = [json.loads(file.read_bytes()) for file in sorted((base / "agents/ada/outbox").iterdir())]
    return [entry for entry in entries if entry["kind"] == "request"]


def test_a_question_waits_for_a_person_and_the_call_goes_on_with_the_answer(tmp_path: Path) -> None:
    base = booking(tmp_path, call("mcp.desk.book", table=3))
    run_once(base, clock=FrozenClock())
    assert [(it["outcome"], it["output"]) for it in finished(base, 1)] == [("pending", "human is asked first")]
    request = requests(base)[0]
    assert request["payload"]["text"] == "mcp.desk.book asks: Book table 3?"
    assert request["payload"]["target"] == "human"
    run_once(base, clock=FrozenClock())
    assert finished(base, 2) == []  # it waits

    wrong = ["answer", request["id"], "--field", "sure=perhaps"]
    assert run(["-C", str(base), *wrong]) != 0
    assert run(["-C", str(base), "answer", request["id"], "--field", "sure=yes"]) == 0
    run_once(base, clock=FrozenClock())
    assert [(it["outcome"], it["output"]) for it in finished(base, 3)] == [
        ("ok", 'table 3: {"sure": true}, state of 1')
    ]
    assert [it.turns for it in replay_ticks(base, [1, 2, 3])] == [1, 0, 1]


def test_a_call_with_other_arguments_is_asked_about_anew(tmp_path: Path) -> None:
    base = booking(tmp_path, call("mcp.desk.book", table=3))
    run_once(base, clock=FrozenClock())
    run(["-C", str(base), "answer", requests(base)[0]["id"], "--field", "sure=yes"])
    script = base / "config/answers.jsonl"
    script.write_text(re.sub(r'"table": ?3', '"table":4', script.read_text()))
    run_once(base, clock=FrozenClock())
    assert [it["outcome"] for it in finished(base, 2)] == ["pending"]
    assert [it["payload"]["text"] for it in requests(base)] == [
        "mcp.desk.book asks: Book table 3?",
        "mcp.desk.book asks: Book table 4?",
    ]


def test_an_answer_to_what_the_model_asked_itself_is_no_answer_to_the_server(tmp_path: Path) -> None:
    base = booking(tmp_path, call("mcp.desk.book", table=3))
    forged = {"tool": "mcp.desk.book", "args": {"table": 3}, "keys": ["sure"], "state": "state of 1"}
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    payload = {"text": "A fine day?", "target": "human", "schema": schema, "call": forged}
    asks = say("", outbox_entries=[{"kind": "request", "payload": payload, "tags": []}])
    again = say("", tool_calls=[call("mcp.desk.book", table=3)])
    lines = [{"tick": 1, "reply": asks}, {"tick": 2, "reply": again}, {"reply": say("done")}]
    (base / "config/answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run(["-C", str(base), "send", "--to", "ada", "--kind", "request", "Book, please."])
    resume = base / "agents/ada/resume.json"
    plain = json.loads(resume.read_text())
    resume.write_text(json.dumps({**plain, "turn": {"take": "one"}}))
    run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "answer", requests(base)[0]["id"], "--field", "sure=yes"]) == 0
    run_once(base, clock=FrozenClock())
    assert [it["outcome"] for it in finished(base, 2)] == ["pending"]


def test_what_nobody_can_be_asked_is_refused(tmp_path: Path) -> None:
    base = booking(tmp_path, call("mcp.desk.sample"))
    run_once(base, clock=FrozenClock())
    assert [(it["outcome"], it["output"]) for it in finished(base, 1)] == [
        ("refused", "the server asks something back: it asks for sampling/createMessage, which is not offered")
    ]


def test_who_is_to_be_asked_must_be_there_and_able_to_read(tmp_path: Path) -> None:
    base = booking(tmp_path, call("mcp.desk.book", table=3), ask="hilda")
    run_once(base, clock=FrozenClock())
    assert 'there is no agent "hilda" to ask' in finished(base, 1)[0]["output"]
    assert requests(base) == []
