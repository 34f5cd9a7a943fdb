"""The order of the crash protocol, seen from the disk: intent < answer < effects < commit.

What a turn causes reaches the disk only after the answers it follows from are safe; after a refusal the
journal is written to no more; and what has happened outside is told whatever became of the turn.
"""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.providers import LLMProvider, Message, register_provider
from lemming.kernel.tools import EngineTool, Tool, ToolRegistry, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.testing import journal_lines, make_org, resume, say

JOURNAL = paths.journal_file(1)
RING = {"tool": "ring", "args": {}}


class Ring(Tool):
    """Rings a bell outside: nobody can take that back."""

    name = "ring"
    description = "Rings a bell."
    rung: list[Path]

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        self.rung.append(base_path)
        return ToolResult(True, "the bell was rung")


@pytest.fixture
def ring() -> Iterator[Ring]:
    bell = Ring()
    bell.rung = []
    ToolRegistry.register(bell)
    yield bell
    ToolRegistry.unregister("ring")


class Witness:
    """Hears of every change of the disk, and knows which answers would be lost in a power cut."""

    def __init__(self, base: Path) -> None:
        self.journal = base / JOURNAL
        self.safe_bytes = 0
        self.changes: list[str] = []
        self.too_early: list[str] = []

    def hear(self, operation: str, path: str) -> None:
        self.changes.append(f"{operation} {path}")
        if operation == "syncfs" or (operation == "sync" and path == JOURNAL):
            self.safe_bytes = self.journal.stat().st_size
        elif path.startswith("agents/") and "/logs" not in path and operation in ("rename", "append"):
            agent = path.split("/")[1]
            if any(record.get("agent") == agent for record in self.unsafe()):
                self.too_early.append(path)

    def unsafe(self) -> list[dict[str, Any]]:
        """The answers that only the running machine knows."""
        lines = self.journal.read_bytes()[self.safe_bytes :].splitlines()
        records = [json.loads(line) for line in lines]
        return [record for record in records if record["type"] in ("model_replied", "tool_finished")]


@pytest.mark.parametrize("durability", ["turn", "tick"])
@pytest.mark.parametrize("max_parallel", [1, 8])
def test_no_file_of_an_agent_changes_before_the_answers_it_follows_from_are_safe(
    base: Path, ring: Ring, durability: str, max_parallel: int
) -> None:
    note = {"tool": "memory_write", "args": {"key": "k", "value": 1}}
    more = {"memory_updates": [{"key": "m", "value": 2}]}
    script = [
        {"agent": "ada", "reply": say("hi", tool_calls=[note], **more)},
        {"reply": say("hi", tool_calls=[note, RING, note], **more)},
    ]
    grants = {"read_outboxes": ["*"], "tools": ["ring"]}
    agents = [resume(name, permissions=grants) for name in ("ada", "bob", "cleo")]
    settings = {"durability": durability, "max_parallel": max_parallel}
    make_org(base, *agents, script=script, org=settings)
    witness = Witness(base)
    with fs.observe_changes(witness.hear):
        run_once(base)
    assert len(ring.rung) == 2
    assert any(change.startswith("rename agents/ada/outbox") for change in witness.changes)
    assert witness.too_early == []


@pytest.mark.parametrize("durability", ["turn", "tick"])
def test_a_bell_is_rung_only_when_its_announcement_is_safe(base: Path, ring: Ring, durability: str) -> None:
    ada = resume("ada", permissions={"tools": ["ring"]})
    make_org(base, ada, script=[{"reply": say("hi", tool_calls=[RING])}], org={"durability": durability})
    witness, safe_when_rung = Witness(base), []

    class Watched(Ring):
        def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
            lines = (base / JOURNAL).read_bytes()[: witness.safe_bytes].splitlines()
            safe_when_rung.append(json.loads(lines[-1])["type"])
            return ToolResult(True, "rung")

    ToolRegistry.register(Watched())
    with fs.observe_changes(witness.hear):
        run_once(base)
    assert safe_when_rung == ["tool_started"]


class Careful(LLMProvider):
    """Asks, before each answer, which earlier ones a power cut would take."""

    witness: Witness
    replies: list[str]
    at_risk: list[list[str]]

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        self.at_risk.append([record["type"] for record in self.witness.unsafe()])
        return self.replies.pop(0)


def test_whoever_is_asked_next_no_earlier_answer_is_at_risk(base: Path, ring: Ring) -> None:
    register_provider("careful", Careful)
    ada = resume("ada", model={"key": "careful"}, permissions={"tools": ["ring"]}, turn={"max_steps": 3, "repairs": 1})
    make_org(base, ada, models={"careful": {"provider": "careful"}})
    Careful.witness, Careful.at_risk = Witness(base), []
    Careful.replies = ["garbage", json.dumps(say("ringing", tool_calls=[RING])), json.dumps(say("heard"))]
    with fs.observe_changes(Careful.witness.hear):
        (turn,) = run_once(base).turns
    assert (turn.status, turn.calls, len(ring.rung)) == ("done", 3, 1)
    assert Careful.at_risk == [[], [], []]


class Meeting:
    """Where ada answers once bob is asked too, the disk refuses her answer, and bob answers after that."""

    def __init__(self, refuses: str) -> None:
        self.refuses = refuses
        self.bob_is_asked, self.ada_answers, self.is_refused = (threading.Event() for _ in range(3))
        self.after: list[str] = []

    def hear(self, operation: str, path: str) -> None:
        if path != JOURNAL:
            return
        if self.is_refused.is_set():
            self.after.append(operation)
        elif self.ada_answers.is_set() and operation == self.refuses:
            self.is_refused.set()
            raise OSError(errno.EIO, "the disk is unwell")


class AtOnce(LLMProvider):
    """Answers for both as the meeting wants it."""

    meeting: Meeting

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        if kwargs["agent"] == "ada":
            assert self.meeting.bob_is_asked.wait(PATIENCE_S)
            self.meeting.ada_answers.set()
        else:
            self.meeting.bob_is_asked.set()
            assert self.meeting.is_refused.wait(PATIENCE_S)
        return json.dumps(say("hi"))


@pytest.mark.parametrize("refuses", ["append", "sync"])
def test_after_a_refusal_of_the_disk_nothing_more_goes_into_the_journal(base: Path, refuses: str) -> None:
    AtOnce.meeting = meeting = Meeting(refuses)
    register_provider("at-once", AtOnce)
    agents = [resume(name, model={"key": "both"}, permissions={}) for name in ("ada", "bob")]
    make_org(base, *agents, models={"both": {"provider": "at-once"}})
    with fs.observe_changes(meeting.hear), pytest.raises(DiskError, match="unwell"):
        run_once(base)
    assert meeting.after == []
    assert "turn_committed" not in [record["type"] for record in journal_lines(base, 1)]
    assert [turn.status for turn in run_once(base).turns] == ["done", "done"], "and it goes on later"


@pytest.mark.parametrize("second", ["garbage", {"error": "RequestRejected"}])
def test_a_failed_turn_is_told_in_the_next_what_it_has_done_outside(base: Path, ring: Ring, second: Any) -> None:
    ada = resume("ada", permissions={"tools": ["ring"]}, turn={"max_steps": 2, "repairs": 0})
    rung = {"tick": 1, "step": 0, "reply": say("ringing", tool_calls=[RING])}
    then = {"tick": 1, "reply": second} if isinstance(second, str) else {"tick": 1, **second}
    make_org(base, ada, script=[rung, then, {"reply": say("I know")}])
    assert run_once(base).turns[0].status == "failed"
    run_once(base)
    (started,) = [record for record in journal_lines(base, 2) if record["type"] == "turn_started"]
    assert "the bell was rung" in started["prompt"][-1]["content"]
    assert len(ring.rung) == 1


class Peek(EngineTool):
    """Reads what another agent has written, and may not be run twice."""

    name = "peek"
    description = "Looks at the paper."
    repeatable = False

    def plan(self, context: ToolContext, *args: Any, **kwargs: Any) -> ToolResult:
        return ToolResult(True, (context.base / "shared/paper.txt").read_text())


def test_a_tool_that_reaches_outside_finds_the_files_of_turns_that_were_over(base: Path) -> None:
    ToolRegistry.register(Peek())
    write = {"tool": "file_write", "args": {"path": "shared/paper.txt", "content": "by ada"}}
    access = {"allow_read": [], "allow_write": ["./shared"]}
    ada = resume("ada", permissions={"tools": ["file_write"], "file_access": access})
    bob = resume("bob", permissions={"read_outboxes": ["ada"], "tools": ["peek"]})
    script = [
        {"agent": "ada", "reply": say("written", tool_calls=[write])},
        {"reply": say("looking", tool_calls=[{"tool": "peek", "args": {}}])},
    ]
    make_org(base, ada, bob, script=script, org={"durability": "tick", "max_parallel": 1})
    run_once(base)
    ToolRegistry.unregister("peek")
    assert [result["output"] for result in read_state(base, "bob").results] == ["by ada"]
