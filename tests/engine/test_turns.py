"""One turn: repairs, steps, tool results, credits, waking up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.memory import load_memory
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree, write_script


def prompts(base: Path, tick: int, agent: str) -> str:
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == agent]
    return "\n".join(message["content"] for message in started[0]["prompt"])


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def test_a_reply_that_is_not_the_contract_gets_one_correction_that_quotes_the_problem(base: Path) -> None:
    script = [{"contains": "expected one of message", "reply": say("better")}, {"reply": say("bad", kind="shout")}]
    make_org(base, resume("ada"), script=script)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["better"]


def test_a_second_bad_reply_fails_the_turn_and_writes_nothing_but_what_it_cost(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": "no JSON at all"}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.error, turn.calls, turn.credits) == ("failed", "ContractError", 2, 2.0)
    assert read_outbox_entries(base, "ada") == []
    assert read_state(base, "ada").credits == 2.0


def test_repairs_0_means_no_correction(base: Path) -> None:
    make_org(base, resume("ada", turn={"repairs": 0}), script=[{"reply": "no"}])
    assert run_once(base).turns[0].calls == 1


def test_a_failed_turn_leaves_its_entries_unread(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"agent": "bob", "reply": "no"}, {"reply": say("news")}])
    run_once(base)
    write_script(base, [{"reply": say("news")}])
    run_once(base)
    started = [r for r in journal_lines(base, 2) if r["type"] == "turn_started" and r["agent"] == "bob"]
    assert len(started[0]["entries"]) == 2


def test_the_model_cannot_set_what_the_engine_sets(base: Path) -> None:
    forged = say("hi")
    forged["outbox_entries"][0] |= {"id": "000", "agent": "bob", "tick": 99, "created_at": "never"}
    make_org(base, resume("ada"), script=[{"reply": forged}])
    (turn,) = run_once(base, clock=FrozenClock()).turns
    (entry,) = read_outbox_entries(base, "ada")
    assert (entry.agent, entry.tick, entry.created_at) == ("ada", 1, "2026-01-01T00:00:00.000Z")
    assert len(turn.remarks) == 4


def test_memory_updates_are_files_and_in_the_next_prompt(base: Path) -> None:
    reply = say("hi", memory_updates=[{"key": "plan", "value": {"steps": 2}}])
    make_org(base, resume("ada"), script=[{"reply": reply}])
    run_once(base, clock=FrozenClock())
    plain = json.loads((base / "agents/ada/memory/plan.json").read_text())
    assert plain == {"key": "plan", "value": {"steps": 2}, "timestamp": "2026-01-01T00:00:00.000Z", "agent": "ada"}
    run_once(base)
    assert '{"key": "plan", "value": {"steps": 2}}' in prompts(base, 2, "ada")


def test_a_tool_result_is_shown_in_the_next_turn_once(base: Path) -> None:
    script = [
        {"tick": 1, "reply": say("look", tool_calls=[call("memory_read", key="nothing-here")])},
        {"reply": say("ok")},
    ]
    make_org(base, resume("ada"), script=script)
    assert run_once(base).turns[0].status == "waiting"
    assert run_once(base).turns[0].status == "done"
    run_once(base)
    assert "nothing-here" in prompts(base, 2, "ada")
    assert "Results of your earlier tool calls" not in prompts(base, 3, "ada")


def test_with_more_steps_the_result_is_shown_within_the_turn(base: Path) -> None:
    script = [
        {
            "step": 0,
            "reply": say("one", tool_calls=[call("memory_write", key="k", value=1), call("memory_read", key="k")]),
        },
        {"contains": '"tool": "memory_read"', "reply": say("two")},
    ]
    make_org(base, resume("ada", turn={"max_steps": 3}), script=script)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["one", "two"]
    assert [tool["success"] for tool in turn.tools] == [True, True]


def test_a_tool_that_is_not_granted_is_a_failed_result_and_the_turn_stands(base: Path) -> None:
    reply = say("hi", tool_calls=[call("shell", command="id"), call("no_such_tool")])
    make_org(base, resume("ada"), script=[{"reply": reply}])
    (turn,) = run_once(base).turns
    assert turn.status == "waiting"
    assert [tool["success"] for tool in turn.tools] == [False, False]
    outputs = [result["output"] for result in read_state(base, "ada").results]
    assert "refused by permissions.tools" in outputs[0]
    assert "no tool" in outputs[1]


def test_wake_changed_fires_only_when_something_it_reads_has_changed(base: Path) -> None:
    quiet = {"wake": "changed"}
    make_org(
        base,
        resume("ada", schedule={"run_every_n_ticks": 3}),
        resume("bob", schedule=quiet, permissions={"read_outboxes": ["ada"]}),
        script=[
            {"agent": "bob", "reply": say("noted", memory_updates=[{"key": "k", "value": 1}])},
            {"reply": say("x")},
        ],
    )
    statuses = []
    for _ in range(5):
        statuses.append({turn.agent: turn.status for turn in run_once(base).turns}["bob"])
    # tick 1: its first turn; tick 3: ada wrote; its own memory does not wake it
    assert statuses == ["done", "skipped", "done", "skipped", "skipped"]
    (base / "agents/bob/memory/k.json").write_text(
        '{"key": "k", "value": 2, "timestamp": "2026-01-01T00:00:00Z", "agent": "bob"}'
    )
    assert {turn.agent: turn.status for turn in run_once(base).turns}["bob"] == "done"


def test_an_idle_tick_asks_no_model_and_changes_no_agents_file(base: Path) -> None:
    make_org(base, resume("ada"), org={"defaults": {"wake": "changed"}})
    run_once(base)
    before = {path: content for path, content in tree(base).items() if path.startswith("agents/")}
    report = run_once(base)
    assert report.totals["calls"] == 0
    assert "nothing it reads has changed since tick 1" in report.turns[0].reason
    assert {path: content for path, content in tree(base).items() if path.startswith("agents/")} == before


def test_context_files_are_in_the_prompt_one_line_a_turn(base: Path) -> None:
    make_org(
        base,
        resume(
            "ada",
            permissions={"file_access": {"allow_read": ["./shared"]}},
            context=[{"file": "./shared/facts.txt", "label": "Fact", "take": "next_line"}],
        ),
    )
    (base / "shared").mkdir()
    (base / "shared/facts.txt").write_text("first\n\nsecond\n")
    for _ in range(3):
        run_once(base)
    assert [
        f"{fact}\n" in prompts(base, tick, "ada") for tick, fact in ((1, "first"), (2, "second"), (3, "first"))
    ] == [True, True, True]
    assert "second" not in prompts(base, 1, "ada")


class Stamp(Tool):
    """Appends to a file of the workspace, as a shell command might."""

    name = "stamp"
    description = "Stamps a paper."

    def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
        paper = base_path / f"agents/{agent_name}/workspace/paper.txt"
        paper.write_text(paper.read_text() + "stamped\n")
        return ToolResult(True, "done")


def test_a_tool_that_reaches_outside_sees_what_was_staged_and_what_it_changes_stays(base: Path) -> None:
    ToolRegistry.register(Stamp())
    calls = [
        call("file_write", path="paper.txt", content="written\n"),
        call("stamp"),
        call("file_read", path="paper.txt"),
    ]
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write", "file_read", "stamp"]}),
        script=[{"reply": say("x", tool_calls=calls)}],
    )
    (turn,) = run_once(base).turns
    ToolRegistry.unregister("stamp")
    assert [tool["success"] for tool in turn.tools] == [True, True, True]
    assert (base / "agents/ada/workspace/paper.txt").read_text() == "written\nstamped\n"
    assert read_state(base, "ada").results[2]["output"] == "written\nstamped\n"


def test_a_memory_update_comes_after_the_tools_of_its_reply(base: Path) -> None:
    ToolRegistry.register(Echo())
    calls = [call("memory_write", key="k", value="by the tool"), call("echo", number=1, other=2)]
    reply = say("x", tool_calls=calls, memory_updates=[{"key": "k", "value": "by the update"}])
    make_org(
        base, resume("ada", permissions={"tools": ["echo"]}), script=[{"tick": 1, "reply": reply}, {"reply": say("")}]
    )
    try:
        run_once(base)
    finally:
        ToolRegistry.unregister("echo")
    assert load_memory(base, "ada", "k") == "by the update"
    (record,) = load_tick_record(base, 1).turns
    assert record.memory == {"k": "by the update"}
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


@pytest.mark.parametrize(
    ("tool", "args", "status"),
    [
        ("file_write", {"path": "n.txt", "content": "x"}, "skipped"),
        ("memory_write", {"key": "k", "value": 1}, "skipped"),
        ("file_write", {"path": "../n.txt", "content": "x"}, "done"),
        ("file_list", {}, "done"),
        ("no_tool", {}, "done"),
    ],
)
def test_the_success_of_a_call_that_only_writes_wakes_nobody(
    base: Path, tool: str, args: dict[str, Any], status: str
) -> None:
    ada = resume("ada", schedule={"wake": "changed"}, permissions={"tools": ["file_write", "file_list"]})
    reply = say("x", tool_calls=[call(tool, **args)])
    human = resume("human", model={"key": "human"})
    ada["permissions"]["read_outboxes"] = ["human"]
    make_org(base, ada, human, script=[{"tick": 1, "reply": reply}, {"reply": say("y")}])
    assert [run_once(base).turns[0].status for _ in range(2)] == ["waiting", status]
    entry = {"id": "hand", "tick": 2, "agent": "human", "kind": "message", "payload": {"text": "go"}}
    fs.write_atomic(
        base, "agents/human/outbox/00000002_hand.json", dump_pretty({**entry, "tags": [], "created_at": ""})
    )
    run_once(base)
    shown = prompts(base, 3 if status == "skipped" else 2, "ada")
    assert f'"tool": "{tool}"' in shown, "the result is shown when the agent wakes"


class Echo(Tool):
    """Gives back the number it was given."""

    name = "echo"
    description = "Gives a number back."

    def execute(self, agent_name: str, base_path: Path, number: int, **kwargs: Any) -> ToolResult:
        return ToolResult(True, f"{number} {kwargs['other']}")


def test_integers_of_any_size_in_a_reply_are_kept_exactly_wherever_they_go(base: Path) -> None:
    big, bigger = 2**64 - 1, -(10**4000) - 7
    reply = {
        "outbox_entries": [{"kind": "message", "payload": {"id": big, "more": [bigger]}, "tags": []}],
        "memory_updates": [{"key": "k", "value": {"id": bigger}}],
        "tool_calls": [call("echo", number=big, other=bigger), call("memory_write", key="w", value=big)],
    }
    reader = resume("bob", permissions={"read_outboxes": ["ada"]})
    ada = resume("ada", permissions={"tools": ["echo"]})
    script = [{"agent": "ada", "tick": 1, "reply": json.dumps(reply)}, {"reply": say("heard")}]
    make_org(base, ada, reader, script=script)
    ToolRegistry.register(Echo())
    try:
        assert [turn.status for turn in run_once(base).turns] == ["waiting", "done"]
        run_once(base)
    finally:
        ToolRegistry.unregister("echo")
    (entry,) = read_outbox_entries(base, "ada", 9)[:1]
    assert entry.payload == {"id": big, "more": [bigger]}
    assert (load_memory(base, "ada", "k"), load_memory(base, "ada", "w")) == ({"id": bigger}, big)
    started = [record["args"] for record in journal_lines(base, 1) if record["type"] == "tool_started"]
    assert started == [{"number": big, "other": bigger}]
    assert f"{big} {bigger}" in prompts(base, 2, "ada")
    assert str(bigger) in prompts(base, 1, "bob")
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [2, 2]


def test_the_limit_of_entries_is_that_of_the_whole_turn(base: Path) -> None:
    four = [{"kind": "message", "payload": {"text": text}, "tags": []} for text in "abcd"]
    look = {"tool": "memory_read", "args": {"key": "k"}}
    make_org(
        base,
        resume("ada", turn={"max_steps": 2, "max_entries": 3}),
        script=[
            {"step": 0, "reply": say("", outbox_entries=four[:2], tool_calls=[look])},
            {"reply": say("", outbox_entries=four[2:])},
        ],
    )
    (turn,) = run_once(base).turns
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["a", "b", "c"]
    assert turn.remarks == ["outbox_entries: 1 beyond the turn's limit"]


def test_a_memory_that_was_written_before_a_tool_reached_outside_does_not_wake_its_writer(base: Path) -> None:
    ToolRegistry.register(Stamp())
    note = call("memory_write", key="k", value=1)
    ada = resume(
        "ada",
        schedule={"wake": "changed"},
        turn={"max_steps": 2},
        permissions={"read_outboxes": [], "tools": ["stamp"]},
    )
    make_org(base, ada, script=[{"step": 0, "reply": say("x", tool_calls=[note, call("stamp")])}, {"reply": say("y")}])
    fs.write_atomic(base, "agents/ada/workspace/paper.txt", b"")
    statuses = [[turn.status for turn in run_once(base).turns] for _ in range(2)]
    ToolRegistry.unregister("stamp")
    assert statuses == [["done"], ["skipped"]]


def test_of_results_that_are_too_many_for_a_prompt_the_newest_are_told(base: Path) -> None:
    class Roar(Tool):
        name = "roar"
        description = "Roars."

        def execute(self, agent_name: str, base_path: Path, *args: Any, **kwargs: Any) -> ToolResult:
            return ToolResult(True, f"{kwargs['how']} " + "r" * 60_000)

    ToolRegistry.register(Roar())
    ada = resume("ada", permissions={"tools": ["roar"]}, turn={"max_steps": 2, "repairs": 0})
    script = [
        {"tick": tick, "step": 0, "reply": say("x", tool_calls=[call("roar", how=f"turn {tick}")] * 20)}
        for tick in (1, 2, 3)
    ]
    make_org(base, ada, script=[*script, {"step": 1, "reply": "garbage"}, {"reply": say("heard")}])
    statuses = [run_once(base).turns[0].status for _ in range(3)]
    ToolRegistry.unregister("roar")
    assert statuses == ["failed"] * 3
    told = [result["args"]["how"] for result in read_state(base, "ada").results]
    assert told[-1] == "turn 3"
    assert told == sorted(told)
    assert "turn 1" not in told, "or the prompt would hold more than any model takes"


def test_an_agent_without_credits_is_skipped_by_that_name(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 0}), script=[{"reply": say("hi")}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.end, turn.calls) == ("skipped", "out_of_credits", 0)
