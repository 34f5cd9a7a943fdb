"""An agent whose call of a tool fails in turn after turn is found, whatever else it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from circling import Gauge, calls, found_in, kinds, org_of

from lemming.queries.findings.finding_rules import find_findings
from lemming.testing import resume, say

READS = {"read_outboxes": [], "tools": ["file_read", "read_gauge"], "file_access": {"allow_read": ["./workspace"]}}


def script(*tools: str, agent: str = "ada") -> list[dict[str, Any]]:
    """Return a script in which an agent says something new in each tick, and calls these tools in one tick each."""
    turns = []
    for tick, tool in enumerate(tools, 1):
        args = {"moves": True} if tool == Gauge.name else {"path": f"day-{tick}.txt"}
        made = [{"tool": tool, "args": args}] if tool else []
        turns.append({"agent": agent, "tick": tick, "reply": say(f"day {tick}", tool_calls=made)})
    return turns


def test_a_tool_that_fails_in_five_turns_in_a_row_is_found(base: Path) -> None:
    org_of(base, resume("ada", permissions=READS), script=[*script(*["file_read"] * 5), {"reply": say("done")}])
    (finding,) = found_in(base, 5)
    assert (finding.kind, finding.agents, finding.tick) == ("failing_calls", ("ada",), 1)
    assert finding.message.startswith("ada called file_read in 5 turns in a row, and each call failed (LMG-602): ")
    assert "day-5.txt" in finding.message
    assert finding.hint.startswith("see the last one with `lemming tick 5`; ")
    assert finding.evidence == tuple(f"{tick}/ada" for tick in range(1, 6))


def test_a_call_of_no_permission_is_a_kind_of_its_own(base: Path) -> None:
    tools = [*["file_read"] * 3, *["file_write"] * 4]
    org_of(base, resume("ada", permissions=READS), script=[*script(*tools), {"reply": say("done")}], failing_calls=4)
    (finding,) = found_in(base, 7)
    assert (finding.kind, finding.tick) == ("failing_calls", 4)
    assert "LMG-601" in finding.message


QUIET = {
    "four turns": ["file_read"] * 4,
    "a turn between without a call": [*["file_read"] * 3, "", *["file_read"] * 3],
    "two kinds of errors": [*["file_read"] * 3, *["file_write"] * 3],
    "calls that succeed": [Gauge.name] * 6,
}


@pytest.mark.parametrize("tools", QUIET.values(), ids=[*QUIET])
def test_fewer_failures_are_no_finding(tools: list[str], base: Path) -> None:
    org_of(base, resume("ada", permissions=READS), script=[*script(*tools), {"reply": say("done")}])
    assert found_in(base, len(tools)) == []


def test_a_turn_in_which_the_tool_also_succeeds_ends_the_row(base: Path) -> None:
    turns = script(*["file_read"] * 6)
    turns[2]["reply"]["tool_calls"].append({"tool": "file_read", "args": {"path": "a.txt"}})
    org_of(base, resume("ada", permissions=READS), script=[*turns, {"reply": say("done")}])
    (base / "agents/ada/workspace").mkdir(exist_ok=True)
    (base / "agents/ada/workspace/a.txt").write_text("a")
    assert found_in(base, 6) == []


def test_the_same_call_that_leaves_nothing_is_told_as_a_repetition_only(base: Path) -> None:
    org_of(base, resume("ada", permissions=READS), script=[{"reply": calls("file_read", path="gone.txt")}])
    assert kinds(found_in(base, 6)) == ["repeats"]


def test_the_kind_can_be_turned_off(base: Path) -> None:
    turns = [*script(*["file_read"] * 5), {"reply": say("done")}]
    org_of(base, resume("ada", permissions=READS), script=turns, off=["failing_calls"])
    assert found_in(base, 5) == []
    assert find_findings(base, first=1, last=5) == []
