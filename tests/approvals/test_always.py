"""What blocks is looked at before anybody is asked; "always" ends the asking of one gate and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, Ring, edit, finished, lemming, make, requests, ring, tick

from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import parse
from lemming.testing import say

RINGS = {"at": "call", "tool": "ring"}
ASKS = {**RINGS, "then": "ask", "because": "it is loud"}
LOUD = {**RINGS, "deny": ["LOUD"], "then": "block", "because": "nobody shouts"}


def rings_always(base: Path, *texts: str, **more: Any) -> Path:
    """Make an organisation in which ada makes one call in each tick, the last of them from then on."""
    script = [
        {"tick": number, "step": 0, "reply": say("calling", tool_calls=[ring(text)])}
        for number, text in enumerate(texts, 1)
    ]
    return make(base, script=[*script, {"reply": say("")}], schedule={"run_every_n_ticks": 1}, **more)


@pytest.mark.parametrize("then", ["block", "stop"])
@pytest.mark.parametrize("place", ["before", "behind", "in the resume"])
def test_nobody_is_asked_about_what_a_gate_blocks(tmp_path: Path, place: str, then: str) -> None:
    block = {**LOUD, "then": then}
    gates = {"before": [block, ASKS], "behind": [ASKS, block], "in the resume": [ASKS]}[place]
    own = [block] if place == "in the resume" else []
    base = make(tmp_path, ring("LOUD"), gates=gates)
    edit(base, "agents/ada/resume.json", gates=own)
    tick(base)
    assert requests(base) == []
    ((outcome, output),) = finished(base, 1)
    assert outcome == "refused"
    assert "nobody shouts" in output
    assert [it.turns for it in replay_ticks(base, [1])] == [1]


def test_always_ends_the_asking_and_what_blocks_behind_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"at": "call", "tool": "ring", "then": "ask", "deny": ["twice"], "because": "not so often"}
    base = rings_always(tmp_path, "once", "once", "LOUD", "LONG", "twice", gates=[ASKS, LOUD])
    edit(base, "agents/ada/resume.json", gates=[{**LOUD, "deny": ["LONG"]}, limits])
    tick(base)
    capsys.readouterr()
    assert lemming(base, "approve", "1/ada/0", "--for", "tool") == 0
    told = capsys.readouterr().err
    assert 'config/org.json#/gates/0 has "approved": {"ada": ["ring"]} now' in told
    assert "gates that block, other gates that ask, and limits hold as before" in told
    assert 'take "ring" out at config/org.json#/gates/0/approved/ada' in told
    written = parse((base / "config/org.json").read_bytes())["gates"]
    assert written == [{**ASKS, "approved": {"ada": ["ring"]}}, LOUD]
    tick(base)
    assert Ring.rung == ["once", "once"]
    for number in (3, 4):
        tick(base)
        assert [outcome for outcome, _ in finished(base, number)] == ["refused"]
    tick(base)  # the resume's own gate asks all the same, and its "always" is written where it stands
    assert [outcome for outcome, _ in finished(base, 5)] == ["pending"]
    assert lemming(base, "approve", "5/ada/0", "--for", "tool") == 0
    own = parse((base / "agents/ada/resume.json").read_bytes())["gates"]
    assert own[1] == {**limits, "approved": {"ada": ["ring"]}}
    assert Ring.rung == ["once", "once"]
    assert lemming(base, "validate") == 0
    assert [it.turns for it in replay_ticks(base, [1, 2, 3, 4, 5])] == [1] * 5


def test_always_writes_nothing_where_the_gate_that_asked_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make(tmp_path, ring(), gates=[ASKS])
    tick(base)
    edit(base, "config/org.json", gates=[LOUD])
    assert lemming(base, "approve", "1/ada/0", "--for", "tool") == 2
    assert "config/org.json#/gates/0 does not ask about ring any more" in capsys.readouterr().err
    assert parse((base / "config/org.json").read_bytes())["gates"] == [LOUD]
    assert not [*(base / "agents/human/outbox").glob("*.json")]


def test_two_gates_that_ask_are_one_approval_of_a_person_whom_both_hear(tmp_path: Path) -> None:
    gates = [{**ASKS, "persons": ["eve", "human"]}, {**ASKS, "persons": ["human"], "because": "it is late"}]
    base = make(tmp_path / "both", ring(), people=("eve", "human"), gates=gates)
    tick(base)
    (request,) = requests(base)
    assert request.payload["target"] == "human"
    assert "asks because it is loud; it is late" in request.payload["text"]
    lemming(base, "approve", request.id)
    tick(base)
    assert Ring.rung == ["once"]
    apart = [{**ASKS, "persons": ["eve"]}, {**ASKS, "persons": ["human"]}]
    base = make(tmp_path / "apart", ring(), people=("eve", "human"), gates=apart)
    tick(base)
    assert "no person is named by all of these gates" in finished(base, 1)[0][1]


def test_the_person_sees_the_call_as_gates_behind_the_one_that_asks_rewrite_it(tmp_path: Path) -> None:
    hides = {**RINGS, "redact": ["[0-9]+"], "then": "rewrite"}
    base = make(tmp_path, ring("call 112"), gates=[ASKS, hides])
    tick(base)
    assert requests(base)[0].payload["call"]["args"] == {"text": "call [redacted]"}
    lemming(base, "approve", "1/ada/0")
    tick(base)
    assert Ring.rung == ["call [redacted]"]


def test_an_approval_for_always_is_of_gates_that_ask_at_calls(tmp_path: Path) -> None:
    base = make(tmp_path, ring(), gates=[{**ASKS, "then": "block", "approved": {"ada": ["ring"]}}])
    assert lemming(base, "validate") != 0
    for approved, status in (({"ada": ["ring"], "gone": ["ring"]}, 0), ({"ada": ["shell"]}, 3), ({"ada": ["rign"]}, 3)):
        edit(base, "config/org.json", gates=[{**ASK, "approved": approved}])
        assert lemming(base, "validate") == status


def test_nobody_is_asked_about_an_entry_that_a_gate_blocks(tmp_path: Path) -> None:
    report = {"field": "kind", "op": "is", "value": "report"}
    ask = {"at": "out", "when": report, "then": "ask"}
    block = {"at": "out", "deny": ["ferry"], "then": "block", "because": "no ferries"}
    news = say("", outbox_entries=[{"kind": "report", "payload": {"text": "the ferry"}, "tags": []}])
    base = make(tmp_path, gates=[ask, block], script=[{"tick": 1, "reply": news}, {"reply": say("seen")}])
    turn = tick(base)
    assert turn
    assert requests(base) == []
    assert [it["then"] for it in turn.verdicts] == ["block"]


def test_nobody_is_asked_to_let_in_what_a_gate_blocks(tmp_path: Path) -> None:
    ask = {"at": "in", "when": {"field": "from", "op": "is", "value": "web"}, "then": "ask"}
    block = {"at": "in", "deny": ["rude"], "then": "block", "because": "rude"}
    base = make(tmp_path, gates=[ask, block], people=("human", "web"))
    for text in ("a rude word", "a kind word"):
        assert lemming(base, "send", "--as", "web", "--to", "ada", text) == 0
    tick(base)
    tick(base)
    (request,) = requests(base)
    entry = request.payload["call"]["args"]["entry"]
    author, _, name = entry.partition("/")
    assert "a kind word" in (base / f"agents/{author}/outbox/{name}.json").read_text()
