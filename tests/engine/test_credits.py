"""What an agent may spend: checked before each call, counted after it, passed on to those it creates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.agents import discover_agents
from lemming.engine import run_once
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import journal_lines, make_org, resume, say


def prompt_of(base: Path, tick: int, agent: str) -> str:
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == agent]
    return "\n".join(message["content"] for message in started[0]["prompt"])


def make_priced(base: Path, *, script: list[dict[str, Any]] | None = None, limits: Any, **prices: Any) -> Path:
    """Make an organisation of one agent whose model has these prices in credits."""
    entry = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, **prices}
    ada = resume("ada", model={"key": "priced"}, credits=limits)
    return make_org(base, ada, script=script, models={"priced": entry})


def test_an_agent_out_of_credits_is_skipped_and_a_grant_brings_it_back(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 2}))
    assert [run_once(base).turns[0].status for _ in range(3)] == ["done", "done", "skipped"]
    (base / "config/credits.json").write_text('{"ada": {"max_credits": 3}}')
    assert [run_once(base).turns[0].status for _ in range(2)] == ["done", "skipped"]


def test_credits_hold_before_a_correction_too(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}), script=[{"reply": "no"}])
    (turn,) = run_once(base).turns
    assert turn.calls == 1
    assert read_state(base, "ada").credits == 1.0


def test_the_soft_cap_warns_once_in_prompt_and_log(base: Path) -> None:
    make_org(base, resume("ada", credits={"soft_cap": 2}))
    for _ in range(4):
        run_once(base)
    warned = ["soft cap" in prompt_of(base, tick, "ada") for tick in (1, 2, 3, 4)]
    assert warned == [False, False, True, False]
    log = [json.loads(line) for line in (base / "logs/engine.log").read_text().splitlines()]
    assert [line["tick"] for line in log if line["event"] == "soft_cap_reached"] == [3]


def test_a_call_is_not_made_when_less_is_left_than_it_costs(base: Path) -> None:
    make_priced(base, limits={"max_credits": 2.5}, per_call=1)
    assert [run_once(base).turns[0].status for _ in range(3)] == ["done", "done", "skipped"]
    assert read_state(base, "ada").credits == 2.0


def test_what_is_left_may_be_spent_to_the_last_bit(base: Path) -> None:
    make_priced(base, limits={"max_credits": 0.3}, per_call=0.1)
    assert [run_once(base).turns[0].status for _ in range(4)] == ["done", "done", "done", "skipped"]


@pytest.mark.parametrize("limit", [0, 4])
def test_who_has_used_everything_up_makes_no_call_though_calls_themselves_are_free(base: Path, limit: int) -> None:
    script = [{"reply": say("hi"), "input_tokens": 0, "output_tokens": 1000}]
    make_priced(base, script=script, limits={"max_credits": limit}, per_call=0, per_1k_output_tokens=4)
    reports = [run_once(base).turns[0] for _ in range(2)]
    assert sum(report.calls for report in reports) == min(limit, 1)
    assert (reports[1].status, reports[1].error) == ("skipped", "OutOfCredits")


def test_a_step_that_cannot_be_paid_for_ends_the_turn_and_keeps_what_was_done(base: Path) -> None:
    look = {"tool": "memory_read", "args": {"key": "k"}}
    ada = resume("ada", credits={"max_credits": 1}, turn={"max_steps": 3})
    make_org(base, ada, script=[{"reply": say("looking", tool_calls=[look])}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls, len(turn.entries)) == ("waiting", 1, 1)
    assert "out of credits: 1 of 1 spent" in turn.remarks[0]


def test_credits_are_sums_of_six_decimals(base: Path) -> None:
    make_priced(base, limits={}, per_call=0.1, per_1k_input_tokens=0.000_001,
                script=[{"reply": say("hi"), "input_tokens": 7, "output_tokens": 0}])  # fmt: skip
    said = [run_once(base).turns[0].credits for _ in range(3)]
    assert said == [0.1, 0.1, 0.1]
    ledger = (base / "agents/ada/turns.jsonl").read_text().splitlines()
    assert [json.loads(line)["credits"] for line in ledger] == [0.1, 0.2, 0.3]


def test_a_soft_cap_that_was_raised_warns_again_once_it_is_reached(base: Path) -> None:
    make_org(base, resume("ada", credits={"soft_cap": 1}))
    for _ in range(2):
        run_once(base)
    (base / "config/credits.json").write_text('{"ada": {"soft_cap": 5}}')
    for _ in range(5):
        run_once(base)
    warned = [tick for tick in range(1, 8) if "soft cap" in prompt_of(base, tick, "ada")]
    assert warned == [2, 6]


def test_a_failed_turn_that_was_warned_is_not_warned_again(base: Path) -> None:
    ada = resume("ada", credits={"soft_cap": 1}, turn={"repairs": 0})
    make_org(base, ada, script=[{"tick": 2, "reply": "garbage"}, {"reply": say("hi")}])
    for _ in range(4):
        run_once(base)
    assert [tick for tick in range(1, 5) if "soft cap" in prompt_of(base, tick, "ada")] == [2]


def hires(count: int, **more: Any) -> dict[str, Any]:
    calls = [
        {"tool": "create_agent", "args": {"name": f"new-{n}", "title": "N", "instructions": "Work.", **more}}
        for n in range(count)
    ]
    return say("hiring", tool_calls=calls)


def test_ten_credits_in_and_at_most_ten_out_however_many_agents_are_created(base: Path) -> None:
    hr = resume("hr", permissions={"read_outboxes": ["*"], "tools": ["create_agent"]}, credits={"max_credits": 10})
    make_org(base, hr, script=[{"agent": "hr", "tick": 1, "reply": hires(9)}, {"reply": say("working")}])
    for _ in range(12):
        run_once(base)
    states = {agent.name: read_state(base, agent.name) for agent in discover_agents(base)}
    assert len(states) == 5, "config/org.json create_agent_per_turn"
    assert states["hr"].passed_on > 0
    spent = [state.credits for state in states.values()]
    assert sum(spent) <= 10
    assert spent == [int(credits) for credits in spent], "a call costs one"
    assert states["hr"].consumed_credits <= 10


def test_the_limit_of_new_agents_counts_the_whole_turn(base: Path) -> None:
    hr = resume("hr", permissions={"tools": ["create_agent"]}, turn={"max_steps": 2})
    second = {"tool": "create_agent", "args": {"name": "one-more", "title": "N", "instructions": "Work."}}
    make_org(
        base,
        hr,
        script=[{"step": 0, "reply": hires(2)}, {"reply": say("again", tool_calls=[second])}],
        org={"create_agent_per_turn": 2},
    )
    run_once(base)
    assert [agent.name for agent in discover_agents(base)] == ["hr", "new-0", "new-1"]
    assert "create_agent_per_turn 2" in read_state(base, "hr").results[0]["output"]


def test_what_a_failed_turn_did_not_write_it_has_not_passed_on(base: Path) -> None:
    hr = resume(
        "hr", permissions={"tools": ["create_agent"]}, turn={"max_steps": 2, "repairs": 0}, credits={"max_credits": 10}
    )
    make_org(base, hr, script=[{"step": 0, "reply": hires(1)}, {"reply": "garbage"}])
    (turn,) = run_once(base).turns
    assert turn.status == "failed"
    assert read_state(base, "hr").consumed_credits == 2
    assert [agent.name for agent in discover_agents(base)] == ["hr"]


@pytest.fixture
def ring() -> Iterator[None]:
    class Ring(Tool):
        name = "ring"
        description = "Rings a bell outside."

        def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
            return ToolResult(True, "rung")

    ToolRegistry.register(Ring())
    yield
    ToolRegistry.unregister("ring")


@pytest.mark.usefixtures("ring")
def test_what_a_failed_turn_had_to_write_before_it_reached_outside_it_has_passed_on(base: Path) -> None:
    hr = resume(
        "hr",
        permissions={"tools": ["create_agent", "ring"]},
        turn={"max_steps": 2, "repairs": 0},
        credits={"max_credits": 10},
    )
    reply = hires(1)
    reply["tool_calls"] += [{"tool": "ring", "args": {}}, {**hires(2)["tool_calls"][1]}]
    make_org(base, hr, script=[{"step": 0, "reply": reply}, {"reply": "garbage"}])
    assert run_once(base).turns[0].status == "failed"
    agents = {agent.name: agent for agent in discover_agents(base)}
    assert set(agents) == {"hr", "new-0"}, "the one that was there when the bell was rung"
    assert read_state(base, "hr").passed_on == agents["new-0"].credits.max_credits


def test_a_turn_whose_files_could_not_all_be_written_may_have_passed_its_credits_on(base: Path) -> None:
    hr = resume(
        "hr",
        permissions={
            "tools": ["create_agent", "file_write"],
            "file_access": {"allow_read": [], "allow_write": ["./shared"]},
        },
        credits={"max_credits": 10},
    )
    reply = hires(1)
    reply["tool_calls"].append({"tool": "file_write", "args": {"path": "shared/sub/a", "content": "x"}})
    make_org(base, hr, script=[{"tick": 1, "reply": reply}, {"reply": say("on I go")}])

    def spoil(operation: str, path: str) -> None:
        if path == "agents/new-0/resume.json" and operation == "rename":
            (base / "shared").mkdir()
            (base / "shared/sub").write_text("no folder")

    with fs.observe_changes(spoil):
        (turn,) = run_once(base).turns
    assert (turn.status, turn.error) == ("failed", "DiskError")
    created = next(agent for agent in discover_agents(base) if agent.name == "new-0")
    assert read_state(base, "hr").passed_on == created.credits.max_credits


def test_steps_within_a_turn_count_what_was_passed_on_before_it(base: Path) -> None:
    grants = {"read_outboxes": ["*"], "tools": ["create_agent", "list_agents"]}
    hr = resume("hr", permissions=grants, turn={"max_steps": 9}, credits={"max_credits": 10})
    looking = say("looking", tool_calls=[{"tool": "list_agents", "args": {}}])
    script = [{"agent": "hr", "tick": 1, "step": 0, "reply": hires(1, max_credits=5)},
              {"agent": "hr", "tick": 1, "reply": say("hired")},
              {"agent": "hr", "reply": looking}, {"reply": say("working")}]  # fmt: skip
    make_org(base, hr, script=script)
    for _ in range(3):
        run_once(base)
    state = read_state(base, "hr")
    assert (state.credits, state.passed_on) == (5, 5)


def test_calls_of_unknown_price_are_counted_over_all_turns(base: Path) -> None:
    make_org(base, resume("ada"))
    for _ in range(3):
        run_once(base)
    assert read_state(base, "ada").unpriced_calls == 3
