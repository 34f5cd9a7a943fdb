"""The architecture guide, line by line: the tick, the schedule, the formats, security.

JSON, tables and code are read from docs/architecture-guide.md, so that the two cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from guide import agent, code, json_of, prompts, section, table, used

from lemming.engine import get_firing_agents, load_tick, run_once
from lemming.kernel.agents import load_agent
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.schedule import AgentSchedule, fire_point
from lemming.libraries.memory_files import save_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.messages import cleanup_old_outbox_entries, write_outbox_entry
from lemming.testing import FrozenClock, make_org, resume

# --- the tick ----------------------------------------------------------------------------------


def test_a_tick_goes_as_the_chart_says(base: Path) -> None:
    make_org(base, resume("b"), resume("a"), resume("human", model={"key": "human"}))
    save_memory(base, "a", "goals", ["remembered"])
    events: list[str] = []
    run_once(base, notify=lambda event: events.append(f"{event.kind} {event.agent_name}".strip()))
    assert events == [
        *["tick_begins", "tick_started"],
        *["turn_started a", "model_asked a", "model_replied a", "turn_committed a"],
        *["turn_started b", "model_asked b", "model_replied b", "turn_committed b"],
        *["tick_committed", "tick_ends"],
    ]
    prompt = prompts(base, 1, "a")
    order = ["You are a", "# Instructions", "# Your memory", "remembered", "inbox", "# Your reply"]
    assert sorted(order, key=prompt.index) == order
    assert load_tick(base) == 2


def test_an_entry_older_than_the_retention_is_cleaned_up(base: Path) -> None:
    make_org(base, resume("planner"), org={"retention_ticks": 2})
    for tick in range(1, 6):
        write_outbox_entry(base, "planner", OutboxEntry(f"id{tick}", tick, "planner", "message", {}, [], ""))
    cleanup_old_outbox_entries(base, 5)
    assert [entry.tick for entry in read_outbox_entries(base, "planner", 10)] == [3, 4, 5]


def test_the_printed_message_flow_takes_three_ticks(base: Path) -> None:
    printed = re.findall(r"(\w+) → outbox/(\d{8})_\w+\.json\s+(\{.*\})", code("Message Flow Example", ""))
    lines = [(name, int(tick), json.loads(text)) for name, tick, text in printed]
    assert [(name, tick) for name, tick, _ in lines] == [("planner", 1), ("analyst", 2), ("planner", 3)]
    script: list[dict[str, Any]] = [
        {"agent": name, "tick": tick, "reply": {"outbox_entries": [entry]}} for name, tick, entry in lines
    ]
    make_org(
        base,
        resume("planner", schedule={"run_every_n_ticks": 2, "phase_offset": 1}),
        resume("analyst", schedule={"run_every_n_ticks": 2}),
        script=script,
    )
    for _ in range(3):
        run_once(base)
    for name, tick, entry in lines:
        (written,) = [found for found in read_outbox_entries(base, name) if found.tick == tick]
        assert (written.kind, written.payload) == (entry["kind"], entry["payload"])
        assert (base / f"agents/{name}/outbox/{tick:08d}_{written.id}.json").is_file()
    assert "Analyze data" in prompts(base, 2, "analyst")
    assert '"kind": "response"' in prompts(base, 3, "planner")


def test_the_printed_schedule_is_a_schedule() -> None:
    printed = json_of("Schedule Configuration")["schedule"]
    schedule = AgentSchedule(**printed)
    assert [tick for tick in range(12) if get_firing_agents([agent("a", 3, 1)], tick)] == [2, 5, 8, 11]
    assert (schedule.run_every_n_ticks, schedule.phase_offset) == (3, 1)


@pytest.mark.parametrize(
    ("offset", "point"),
    re.findall(r"^- offset=(\d) → fire_point = ([\d.]+)$", section("Fire Point Calculation"), re.MULTILINE),
)
def test_fire_points_are_the_printed_ones(offset: str, point: str) -> None:
    schedule = AgentSchedule(run_every_n_ticks=4, phase_offset=int(offset))
    assert fire_point(schedule) == float(point)
    formula = code("Fire Point Calculation", "python").partition("=")[2]
    assert eval(formula, {"phase_offset": int(offset), "N": 4}) == float(point)


def test_agents_execute_in_the_order_of_fire_point_and_name() -> None:
    team = [agent("d", 4, 1), agent("c", 4, 1), agent("b", 4, 2), agent("a", 4, 3), agent("z", 4, 0)]
    due = [found for found in team if (3 + found.schedule.phase_offset) % 4 == 0]
    assert get_firing_agents(team, 3) == sorted(due, key=lambda a: (fire_point(a.schedule), a.name))
    everybody = [dataclasses.replace(found, schedule=AgentSchedule(run_every_n_ticks=1)) for found in team]
    assert [found.name for found in get_firing_agents(everybody, 3)] == ["a", "b", "c", "d", "z"]


def test_where_the_guide_contradicts_itself_its_formula_and_its_table_win() -> None:
    assert "Lower `phase_offset` → lower fire_point → runs earlier" in section("Execution Order Guarantee")
    points = [fire_point(AgentSchedule(run_every_n_ticks=4, phase_offset=offset)) for offset in (1, 2, 3)]
    assert points == [0.75, 0.5, 0.25]


# --- formats -----------------------------------------------------------------------------------


def test_the_printed_entry_is_an_entry(base: Path) -> None:
    printed = json_of("Outbox Entry Format")
    make_org(base, resume("planner"), resume("analyst"))
    entry = OutboxEntry(**printed)
    path = write_outbox_entry(base, "planner", entry)
    assert path == base / "agents/planner/outbox/00000042_abc123def456.json"
    assert json.loads(path.read_text()) == printed
    assert list(json.loads(path.read_text())) == list(printed)
    path.write_text(code("Outbox Entry Format", "json"))
    assert read_outbox_entries(base, "planner", 10) == [entry]


def test_the_kinds_are_those_of_the_table() -> None:
    assert tuple(kind for kind, _ in table("Message Kinds")) == MESSAGE_KINDS


def test_the_printed_permissions_are_permissions(base: Path) -> None:
    make_org(base, resume("planner", **json_of("Permission Model")), resume("stranger"))
    planner = load_agent(base, "planner")
    assert planner.permissions.file_access.allow_read == ["./workspace", "./shared", "/data"]
    assert planner.may_read("analyst")
    assert planner.may_read("stranger"), '"*" is everybody'


def test_the_printed_folders_and_modules_are_there(base: Path) -> None:
    chart = code("File Structure", "")
    modules = re.findall(r"(\w+)\.py", chart)
    assert len(modules) == 8
    for name in modules:
        assert import_module(f"lemming.{name}")
    files = re.findall(r"(\w+\.json|engine\.log|shared/) +#", chart)
    assert files == ["models.json", "org.json", "credits.json", "engine.log", "shared/", "tick.json"]
    make_org(base, resume("planner"), org={})
    run_once(base)
    for place in ("config/models.json", "config/org.json", "logs/engine.log", "tick.json"):
        assert (base / place).is_file(), place


def test_credits_are_allocated_in_the_printed_file(base: Path) -> None:
    make_org(base, resume("planner", credits={"max_credits": 1000, "soft_cap": 500}))
    (base / "config/credits.json").write_text('{"planner": {"max_credits": 1}}')
    assert [run_once(base).turns[0].status for _ in range(2)] == ["done", "skipped"]


def test_the_human_agent_is_never_asked_and_is_read(base: Path) -> None:
    make_org(base, resume("human", model={"key": "human"}), resume("planner"))
    write_outbox_entry(base, "human", OutboxEntry("abc", 0, "human", "request", {"text": "Plan!"}, [], ""))
    assert {turn.agent: turn.status for turn in run_once(base).turns} == {"planner": "done", "human": "skipped"}
    assert "Plan!" in prompts(base, 1, "planner")


# --- security ----------------------------------------------------------------------------------


def test_paths_are_taken_for_what_they_are_and_not_for_how_they_are_written(base: Path) -> None:
    make_org(base)
    (base / "agents").mkdir()
    (base / "agents/planner/workspace").mkdir(parents=True)
    (base / "agents/planner/workspace/link").symlink_to(base / "config")
    granted = {"tools": ["file_read"]}
    for path in ("link/models.json", "../resume.json", str(base / "config/models.json"), "a/../../resume.json"):
        assert "refused by permissions.file_access.allow_read" in used(base, "file_read", granted, path=path)


def test_a_backend_that_keeps_failing_is_left_alone_for_a_while(base: Path) -> None:
    make_org(base, resume("planner"), script=[{"error": "Unavailable"}])
    entry = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
    (base / "config/models.json").write_text(json.dumps({"scripted": entry}))
    errors = [run_once(base, clock=FrozenClock()).turns[0].error for _ in range(7)]
    assert errors == ["Unavailable"] * 5 + ["CircuitOpen"] * 2
