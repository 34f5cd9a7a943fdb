"""A call that a person denied is not asked about again for the same request, nor paid for in every tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, Ring, by_hand, finished, lemming, make, requests, ring, tick

from lemming.engine import run_once
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.ledger import read_state
from lemming.testing import FrozenClock, say

ADDRESSED = {"schedule": {"wake": "addressed"}, "turn": {"take": "one", "max_steps": 2}}


def insisting(base: Path, *calls: dict[str, Any], **more: Any) -> Path:
    """Make an organisation in which ada makes the same calls whatever she is told, for a request."""
    reply = {"outbox_entries": [], "tool_calls": [*calls], "memory_updates": []}
    made = make(base, script=[{"reply": reply}], **{**ADDRESSED, **more})
    lemming(made, "send", "--to", "ada", "--kind", "request", "Ring, please.")
    return made


def deny(base: Path, place: int = -1) -> None:
    assert lemming(base, "deny", requests(base)[place].id, "--reason", "too loud") == 0


def paid(base: Path, ticks: int) -> list[int]:
    """Run ticks, and return how many calls of her model each has cost."""
    found = []
    for _ in range(ticks):
        report = run_once(base, clock=FrozenClock())
        found.append(sum(turn.calls for turn in report.turns if turn.agent == "ada"))
    return found


def test_the_same_call_is_denied_by_itself(tmp_path: Path) -> None:
    base = insisting(tmp_path, ring())
    tick(base)
    deny(base)
    tick(base)
    ((outcome, output), *_) = finished(base, 2)
    assert outcome == "refused"
    assert "DENIED by human: too loud (1/ada/0); this very call is not asked about again" in output
    assert len(requests(base)) == 1
    assert Ring.rung == []
    assert lemming(base, "replay") == 0


def test_it_is_not_paid_for_in_every_tick(tmp_path: Path) -> None:
    base = insisting(tmp_path, ring())
    tick(base)
    deny(base)
    costs = paid(base, 10)
    assert sum(costs) <= 6
    assert costs[-3:] == [0, 0, 0]
    assert len(requests(base)) == 1


@pytest.mark.parametrize("other", [ring("twice"), ring("once", file="x"), ring("once", file=True)])
def test_another_call_is_asked_about(tmp_path: Path, other: dict[str, Any]) -> None:
    base = insisting(tmp_path, ring(), other)
    tick(base)
    by_hand(base, "human", 2, "no", reply_to=requests(base)[0].id, decision="deny", target="ada")
    by_hand(base, "human", 2, "yes", reply_to=requests(base)[1].id, decision="approve", target="ada")
    tick(base)
    assert [it.payload["call"]["args"] for it in requests(base)[2:]] == [other["args"]]


def test_the_same_call_for_another_request_is_asked_about(tmp_path: Path) -> None:
    base = insisting(tmp_path, ring())
    tick(base)
    deny(base)
    paid(base, 6)
    lemming(base, "send", "--to", "ada", "--kind", "request", "Ring, please, now.")
    paid(base, 1)
    assert len(requests(base)) == 2


def test_a_file_that_changes_makes_it_another_call(tmp_path: Path) -> None:
    base = insisting(tmp_path, {"tool": "ring", "args": {"text": "once", "file": "shared/x.sh"}})
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/x.sh").write_text("one")
    tick(base)
    deny(base)
    (base / "shared/x.sh").write_text("two")
    paid(base, 1)
    assert len(requests(base)) == 2


def test_who_let_it_run_out_has_denied_nothing(tmp_path: Path) -> None:
    base = insisting(tmp_path, ring(), gates=[{**ASK, "expires": 1}])
    paid(base, 4)
    assert len(requests(base)) == 2


def test_a_word_in_advance_is_heard_after_a_no(tmp_path: Path) -> None:
    base = insisting(tmp_path, ring())
    tick(base)
    deny(base)
    lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}')
    tick(base)
    assert Ring.rung == ["once"]


def test_what_was_denied_is_forgotten_with_its_request(tmp_path: Path) -> None:
    rings = {"outbox_entries": [], "tool_calls": [ring()], "memory_updates": []}
    script = [{"tick": 3, "reply": say("no bell", kind="response")}, {"reply": rings}]
    base = make(tmp_path, script=script, **ADDRESSED)
    lemming(base, "send", "--to", "ada", "--kind", "request", "Ring, please.")
    tick(base)
    deny(base)
    tick(base)
    assert [it["id"] for it in read_state(base, "ada").kept["approvals"]["denied"]] == ["1/ada/0"]
    tick(base)
    lemming(base, "send", "--to", "ada", "--kind", "request", "Ring, please, now.")
    tick(base)
    deny(base)
    tick(base)
    assert [it["id"] for it in read_state(base, "ada").kept["approvals"]["denied"]] == ["4/ada/0"]


def test_what_is_said_again_while_it_waits_is_not_paid_for_in_every_tick(tmp_path: Path) -> None:
    call = {"outbox_entries": [], "tool_calls": [ring()]}
    gate = {"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "ask"}
    for reply, asking in ((call, ASK), (say("the ferry is late", kind="report"), gate)):
        base = make(tmp_path / asking["at"], gates=[asking], script=[{"reply": reply}])
        assert paid(base, 3) == [1, 0, 0]
        by_hand(base, "human", 3, "hurry", kind="message", text="Hurry.", target="ada")
        assert paid(base, 6) == [1, 0, 0, 0, 0, 0]
        again = [
            use["outcome"]
            for turn in read_journal(base, 4)
            if turn.kind == "turn_committed"
            for use in turn.report.tools
        ]
        assert again == ["pending" if asking is gate else "deferred"]  # as journals of 0.2.0 have it
        assert len(requests(base)) == 1
        assert lemming(base, "approve", requests(base)[0].id) == 0
        assert paid(base, 1) == [1]
        assert lemming(base, "replay") == 0
