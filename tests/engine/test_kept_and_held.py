"""What is kept of turns that could not be written or were given up, and shown of turns that were held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.agents import discover_agents
from lemming.engine import run_once
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import Crash, journal_lines, make_org, resume, say


class Ring(Tool):
    """A tool that reaches outside."""

    name = "ring"
    description = "Rings a bell outside."

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        return ToolResult(True, "rung")


@pytest.fixture
def ring() -> Iterator[None]:
    ToolRegistry.register(Ring())
    yield
    ToolRegistry.unregister("ring")


def shown_to(base: Path, agent: str, tick: int) -> str:
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == agent]
    text: str = started[0]["prompt"][-1]["content"]
    return text


@pytest.mark.usefixtures("ring")
def test_an_entry_that_was_held_and_then_written_is_one_entry_to_who_reads_it(base: Path) -> None:
    rings = say("I rang", tool_calls=[{"tool": "ring", "args": {}}])
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", permissions={"tools": ["ring"]}),
        resume("cleo", permissions={"read_outboxes": ["ada", "bob"]}),
        script=[{"agent": "ada", "reply": say("only once")}, {"agent": "bob", "reply": rings}, {"reply": say("")}],
        org={"durability": "tick", "executor": "serial", "inbox_limit": 1},
    )
    run_once(base)
    shown = shown_to(base, "cleo", 1)
    assert (shown.count("only once"), "1 more wait" in shown) == (1, True)


def test_a_turn_whose_files_cannot_be_written_leaves_its_entries_unread(base: Path) -> None:
    reply = say("heard", memory_updates=[{"key": "k", "value": 1}])
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human"]}),
        resume("human", model={"key": "human"}),
        script=[{"reply": reply}],
        models={"human": {"provider": "human"}},
    )
    write_person_entry(
        base, "human", tick=1, kind="message", payload={"text": "are you there?"}, tags=[], created_at=""
    )
    in_the_way = base / "agents/ada/memory/k.json"

    def spoil(operation: str, path: str) -> None:
        if path == "agents/ada/memory/k.json" and operation == "rename":
            in_the_way.mkdir(parents=True)

    with fs.observe_changes(spoil):
        turn = run_once(base).turns[0]
    assert (turn.status, turn.error) == ("failed", "DiskError")
    in_the_way.rmdir()
    assert run_once(base).turns[0].status == "done"
    assert "are you there?" in shown_to(base, "ada", 2)
    assert len(read_state(base, "ada").results) == 0
    assert read_state(base, "ada").turns == 1


@pytest.mark.usefixtures("ring")
def test_credits_that_a_turn_passed_on_before_it_was_given_up_are_spent(base: Path) -> None:
    hires = {"tool": "create_agent", "args": {"name": "eve", "title": "Eve", "instructions": "Work."}}
    rings = {"tool": "ring", "args": {}}
    hr = resume(
        "hr", permissions={"tools": ["create_agent", "ring"]}, turn={"max_steps": 2}, credits={"max_credits": 10}
    )
    script = [{"step": 0, "reply": say("hiring", tool_calls=[hires, rings])}, {"reply": say("hired")}]
    make_org(base, hr, script=script, org={"max_attempts": 2})

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.call == 1:
            raise Crash

    for _ in range(3):  # the first one got further than those that resume it
        with pytest.raises(Crash):
            run_once(base, notify=die)
    (turn,) = run_once(base).turns
    assert turn.status == "failed"
    agents = {agent.name: agent for agent in discover_agents(base)}
    assert read_state(base, "hr").passed_on == agents["eve"].credits.max_credits


def test_a_journal_says_that_a_turn_has_its_answers_before_any_is_committed(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("hello")}], org={"durability": "tick"})
    run_once(base)
    kinds = ("turn_answered", "turn_committed")
    found = [(it["type"], it.get("agent")) for it in journal_lines(base, 1) if it["type"] in kinds]
    assert [kind for kind, _ in found] == ["turn_answered"] * 2 + ["turn_committed"] * 2


@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_a_turn_sees_the_files_that_turns_before_it_wrote_in_its_tick(base: Path, durability: str) -> None:
    writes = {"tool": "file_write", "args": {"path": "shared/x.txt", "content": "the ferry is late"}}
    reads = {"tool": "file_read", "args": {"path": "shared/x.txt"}}
    may = {
        "tools": ["file_write", "file_read"],
        "file_access": {"allow_read": ["./shared"], "allow_write": ["./shared"]},
    }
    make_org(
        base,
        resume("ada", permissions=may),
        resume("ben", permissions=may, context=[{"file": "./shared/x.txt", "label": "News"}]),
        script=[
            {"agent": "ada", "step": 0, "reply": say("", tool_calls=[writes])},
            {"agent": "ben", "step": 0, "reply": say("", tool_calls=[reads])},
            {"reply": say("done")},
        ],
        org={"durability": durability, "executor": "serial"},
    )
    run_once(base)
    assert "the ferry is late" in shown_to(base, "ben", 1)
    ends = [it["output"] for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    assert ends[1] == "the ferry is late"


@pytest.mark.usefixtures("ring")
def test_of_a_turn_that_failed_the_next_is_told_what_happened_outside_and_nothing_else(base: Path) -> None:
    calls = [{"tool": "list_agents", "args": {}}, {"tool": "ring", "args": {}}]
    make_org(
        base,
        resume("ada", permissions={"tools": ["ring"]}, turn={"max_steps": 2, "repairs": 0}),
        script=[
            {"tick": 1, "step": 0, "reply": {"outbox_entries": [], "tool_calls": calls, "memory_updates": []}},
            {"tick": 1, "reply": "no JSON"},
            {"reply": say("done")},
        ],
    )
    assert run_once(base).turns[0].status == "failed"
    assert [it["tool"] for it in read_state(base, "ada").results] == ["ring"]
