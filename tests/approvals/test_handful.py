"""One turn asks a person a handful of things; they are refused together, and count for nobody's limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from leave_org import ASK, Ring, finished, lemming, make, requests, ring, tick

from lemming.testing import say
from lemming.timeline.replay.replay import replay
from lemming.tools import ToolRegistry


@pytest.fixture(autouse=True)
def _bell() -> None:
    Ring.rung.clear()
    ToolRegistry.register(Ring())


def test_one_turn_asks_a_handful_and_the_rest_is_refused(tmp_path: Path) -> None:
    base = make(tmp_path, *(ring(str(number)) for number in range(9)))
    tick(base)
    assert [outcome for outcome, _ in finished(base, 1)] == ["pending"] * 5 + ["refused"] * 4
    assert "asks persons to approve 5 things already" in finished(base, 1)[5][1]
    assert len(requests(base)) == 5
    assert [it.turns for it in replay(base, [1])] == [1]
    for request in requests(base):
        lemming(base, "approve", request.id)
    tick(base)
    assert Ring.rung == list("01234")


def test_of_entries_one_turn_asks_a_handful_too(tmp_path: Path) -> None:
    reports = say("", outbox_entries=[{"kind": "report", "payload": {"text": str(n)}} for n in range(4)])
    gates = [{"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "ask"}, ASK]
    reply = {**reports, "tool_calls": [ring()]}
    script = [{"tick": 1, "step": 0, "reply": reply}, {"reply": say("seen")}]
    base = make(tmp_path, gates=gates, script=script, turn={"max_approvals": 3})
    tick(base)
    assert [it.payload["call"]["tool"] for it in requests(base)] == ["publish"] * 3 + ["ring"]
