"""`list_agents` and `create_agent`: a new agent can do what its resume says, and no more than its creator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tool_desk import Desk

from lemming.kernel.agents import load_agent
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import ToolRegistry

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


@pytest.mark.parametrize("tools", [["file_write"], ["create_agent"], ["file_read", "file_write"], ["telepathy"]])
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


def test_a_new_agent_gets_half_of_what_its_creator_has_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path, credits={"max_credits": 50, "soft_cap": 10})
    desk.write("config/credits.json", '{"alpha": {"max_credits": 20}}')
    write_state(tmp_path, "alpha", AgentState(tick=1, credits=4, passed_on=6))
    output = desk.do("create_agent", **NEW)
    assert output.endswith("not in this tick and has 5 of your credits")
    scout = load_agent(tmp_path, "scout")
    assert (scout.credits.max_credits, scout.credits.soft_cap) == (5, 2.5)


def test_a_new_agent_gets_what_it_is_given_and_never_more_than_is_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path, credits={"max_credits": 10})
    assert "you have 10 credits left to pass on; it was to get 10.5" in desk.refusal(
        "create_agent", **NEW, max_credits=10.5
    )
    desk.do("create_agent", **NEW, max_credits=10)
    assert load_agent(tmp_path, "scout").credits.max_credits == 10


def test_who_has_nothing_left_creates_nobody(tmp_path: Path) -> None:
    desk = Desk(tmp_path, credits={"max_credits": 10})
    write_state(tmp_path, "alpha", AgentState(tick=1, credits=10))
    assert "you have 0 credits left" in desk.refusal("create_agent", **NEW)


def test_the_agents_that_one_without_limit_creates_have_none_either_unless_told(desk: Desk) -> None:
    desk.do("create_agent", **NEW)
    desk.do("create_agent", **{**NEW, "name": "second"}, max_credits=3)
    limits = [load_agent(desk.base, name).credits.max_credits for name in ("scout", "second")]
    assert limits == [None, 3]


def test_without_an_engine_a_new_agents_credits_come_out_of_its_creators_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, credits={"max_credits": 8})
    desk.write("config/org.json", '{"create_agent_allowed": ["alpha"]}')
    create = ToolRegistry.get("create_agent")
    for name in ("a", "b", "c"):
        assert create.execute("alpha", tmp_path, **{**NEW, "name": name}).success
    limits = [load_agent(tmp_path, name).credits.max_credits for name in ("a", "b", "c")]
    assert limits == [4, 2, 1]
    assert read_state(tmp_path, "alpha").consumed_credits == 7


def test_a_name_that_has_an_allocation_already_is_refused(desk: Desk) -> None:
    desk.write("config/credits.json", '{"scout": {"max_credits": 1000}}')
    assert "config/credits.json names" in desk.refusal("create_agent", **NEW)


@pytest.mark.parametrize("key", ["program", "human", "gpt-17"])
def test_a_new_agent_gets_its_creators_model_or_one_that_the_organisation_grants(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path)
    desk.write("config/models.json", '{"program": {"provider": "cli", "options": {"command": ["sh"]}}}')
    refusal = desk.refusal("create_agent", **NEW, model_key=key)
    assert f'no model key "{key}" for new agents; refused by config/org.json create_agent_models []' in refusal
    assert refusal.endswith("(you can give: default)")
    granting = Desk(tmp_path, org=OrgSettings(create_agent_allowed=["alpha"], create_agent_models=["program"]))
    granting.do("create_agent", **NEW, model_key="program")
    assert load_agent(tmp_path, "scout").model.key == "program"


def test_an_organisation_does_not_outgrow_its_limit(tmp_path: Path) -> None:
    desk = Desk(tmp_path, org=OrgSettings(create_agent_allowed=["alpha"], create_agent_max_agents=2))
    desk.call("create_agent", **NEW)
    refusal = desk.refusal("create_agent", **{**NEW, "name": "third"})
    assert refusal == "create_agent: refused by config/org.json create_agent_max_agents 2: there are 2 agents"


@pytest.mark.parametrize("name", ["../evil", "", "a/b", "CON", "x" * 64, "é", "-x", "a b"])
def test_a_name_that_is_none_is_refused(desk: Desk, name: str) -> None:
    assert "a name has 1 to 63 characters" in desk.refusal("create_agent", **{**NEW, "name": name})


def test_nobody_is_created_with_a_name_that_stands_for_everybody(desk: Desk) -> None:
    assert "must not be an agent's name" in desk.refusal("create_agent", **{**NEW, "name": "all"})


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
