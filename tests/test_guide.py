"""The architecture guide, line by line: what it prints is run as it is printed.

JSON, tables and code are read from docs/architecture-guide.md, so that the two cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from guide import agent, code, functions, json_of, prompts, table, used

from lemming.agents import discover_agents, should_run
from lemming.engine import get_firing_agents, load_tick, persist_tick, run_forever, run_once, run_tick
from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.journal.engine_events import Event, TickEnds
from lemming.kernel.memory import load_memory
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.resume import AgentCredits, AgentModel, AgentPermissions
from lemming.kernel.org.schedule import AgentSchedule
from lemming.kernel.tools import SHIPPED, Tool, ToolRegistry, ToolResult
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.memory import append_memory_event, archive_old_memories, compact_memory_list
from lemming.messages import collect_readable_outboxes, write_outbox_entry
from lemming.testing import FrozenClock, make_org, resume, say

# --- five invariants ---------------------------------------------------------------------------


def test_all_state_lives_where_the_guide_says(base: Path) -> None:
    writing = {"tool": "file_write", "args": {"path": "notes.txt", "content": "x"}}
    reply = say("hi", memory_updates=[{"key": "goals", "value": 1}], tool_calls=[writing])
    make_org(base, resume("planner", permissions={"tools": ["file_write"]}), script=[{"reply": reply}])
    run_once(base)
    printed = re.findall(r"^    (\S+?)/? +#", code("1. Filesystem is Truth", ""), re.MULTILINE)
    assert printed == ["resume.json", "outbox", "memory", "workspace", "logs"]
    assert {path.name for path in (base / "agents/planner").iterdir()} == {*printed, "turns.jsonl"}
    assert (base / "agents/planner/logs/activity.log").is_file()


def test_a_copy_of_the_folder_is_a_backup_of_everything(base: Path, tmp_path: Path) -> None:
    import shutil

    make_org(base, resume("planner"))
    run_once(base, clock=FrozenClock())
    shutil.copytree(base, tmp_path / "copy")
    originals, copies = (run_once(place, clock=FrozenClock()) for place in (base, tmp_path / "copy"))
    assert originals.turns[0].entries == copies.turns[0].entries


def test_the_printed_resume_is_an_agent(base: Path) -> None:
    plain = json_of("2. Resume is the ABI")
    make_org(base, plain)
    planner = load_agent(base, "planner")
    assert (planner.name, planner.title) == ("planner", "Strategic Planner")
    assert planner.model == AgentModel(key="gpt-4o-mini", temperature=0.2)
    assert planner.permissions.read_outboxes == ["*"]
    assert planner.permissions.tools == ["file_read", "memory_write"]
    assert planner.permissions.file_access.allow_read == ["./workspace", "./shared"]
    assert planner.permissions.file_access.allow_write == ["./workspace"]
    assert planner.schedule == AgentSchedule(run_every_n_ticks=1, phase_offset=0)
    assert planner.instructions.startswith("You are a strategic planner")
    assert planner.credits == AgentCredits(max_credits=1000, soft_cap=500)


def test_an_agent_runs_on_the_printed_resume(base: Path) -> None:
    model = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}}
    make_org(base, json_of("2. Resume is the ABI"), models={"gpt-4o-mini": model})
    assert run_once(base).turns[0].status == "done"
    assert "You are a strategic planner" in prompts(base, 1, "planner")


def test_nothing_but_the_resume_makes_an_agent(base: Path) -> None:
    make_org(base, resume("whoever"))
    assert [path.name for path in (base / "agents/whoever").iterdir()] == ["resume.json"]
    assert run_once(base).turns[0].status == "done"


def test_agents_write_only_to_their_own_outbox_and_read_those_they_may(base: Path) -> None:
    make_org(
        base,
        resume("analyst", permissions={"read_outboxes": ["planner"]}),
        resume("planner", permissions={"read_outboxes": []}),
    )
    entry = OutboxEntry("abc", 1, "planner", "message", {"text": "hi"}, [], "")
    with pytest.raises(ValueError, match="only to their own outbox"):
        write_outbox_entry(base, "analyst", entry)
    write_outbox_entry(base, "planner", entry)
    inboxes = {
        found.name: collect_readable_outboxes(base, found.name, found.permissions) for found in discover_agents(base)
    }
    assert inboxes == {"analyst": [entry], "planner": []}


@pytest.mark.parametrize("line", re.findall(r"^should_run.*$", code("4. Tick-Based Scheduler", "python"), re.MULTILINE))
def test_should_run_is_what_the_guide_works_out(line: str) -> None:
    offset, every, outcome = re.findall(r"\(10 \+ (\d)\) % (\d) == 0 → (\w+)", line)[0]
    planner = agent("planner", int(every), int(offset))
    assert should_run(planner, tick=10) is (outcome == "True")
    assert bool(get_firing_agents([planner], 10)) is (outcome == "True")


def test_the_printed_contract_is_a_reply() -> None:
    printed = code("5. Engine↔LLM JSON Contract", "json")
    kinds = re.findall(r'"kind": "(.*?)"', printed)[0]
    assert tuple(kinds.split("|")) == MESSAGE_KINDS
    text = printed.replace(kinds, "report").replace("{...}", '{"a": 1}').replace("[...]", '["urgent"]')
    reply = parse_reply(text, kinds=MESSAGE_KINDS)
    assert (reply.outbox_entries[0].payload, reply.outbox_entries[0].tags) == ({"a": 1}, ["urgent"])
    assert (reply.tool_calls[0].tool, reply.tool_calls[0].args) == ("file_read", {"path": "data.txt"})
    assert (reply.memory_updates[0].key, reply.memory_updates[0].value) == ("context", {"a": 1})
    assert reply.notes == "Optional free-form notes for logs"
    assert reply.remarks == ()


def test_the_engine_fills_in_agent_tick_and_time(base: Path) -> None:
    make_org(base, resume("planner"))
    persist_tick(base, 42)
    run_once(base, clock=FrozenClock(datetime(2025, 12, 8, 10, 30, tzinfo=UTC)))
    (entry,) = read_outbox_entries(base, "planner", 10)
    assert (entry.agent, entry.tick, entry.created_at) == ("planner", 42, "2025-12-08T10:30:00.000Z")


# --- components --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "module"),
    [
        ("Engine (`lemming/engine.py`)", "lemming.engine"),
        ("Agents (`lemming/agents.py`)", "lemming.agents"),
        ("Messages (`lemming/messages.py`)", "lemming.messages"),
        ("Memory (`lemming/memory.py`)", "lemming.memory"),
    ],
)
def test_the_listed_functions_are_there_with_the_printed_parameters_in_front(title: str, module: str) -> None:
    listed = functions(title)
    assert listed
    for name, parameters in listed.items():
        function = getattr(import_module(module), name)
        assert list(inspect.signature(function).parameters)[: len(parameters)] == parameters, name


@pytest.mark.parametrize(
    ("title", "kind"), [("Agents (`lemming/agents.py`)", Agent), ("Messages (`lemming/messages.py`)", OutboxEntry)]
)
def test_the_dataclasses_have_the_printed_fields_in_their_order(title: str, kind: Any) -> None:
    printed = re.findall(r"^    (\w+): (.+)$", code(title, "python"), re.MULTILINE)
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    assert [name for name in fields if name in dict(printed)] == [name for name, _ in printed]
    for name, annotation in printed:
        assert re.search(rf"\b{re.escape(annotation)}", fields[name]) or annotation == "str", name


def test_an_entry_is_made_by_position() -> None:
    entry = OutboxEntry("abc", 1, "planner", "message", {"text": "hi"}, ["x"], "2025-12-08T10:30:00Z")
    assert entry == OutboxEntry(**entry.as_json())


def test_the_parts_of_an_agent_are_imported_from_where_it_is() -> None:
    parts = ("AgentModel", "AgentPermissions", "AgentSchedule", "AgentCredits")
    assert all(hasattr(import_module("lemming.agents"), part) for part in parts)
    planner = agent("planner")
    assert (planner.permissions, planner.model) == (AgentPermissions(), AgentModel())


def test_run_tick_runs_one_tick_and_run_once_persists_the_next(base: Path) -> None:
    make_org(base, resume("planner"))
    assert run_tick(base, 1).tick == 1
    assert not (base / "tick.json").exists() or load_tick(base) == 1
    assert run_once(base).tick == 2
    assert load_tick(base) == 3


def test_run_forever_goes_on_and_on(base: Path) -> None:
    make_org(base, resume("planner"))
    seen: list[int] = []
    stop = threading.Event()

    def watch(event: Event) -> None:
        if isinstance(event, TickEnds):
            seen.append(event.report.tick)
            if len(seen) == 3:
                stop.set()

    run_forever(base, interval_s=0, notify=watch, stop=stop)
    assert seen == [1, 2, 3]


def test_discover_agents_finds_all_valid_agents(base: Path) -> None:
    make_org(base, resume("b"), resume("a"), {"name": "broken"})
    assert [found.name for found in discover_agents(base)] == ["a", "b"]


def test_the_printed_memory_calls(base: Path) -> None:
    make_org(base, resume("planner"))
    scope = {"base_path": base, "agent_name": "planner", "save_memory": save_memory, "load_memory": load_memory}
    exec(code("Memory (`lemming/memory.py`)", "python"), scope)
    assert scope["goals"] == ["goal1", "goal2"]


def test_a_memory_file_has_the_printed_format(base: Path) -> None:
    printed = json_of("Memory File Format")
    make_org(base, resume("planner"))
    clock = FrozenClock(datetime(2025, 12, 8, 10, 30, tzinfo=UTC))
    save_memory(base, "planner", printed["key"], printed["value"], clock=clock)
    file = base / "agents/planner/memory/goals.json"
    written = json.loads(file.read_text())
    assert list(written) == list(printed)
    assert {**written, "timestamp": printed["timestamp"]} == printed
    assert written["timestamp"] == printed["timestamp"].replace("Z", ".000Z")
    file.write_text(json.dumps(printed))
    assert load_memory(base, "planner", "goals") == printed["value"]


def test_the_printed_compaction_calls(base: Path) -> None:
    make_org(base, resume("planner"))
    save_memory(base, "planner", "event_log", list(range(150)))
    old = FrozenClock(datetime.now(UTC) - timedelta(days=31))
    save_memory(base, "planner", "old", 1, clock=old)
    scope = {
        "base_path": base,
        "agent_name": "planner",
        "compact_memory_list": compact_memory_list,
        "archive_old_memories": archive_old_memories,
    }
    exec(code("Compaction", "python"), scope)
    assert load_memory(base, "planner", "event_log") == list(range(50, 150))
    assert load_memory(base, "planner", "old") is None
    assert (base / "agents/planner/memory/archive/old.json").is_file()


def test_an_event_log_compacts_itself(base: Path) -> None:
    make_org(base, resume("planner"))
    for number in range(4):
        append_memory_event(base, "planner", "log", number, max_entries=3, clock=FrozenClock())
    kept = load_memory(base, "planner", "log")
    assert [event["event"] for event in kept] == [1, 2, 3]
    assert {event["timestamp"] for event in kept} == {"2026-01-01T00:00:00.000Z"}


# --- tools -------------------------------------------------------------------------------------

TOOLS = {name: check for name, _, check in table("Tools (`lemming/tools.py`)")}


def test_the_tools_are_the_eight_of_the_table_and_some_that_came_since() -> None:
    assert set(TOOLS) <= set(SHIPPED)
    since = set(SHIPPED) - set(TOOLS)  # must be granted, as others
    assert not any(ToolRegistry.get(name).always_allowed for name in since)
    always = {name for name in TOOLS if ToolRegistry.get(name).always_allowed}
    assert always == {name for name, check in TOOLS.items() if check == "Always allowed"}


@pytest.mark.parametrize("tool", [name for name, check in TOOLS.items() if check != "Always allowed"])
def test_a_tool_with_a_check_must_be_granted_first(base: Path, tool: str) -> None:
    make_org(base)
    (base / "agents").mkdir()
    assert "refused by permissions.tools" in used(base, tool, {})


@pytest.mark.parametrize("tool", [name for name, check in TOOLS.items() if check == "Always allowed"])
def test_an_always_allowed_tool_needs_no_grant(base: Path, tool: str) -> None:
    make_org(base)
    (base / "agents").mkdir()
    args: dict[str, Any] = {"key": "k", "value": 1} if tool == "memory_write" else {}
    assert "refused" not in used(base, tool, {}, **args)


@pytest.mark.parametrize("tool", ["file_read", "file_write", "file_list"])
def test_a_file_tool_is_checked_by_the_printed_permission(base: Path, tool: str) -> None:
    make_org(base)
    (base / "agents").mkdir()
    (base / "shared").mkdir()
    (base / "shared/a.txt").write_text("text of a")
    key = TOOLS[tool].removeprefix("file_access.")
    args: dict[str, Any] = {"path": "./shared/a.txt" if tool != "file_list" else "./shared"}
    if tool == "file_write":
        args["content"] = "new"
    allowed = {"tools": [tool], "file_access": {key: ["./shared"]}}
    assert f"refused by permissions.{TOOLS[tool]}" in used(base, tool, {"tools": [tool]}, **args)
    assert "refused" not in used(base, tool, allowed, **args)


def test_create_agent_is_restricted_to_hr(base: Path) -> None:
    make_org(base)
    (base / "agents").mkdir()
    new: dict[str, Any] = {"name": "eve", "title": "E", "instructions": "x", "model_key": "scripted"}
    granted = {"tools": ["create_agent"]}
    assert TOOLS["create_agent"] == "Restricted to `hr"
    assert "create_agent_allowed ['hr']" in used(base, "create_agent", granted, **new)
    (base / "agents/planner/resume.json").unlink()
    assert "created eve" in used(base, "create_agent", granted, by="hr", **new)
    assert load_agent(base, "eve").title == "E"


def test_a_custom_tool_as_printed(base: Path) -> None:
    scope: dict[str, Any] = {"Path": Path}
    exec(code("Custom Tools", "python"), scope)
    try:
        assert issubclass(scope["CustomTool"], Tool)
        make_org(base)
        (base / "agents").mkdir()
        assert used(base, "custom_tool", {"tools": ["custom_tool"]}, anything=1) == "Success"
        assert "Does something custom" in prompts(base, 1, "planner")
        assert scope["CustomTool"]().execute("planner", base) == ToolResult(True, "Success")
    finally:
        ToolRegistry.unregister("custom_tool")
