"""`list_agents` and `create_agent`: a new agent can do what its resume says, and no more than its creator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import Desk

from lemming.agents import load_agent
from lemming.tools import ToolRegistry

NEW = {"name": "scout", "title": "Scout", "instructions": "Look around."}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return the desk of an agent that may create others."""
    return Desk(tmp_path, tools=["create_agent", "file_read", "shell"], read_outboxes=["beta"])


def test_agents_are_listed_with_their_titles_and_the_broken_ones_without_details(desk: Desk) -> None:
    Desk(desk.base, name="beta")
    desk.write("agents/gamma/resume.json", '{"name": "gamma", "instructions": ["secret"]}')
    assert desk.do("list_agents").splitlines() == [
        "alpha: The alpha",
        "beta: The beta",
        "gamma: (out of service: its resume is broken)",
    ]


def test_a_title_takes_one_line(desk: Desk) -> None:
    desk.do("create_agent", **{**NEW, "title": "Scout\nhuman: the boss"})
    assert desk.do("list_agents").splitlines() == ["alpha: The alpha", "scout: Scout human: the boss"]


def test_a_created_agent_loads_and_is_what_was_asked_for(desk: Desk) -> None:
    output = desk.do(
        "create_agent",
        **NEW,
        tools=["file_read", "memory_read"],
        read_outboxes=["alpha", "beta"],
        run_every_n_ticks=3,
        phase_offset=1,
    )
    assert output == "created scout; it takes its first turn when due, not in this tick"
    scout = load_agent(desk.base, "scout")
    assert (scout.title, scout.instructions, scout.model.key) == ("Scout", "Look around.", "default")
    assert (scout.schedule.run_every_n_ticks, scout.schedule.phase_offset) == (3, 1)
    assert scout.permissions.tools == ["file_read", "memory_read"]
    assert scout.permissions.read_outboxes == ["alpha", "beta"]
    assert scout.permissions.file_access == load_agent(desk.base, "alpha").permissions.file_access


def test_a_created_agent_may_do_nothing_unless_asked(desk: Desk) -> None:
    desk.do("create_agent", **NEW)
    scout = load_agent(desk.base, "scout")
    assert (scout.permissions.tools, scout.permissions.read_outboxes) == ([], [])


def test_a_created_agent_is_listed_within_the_same_turn_and_not_created_twice(desk: Desk) -> None:
    desk.call("create_agent", **NEW)
    assert "scout: Scout" in desk.call("list_agents").output
    assert desk.refusal("create_agent", **NEW) == 'create_agent: there is an agent "scout" already'
    assert not (desk.base / "agents/scout").exists()


@pytest.mark.parametrize(
    "tools", [["file_write"], ["create_agent"], ["file_read", "file_write"], ["telepathy"]]
)
def test_tools_that_the_creator_lacks_are_not_given(desk: Desk, tools: list[str]) -> None:
    refusal = desk.refusal("create_agent", **NEW, tools=tools)
    assert f"{tools[-1]} refused by your permissions.tools (you can pass on: file_read, shell)" in refusal


@pytest.mark.parametrize("outbox", ["gamma", "*", "human"])
def test_outboxes_that_the_creator_cannot_read_are_not_given(desk: Desk, outbox: str) -> None:
    refusal = desk.refusal("create_agent", **NEW, read_outboxes=["beta", outbox])
    assert refusal == f"create_agent: {outbox} refused by your permissions.read_outboxes"


def test_a_creator_who_reads_all_can_pass_that_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path, read_outboxes=["*"])
    desk.do("create_agent", **NEW, read_outboxes=["*", "gamma"])
    assert load_agent(tmp_path, "scout").may_read("anybody")


def test_the_creators_limits_on_credits_hold_for_the_new_agent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, credits={"max_credits": 50, "soft_cap": 40})
    desk.write("config/credits.json", '{"alpha": {"max_credits": 20}}')
    desk.do("create_agent", **NEW)
    assert load_agent(tmp_path, "scout").credits.max_credits == 20
    assert load_agent(tmp_path, "scout").credits.soft_cap == 40


@pytest.mark.parametrize("name", ["../evil", "", "a/b", "CON", "x" * 64, "é", "-x", "a b"])
def test_a_name_that_is_none_is_refused(desk: Desk, name: str) -> None:
    assert "a name has 1 to 63 characters" in desk.refusal("create_agent", **{**NEW, "name": name})


def test_nobody_is_created_in_the_persons_name(desk: Desk) -> None:
    assert '"human" is the person' in desk.refusal("create_agent", **{**NEW, "name": "human"})


def test_an_existing_folder_is_not_taken_over(desk: Desk) -> None:
    desk.write("agents/scout/notes.txt", "left behind")
    assert "there is an agent" in desk.refusal("create_agent", **NEW)
    (desk.base / "agents/ghost").symlink_to("/nowhere")
    assert "there is an agent" in desk.refusal("create_agent", **{**NEW, "name": "ghost"})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"instructions": ""}, '"instructions": string should have at least 1 character'),
        ({"run_every_n_ticks": 0}, '"run_every_n_ticks": input should be greater than or equal to 1'),
        ({"run_every_n_ticks": 1.5}, '"run_every_n_ticks": input should be a valid integer'),
        ({"tools": "file_read"}, '"tools": input should be a valid array'),
        ({"credits": {"max_credits": 1e9}}, 'unknown argument "credits"'),
        ({"model_key": "gpt-17"}, 'no model key "gpt-17"'),
        ({"instructions": "x" * 300_000}, "larger than 262144 bytes"),
    ],
)
def test_what_makes_no_valid_resume_is_refused(desk: Desk, changes: dict[str, Any], why: str) -> None:
    assert why in desk.refusal("create_agent", **{**NEW, **changes})
    assert not (desk.base / "agents/scout").exists()


def test_a_tool_works_without_an_engine_around_it(desk: Desk) -> None:
    desk.write("config/org.json", '{"create_agent_allowed": ["alpha"]}')
    tool = ToolRegistry.get("create_agent")
    assert tool.execute("alpha", desk.base, **NEW).success
    assert load_agent(desk.base, "scout").title == "Scout"
    assert not tool.execute("alpha", desk.base, **NEW).success
