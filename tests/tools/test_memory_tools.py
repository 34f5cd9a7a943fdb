"""`memory_read` and `memory_write`: the agent's own memory, as its turn sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tool_desk import NOW, Desk

from lemming.kernel.memory import load_memory, make_memory_effect
from lemming.libraries.memory_files import save_memory


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk whose agent has no tools but the free ones."""
    return Desk(tmp_path, tools=[])


def test_what_is_saved_can_be_read(desk: Desk) -> None:
    assert desk.do("memory_write", key="goals", value={"a": [1, 2]}) == 'saved "goals"'
    assert load_memory(desk.base, "alpha", "goals") == {"a": [1, 2]}
    assert desk.do("memory_read", key="goals") == '{"a":[1,2]}'


def test_the_effect_is_that_of_every_other_way_to_remember(desk: Desk) -> None:
    assert desk.call("memory_write", key="goals", value=1).effects == (make_memory_effect("alpha", "goals", 1, NOW),)


def test_a_turn_reads_and_lists_what_it_has_saved(desk: Desk) -> None:
    save_memory(desk.base, "alpha", "kept", "old")
    desk.call("memory_write", key="kept", value="new")
    desk.call("memory_write", key="added", value=None)
    assert desk.call("memory_read", key="kept").output == '"new"'
    assert desk.call("memory_read", key="added").output == "null"
    assert desk.call("memory_read").output == "added\nkept"


def test_no_key_lists_the_keys(desk: Desk) -> None:
    assert desk.do("memory_read") == "(no memories yet)"
    desk.do("memory_write", key="b", value=1)
    desk.do("memory_write", key="a", value=1)
    assert desk.do("memory_read", key="") == "a\nb"


def test_an_unknown_key_is_answered_with_the_nearest(desk: Desk) -> None:
    desk.do("memory_write", key="goals", value=1)
    assert desk.refusal("memory_read", key="gaols") == 'memory_read: no memory "gaols" (did you mean "goals"?)'


@pytest.mark.parametrize("key", ["../../../x", "a/b", ".x", "../../beta/memory/goals"])
def test_a_key_that_leads_elsewhere_is_refused(desk: Desk, key: str) -> None:
    save_memory(desk.base, "beta", "goals", "private")
    for refusal in (desk.refusal("memory_read", key=key), desk.refusal("memory_write", key=key, value=1)):
        assert "a memory key has 1 to 120 characters" in refusal
        assert "private" not in refusal


@pytest.mark.parametrize(
    "arguments", [{}, {"key": "a"}, {"value": 1}, {"key": ["a"], "value": 1}, {"key": 5, "value": 1}]
)
def test_wrong_arguments_are_refused(desk: Desk, arguments: dict[str, Any]) -> None:
    assert desk.refusal("memory_write", **arguments).startswith('memory_write: "')


def test_a_value_beyond_the_limit_is_refused_and_the_rest_stands(desk: Desk) -> None:
    desk.call("memory_write", key="small", value=1)
    assert "larger than 262144 bytes" in desk.refusal("memory_write", key="big", value="x" * 3_000_000)
    assert desk.call("memory_read").output == "small"


def test_a_file_that_a_person_broke_is_named_and_not_replaced(desk: Desk) -> None:
    desk.write("agents/alpha/memory/goals.json", '{"value": ')
    for refusal in (desk.refusal("memory_read", key="goals"), desk.refusal("memory_write", key="goals", value=1)):
        assert refusal.startswith("agents/alpha/memory/goals.json:1:")
        assert "the engine does not replace it" in refusal


def test_long_memories_are_cut(desk: Desk) -> None:
    desk.do("memory_write", key="long", value="x" * 100_000)
    assert desk.do("memory_read", key="long").endswith("[cut: the first 32768 of 100002 bytes are shown]")
