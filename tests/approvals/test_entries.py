"""An entry that needs approval waits for a person, and is written once, as it was shown."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from approvals_org import by_hand, edit, kept_calls, lemming, make, requests, shown, tick

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import say

ASK = {"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "ask", "because": "it is news"}
LINE = "config/org.json#/gates/0"
NEWS: dict[str, Any] = {"tick": 1, "step": 0, "reply": say("the ferry is late", kind="report")}


def org(base: Path, **more: Any) -> Path:
    script = more.pop("script", [NEWS, {"reply": say("seen")}])
    return make(base, gates=more.pop("gates", [ASK]), script=script, **more)


def written(base: Path) -> list[str]:
    return [it.payload["text"] for it in read_outbox_entries(base, "ada") if it.kind == "report"]


def test_an_entry_waits_and_is_written_once_it_is_approved(tmp_path: Path) -> None:
    base = org(tmp_path)
    turn = tick(base)
    assert turn
    assert (turn.status, turn.end) == ("waiting", "waits")
    assert [it["then"] for it in turn.verdicts] == ["ask"]
    (request,) = requests(base)
    shown = request.payload["call"]
    assert (shown["tool"], shown["id"], shown["gate"]) == ("publish", "1/ada/0", LINE)
    assert shown["args"] == {"kind": "report", "payload": {"text": "the ferry is late"}, "tags": []}
    assert tick(base) is None
    assert written(base) == []
    assert lemming(base, "approve", request.id) == 0
    assert tick(base)
    assert written(base) == ["the ferry is late"]
    assert lemming(base, "approve", request.id) != 0
    tick(base)
    assert written(base) == ["the ferry is late"]
    assert [it.tick for it in replay_ticks(base, [1, 3])] == [1, 3]


def test_a_draft_that_is_written_again_is_asked_about_again(tmp_path: Path) -> None:
    """The question about the first draft went with it, so that nobody would have been asked."""
    judged = {"contains": "Judge the draft"}
    verdicts = [{**judged, "step": 1, "reply": {"passes": False, "reason": "once more"}}]
    verdicts.append({**judged, "reply": {"passes": True, "reason": ""}})
    news = {key: NEWS[key] for key in ("tick", "reply")}
    base = org(tmp_path, script=[*verdicts, news, {"reply": say("seen")}], verify={"by": {"model": "scripted"}})
    turn = tick(base)
    assert turn
    assert turn.reason == "waits for human"
    (request,) = requests(base)
    assert lemming(base, "approve", request.id) == 0
    assert tick(base)
    assert written(base) == ["the ferry is late"]
    assert [it.tick for it in replay_ticks(base, [1, 2])] == [1, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["deny", "--reason", "old news"], "DENIED by human: old news"),
        (["answer", "it was told by phone"], "it was told by phone"),
    ],
    ids=["no", "an answer in its place"],
)  # fmt: skip
def test_a_no_and_an_answer_are_told_and_nothing_is_written(tmp_path: Path, words: list[str], told: str) -> None:
    base = org(tmp_path)
    tick(base)
    (request,) = requests(base)
    command, *rest = words
    assert lemming(base, command, request.id, *rest) == 0
    tick(base)
    assert written(base) == []
    journal = "".join(file.read_text() for file in (base / "logs/ticks").glob("*.jsonl"))
    assert told in journal


def test_the_ledger_says_what_is_written_and_not_the_request(tmp_path: Path) -> None:
    base = org(tmp_path)
    tick(base)
    (request,) = requests(base)
    file = base / request.file
    file.write_text(file.read_text().replace("the ferry is late", "the ferry has sunk"))
    assert lemming(base, "approve", request.id) == 0
    turn = tick(base)
    assert turn
    assert written(base) == ["the ferry is late"]
    assert any("shows another call" in remark for remark in turn.remarks)


def test_what_is_edited_is_written_as_edited_if_it_is_an_entry(tmp_path: Path) -> None:
    base = org(tmp_path)
    tick(base)
    (request,) = requests(base)
    assert lemming(base, "approve", request.id, "--edit", 'payload={"text": "the ferry is a little late"}') == 0
    tick(base)
    assert written(base) == ["the ferry is a little late"]


@pytest.mark.parametrize(
    "edited", [{"mood": "glad"}, {"kind": "rumour"}, {"payload": "late"}, {"tags": [3]}], ids=lambda it: next(iter(it))
)
def test_what_a_person_edits_into_no_entry_is_not_written(tmp_path: Path, edited: dict[str, Any]) -> None:
    base = org(tmp_path)
    tick(base)
    (request,) = requests(base)
    args = {**request.payload["call"]["args"], **edited}
    by_hand(base, "human", 2, "yes", reply_to=request.id, target="ada", decision="approve", args=args)
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert "not written: it needs a kind, a payload" in (base / "logs/ticks/00000002.jsonl").read_text()
    assert written(base) == []


def test_what_blocks_by_then_holds(tmp_path: Path) -> None:
    base = org(tmp_path)
    tick(base)
    (request,) = requests(base)
    assert lemming(base, "approve", request.id) == 0
    block = {"at": "out", "deny": ["ferry"], "then": "block"}
    settings = json.loads((base / "config/org.json").read_text())
    fs.write_atomic(base, "config/org.json", dump_pretty({**settings, "gates": [ASK, block]}))
    turn = tick(base)
    assert turn
    assert [it["then"] for it in turn.verdicts] == ["block"]
    assert written(base) == []


def test_without_a_person_it_is_refused_and_the_same_twice_is_one_request(tmp_path: Path) -> None:
    base = org(tmp_path / "nobody", people=())
    turn = tick(base)
    assert turn
    assert turn.status == "waiting"
    assert "no person here" in read_state(base, "ada").results[0]["output"]
    twice = say("the ferry is late", kind="report")
    twice["outbox_entries"] *= 2
    base = org(tmp_path / "twice", script=[{"tick": 1, "step": 0, "reply": twice}, {"reply": say("seen")}])
    tick(base)
    (request,) = requests(base)
    assert lemming(base, "approve", request.id) == 0
    tick(base)
    assert written(base) == ["the ferry is late"]


def test_what_was_approved_once_is_asked_about_when_it_is_said_again(tmp_path: Path) -> None:
    base = org(tmp_path, script=[NEWS, {**NEWS, "tick": 2}, {"reply": say("seen")}])
    tick(base)
    assert lemming(base, "approve", requests(base)[0].id) == 0
    tick(base)
    assert written(base) == ["the ferry is late"]
    assert [it.tick for it in requests(base)] == [1, 2]


def test_the_answer_to_a_request_waits_and_is_the_answer_once_it_is_approved(tmp_path: Path) -> None:
    gate = {"at": "out", "when": {"field": "kind", "op": "is", "value": "response"}, "then": "ask"}
    base = org(tmp_path, gates=[gate], script=[{"reply": say("forty-two", kind="response")}], turn={"take": "one"})
    assert lemming(base, "send", "--to", "ada", "--kind", "request", "how many?") == 0
    tick(base)
    request = next(it for it in requests(base) if "call" in it.payload)
    assert lemming(base, "approve", request.id) == 0
    turn = tick(base)
    assert turn
    assert turn.calls == 0
    answers = [it.payload for it in read_outbox_entries(base, "ada") if it.kind == "response"]
    assert [(it["text"], it["target"]) for it in answers] == [("forty-two", "human")]
    assert tick(base) is None


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def with_chart(base: Path, content: bytes = b"first", **more: Any) -> Path:
    """Make an organisation whose agent writes news that a chart goes with."""
    payload = {"text": "the ferry is late", "attachments": [{"path": "shared/c.png"}]}
    news = say("", outbox_entries=[{"kind": "report", "payload": payload, "tags": []}])
    script = [{**NEWS, "reply": news}, {"reply": say("seen")}]
    may = {"read_outboxes": ["human"], "tools": ["attach"], "file_access": {"allow_read": ["./shared"]}}
    made = org(base, script=script, permissions=may, **more)
    fs.write_atomic(made, "shared/c.png", content)
    return made


def charts(base: Path) -> list[Any]:
    return [it.payload["attachments"] for it in read_outbox_entries(base, "ada") if it.kind == "report"]


def test_what_goes_with_an_entry_is_bound_and_stands_in_it_once_it_is_approved(tmp_path: Path) -> None:
    base = with_chart(tmp_path)
    tick(base)
    (request,) = requests(base)
    assert request.payload["call"]["binds"] == {"shared/c.png": digest(b"first")}
    assert kept_calls(base) == [request.payload["call"]]
    assert lemming(base, "approve", request.id) == 0
    assert tick(base)
    assert charts(base) == [[{"path": "shared/c.png", "sha256": digest(b"first")}]]
    assert '"tool":"attach"' not in shown(base, 2)
    assert [it.tick for it in replay_ticks(base, [1, 2])] == [1, 2]


def test_an_entry_is_asked_about_again_when_what_goes_with_it_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = with_chart(tmp_path)
    tick(base)
    (request,) = requests(base)
    assert lemming(base, "approve", request.id) == 0
    fs.write_atomic(base, "shared/c.png", b"second")
    turn = tick(base)
    assert turn
    assert (turn.status, charts(base)) == ("waiting", [])
    again = requests(base)[-1]
    assert again.payload["call"]["binds"] == {"shared/c.png": digest(b"second")}
    assert again.payload["text"].endswith("; shared/c.png changed since it was approved")
    assert lemming(base, "approvals", again.id) in (0, 1)
    assert digest(b"second") in capsys.readouterr().out
    assert lemming(base, "approve", again.id) == 0
    tick(base)
    assert charts(base) == [[{"path": "shared/c.png", "sha256": digest(b"second")}]]
    assert [it.tick for it in replay_ticks(base, [1, 2, 3])] == [1, 2, 3]


def test_where_no_gate_asks_any_more_what_has_changed_goes_with_it_as_it_is(tmp_path: Path) -> None:
    base = with_chart(tmp_path)
    tick(base)
    (request,) = requests(base)
    assert lemming(base, "approve", request.id) == 0
    fs.write_atomic(base, "shared/c.png", b"second")
    edit(base, "config/org.json", gates=[{**ASK, "when": {"field": "kind", "op": "is", "value": "status"}}])
    tick(base)
    assert charts(base) == [[{"path": "shared/c.png", "sha256": digest(b"second")}]]


def test_what_is_edited_is_bound_to_the_files_that_it_named_before(tmp_path: Path) -> None:
    base = with_chart(tmp_path)
    tick(base)
    (request,) = requests(base)
    edited = 'payload={"text": "late", "attachments": [{"path": "shared/c.png"}]}'
    assert lemming(base, "approve", request.id, "--edit", edited) == 0
    fs.write_atomic(base, "shared/c.png", b"second")
    tick(base)
    assert charts(base) == []
    assert "changed since it was approved" in requests(base)[-1].payload["text"]


def test_two_gates_that_ask_about_an_entry_need_a_person_whom_both_name(tmp_path: Path) -> None:
    gates = [{**ASK, "persons": ["eve", "human"]}, {**ASK, "persons": ["human"], "because": "it is late"}]
    base = org(tmp_path / "both", people=("eve", "human"), gates=gates)
    tick(base)
    (request,) = requests(base)
    assert request.payload["target"] == "human"
    assert "asks because it is news; it is late" in request.payload["text"]
    lemming(base, "approve", request.id)
    tick(base)
    assert written(base) == ["the ferry is late"]
    apart = [{**ASK, "persons": ["eve"]}, {**ASK, "persons": ["human"]}]
    base = org(tmp_path / "apart", people=("eve", "human"), gates=apart)
    tick(base)
    assert (requests(base), written(base)) == ([], [])


def test_gates_about_tags_and_text_of_an_entry_need_a_person_whom_both_name(tmp_path: Path) -> None:
    tagged = {"at": "out", "deny": ["urgent"], "then": "ask", "persons": ["human"]}
    reply = say("", outbox_entries=[{"kind": "report", "payload": {"text": "late"}, "tags": ["urgent"]}])
    base = org(tmp_path, people=("eve", "human"), gates=[ASK, tagged], script=[{"tick": 1, "reply": reply}])
    tick(base)
    assert requests(base)[0].payload["target"] == "human"


def test_a_gate_that_names_others_by_then_asks_them_as_well(tmp_path: Path) -> None:
    base = org(tmp_path, people=("eve", "human"), gates=[{**ASK, "persons": ["eve"]}])
    tick(base)
    by_hand(base, "eve", 1, "yes", reply_to=requests(base)[0].id, target="ada", decision="approve")
    edit(base, "config/org.json", gates=[{**ASK, "persons": ["eve"]}, {**ASK, "persons": ["human"]}])
    tick(base)
    assert written(base) == []
    again = requests(base)[-1]
    assert again.payload["target"] == "human"
    by_hand(base, "human", 2, "too", reply_to=again.id, target="ada", decision="approve")
    tick(base)
    assert written(base) == ["the ferry is late"]
