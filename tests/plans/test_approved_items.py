"""Steps whose calls persons are asked about: what cannot be asked about yet waits; nothing is paid twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from asked import ask, tick
from planned import step, write_plan

from lemming.cli import run as lemming
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume


class Pay(Tool):
    """A payment outside: what was paid cannot be taken back."""

    name = "transfer"
    description = "Pays."
    tool_class = "send"
    paid: ClassVar[list[str]] = []

    def execute(self, agent_name: str, base_path: Path, to: str) -> ToolResult:
        Pay.paid.append(to)
        return ToolResult(True, f"paid {to}")


@pytest.fixture(autouse=True)
def _bank() -> None:
    Pay.paid.clear()
    ToolRegistry.register(Pay())


PAY = step("pay", each="start.people", tool="transfer", args={"to": "{{item}}"})
EIGHT = [*"abcdefgh"]
ASKS = {"at": "call", "tool": "transfer", "then": "ask", "because": "it is money"}


def bank(base: Path, *steps: dict[str, Any], gates: Any = (ASKS,), **desk: Any) -> Path:
    may = {"read_outboxes": ["*"], "tools": ["transfer"]}
    make_org(
        base,
        resume("desk", **{"model": {"key": "plan"}, "permissions": may, **desk}),
        resume("human", model={"key": "human"}),
        org={"gates": [*gates]},
    )
    write_plan(base, *steps)
    return base


def decide_all(base: Path, word: str = "approve") -> int:
    """Decide about all that waits, and return about how many calls."""
    asked = [it for it in read_outbox_entries(base, "desk") if it.kind == "request"]
    done = {it.payload["reply_to"] for it in read_outbox_entries(base, "human") if it.kind == "response"}
    left = [it for it in asked if it.id not in done]
    for request in left:
        assert lemming(["-C", str(base), word, request.id]) == 0
    return len(left)


def answers(base: Path) -> list[dict[str, Any]]:
    return [it.payload for it in read_outbox_entries(base, "desk") if it.kind == "response"]


def to_the_end(base: Path, word: str = "approve") -> list[int]:
    """Run ticks, and decide between them, up to an answer; return how many were asked about in each."""
    asked = []
    for _ in range(20):
        tick(base)
        if answers(base):
            return asked
        asked.append(decide_all(base, word))
    raise AssertionError(f"no answer: {asked}")


def test_items_beyond_what_a_turn_may_ask_about_are_asked_about_once_the_others_are_decided(tmp_path: Path) -> None:
    base = bank(tmp_path, PAY)
    ask(base, "desk", people=EIGHT)
    assert to_the_end(base) == [5, 3]
    assert Pay.paid == EIGHT
    (answer,) = answers(base)
    assert "status" not in answer
    assert lemming(["-C", str(base), "replay"]) == 0
    assert lemming(["-C", str(base), "verify"]) == 0


def test_it_goes_on_however_often_an_item_has_to_wait(tmp_path: Path) -> None:
    base = bank(tmp_path, {**PAY, "at_once": 32}, turn={"max_approvals": 1})
    ask(base, "desk", people=EIGHT)
    assert to_the_end(base) == [1] * 8
    assert Pay.paid == EIGHT


def test_the_same_item_twice_is_asked_about_twice(tmp_path: Path) -> None:
    base = bank(tmp_path, PAY)
    ask(base, "desk", people=["a", "b", "a"])
    assert to_the_end(base) == [2, 1]
    assert Pay.paid == ["a", "b", "a"]


def test_two_runs_that_call_the_same_are_asked_about_one_after_the_other(tmp_path: Path) -> None:
    base = bank(tmp_path, PAY)
    ask(base, "desk", people=["a"])
    ask(base, "desk", people=["a"])
    asked = []
    for _ in range(20):
        tick(base)
        asked.append(decide_all(base))
        if len(answers(base)) == 2:
            break
    assert Pay.paid == ["a", "a"]
    assert max(asked) == 1
    assert [it.get("status") for it in answers(base)] == [None, None]


def test_a_no_is_a_no_and_what_waits_beside_it_is_not_made(tmp_path: Path) -> None:
    base = bank(tmp_path, PAY)
    ask(base, "desk", people=EIGHT)
    to_the_end(base, "deny")
    assert Pay.paid == []
    (answer,) = answers(base)
    assert answer["status"] == "failed"
    assert "DENIED by human" in answer["text"]
    assert "NOT YET" not in answer["text"]


def test_a_band_waits_as_well(tmp_path: Path) -> None:
    band = [{"name": f"to-{name}", "tool": "transfer", "args": {"to": name}} for name in "abc"]
    base = bank(tmp_path, {"name": "all", "parallel": band}, turn={"max_approvals": 2})
    ask(base, "desk")
    assert to_the_end(base) == [2, 1]
    assert Pay.paid == [*"abc"]


def test_a_call_that_verifies_waits_as_well(tmp_path: Path) -> None:
    check = {"tool": "transfer", "args": {"to": "check of {{item}}"}}
    base = bank(tmp_path, {**PAY, "verify": check}, turn={"max_approvals": 1}, gates=[ASKS])
    ask(base, "desk", people=["a", "b"])
    to_the_end(base)
    assert sorted(Pay.paid) == ["a", "b", "check of a", "check of b"]
