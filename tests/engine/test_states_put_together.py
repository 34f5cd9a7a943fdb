"""Turns that are taken at once start from one state: put together, they come to what turns in a row would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.write_offs import WriteOff
from lemming.operations.turns.state_merge import merge_states

BASE = AgentState(
    tick=3, turns=4, credits=2.0, cost_usd=0.5, unpriced_calls=1, input_tokens=10, output_tokens=5,
    passed_on=1.0, failed=2, aside={"judges": 0.5}, lost=WriteOff(1, 0.25, 0.125, 7),
)  # fmt: skip


def put(one: dict[str, Any], other: dict[str, Any], base: AgentState = BASE) -> AgentState:
    """Return the state after two turns that were taken at once, each of which changed these values."""
    return merge_states(base, replace(base, **one), replace(base, **other))


@pytest.mark.parametrize(
    ("key", "one", "other", "both"),
    [
        ("turns", 5, 5, 6),
        ("failed", 3, 2, 3),
        ("failed", 2, 3, 3),
        ("credits", 2.1, 2.2, 2.3),
        ("credits", MAX_AMOUNT, 3.0, MAX_AMOUNT),
        ("passed_on", 1.5, 3.0, 3.5),
        ("cost_usd", 0.75, 1.5, 1.75),
        ("cost_usd", MAX_AMOUNT, 1.5, MAX_AMOUNT),
        ("unpriced_calls", 2, 3, 4),
        ("input_tokens", 110, 1010, 1110),
        ("output_tokens", 15, 25, 35),
        ("aside", {"judges": 0.75}, {"judges": 1.5}, {"judges": 1.75}),
        ("aside", {"judges": 0.5}, {"judges": 0.5, "other": 1.0}, {"judges": 0.5, "other": 1.0}),
        ("aside", {"judges": 0.5, "other": 1.0}, {"judges": 0.75}, {"judges": 0.75, "other": 1.0}),
        ("lost", WriteOff(2, 0.5, 0.25, 14), WriteOff(3, 1.0, 0.5, 28), WriteOff(4, 1.25, 0.625, 35)),
        ("lost", WriteOff(1, 0.25, 0.125, 7), WriteOff(2, 0.5, 0.25, 14), WriteOff(2, 0.5, 0.25, 14)),
        ("soft_cap_warned", True, False, True),
        ("soft_cap_warned", False, True, True),
        ("soft_cap_warned", False, False, False),
        ("results", ({"tool": "a"},), ({"tool": "b"},), ({"tool": "a"}, {"tool": "b"})),
        ("serving", "eve/1", "", "eve/1"),
        ("serving", "eve/1", "eve/2", "eve/2"),
        ("loops", {"x": 1}, {"x": 1}, {"x": 2}),
        ("loops", {"x": 1}, {"y": 1}, {"y": 1}),
        ("loops", {"x": 1}, {}, {"x": 1}),
    ],
)
def test_both_turns_count(key: str, one: Any, other: Any, both: Any) -> None:
    assert getattr(put({key: one}, {key: other}), key) == both


@pytest.mark.parametrize(
    ("base", "one", "other", "both"),
    [(None, None, None, None), (None, 0.25, None, 0.25), (None, None, 0.5, 0.5), (None, 0.25, 0.5, 0.75)],
)
def test_dollars_that_are_not_known_add_nothing(
    base: float | None, one: float | None, other: float | None, both: float | None
) -> None:
    assert put({"cost_usd": one}, {"cost_usd": other}, replace(BASE, cost_usd=base)).cost_usd == both


@pytest.mark.parametrize(("one", "other", "both"), [(None, None, None), (0.5, None, 0.5), (None, 0.5, 0.5)])
def test_of_what_is_lost_the_dollars_that_are_known_count(
    one: float | None, other: float | None, both: float | None
) -> None:
    found = put(
        {"lost": WriteOff(1, 1.0, one, 5)}, {"lost": WriteOff(1, 1.0, other, 5)}, replace(BASE, lost=WriteOff())
    )
    assert found.lost == WriteOff(2, 2.0, both, 10)


def test_a_turn_that_came_no_further_counts_on_from_where_both_began() -> None:
    base = replace(BASE, loops={"x": 2})
    assert put({"loops": {}}, {"loops": {"x": 3}}, base).loops == {"x": 3}
    assert put({"loops": {"x": 3}}, {"loops": {"x": 3}}, base).loops == {"x": 4}
    assert put({"loops": {"x": 3}}, {"loops": {}}, base).loops == {}


def test_the_later_turn_says_where_the_agent_stands() -> None:
    found = put({"turn": 1, "status": "failed", "end": "deadline"}, {"turn": 2, "status": "done", "tick": 4})
    assert (found.tick, found.turn, found.status, found.end) == (4, 2, "done", "")


def test_what_either_was_shown_is_read() -> None:
    one = {"read": ReadMark({"eve": 3, "bob": 9})}
    other = {"read": ReadMark({"eve": 5, "cyd": 1})}
    assert put(one, other).read.through == {"eve": 5, "bob": 9, "cyd": 1}


def test_each_turn_changes_its_own_request_and_leaves_the_others() -> None:
    first, second, third = (OpenRequest(request=f"eve/{number}", turns=1) for number in (1, 2, 3))
    base = replace(BASE, requests=(first, second, third))
    went_on = replace(first, turns=2)
    found = put({"requests": (went_on, second, third)}, {"requests": (first, third)}, base)
    assert sorted(found.requests, key=lambda it: it.request) == [went_on, third]


def test_what_was_in_vain_is_forgotten_where_no_result_waits() -> None:
    assert put({"in_vain": {"x": 1}}, {"in_vain": {"y": 2}}).in_vain == {}
    waits = {"results": ({"tool": "a"},)}
    assert put({"in_vain": {"x": 1}, **waits}, {"in_vain": {"y": 2}}).in_vain == {"x": 1, "y": 2}
