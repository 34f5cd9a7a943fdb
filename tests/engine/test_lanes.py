"""Turns wait for room in the lane of their model, and hold up no turn of another."""

from __future__ import annotations

from lemming.operations.turns.lanes import Lane, ReadyTurns

ORDER = ["slow-1", "slow-2", "slow-3", "quick-1", "quick-2"]
ROOM = {"slow": 1, "quick": 2}


def lane_of(name: str) -> Lane:
    lane = name.partition("-")[0]
    return Lane(lane, ROOM[lane])


def ready_turns() -> ReadyTurns:
    ready = ReadyTurns(ORDER, lane_of)
    for rank in (4, 2, 0, 3, 1):
        ready.add((rank, 0))
    return ready


def taken(ready: ReadyTurns) -> list[str]:
    """Take what there is room for."""
    names = []
    while item := ready.take():
        names.append(ORDER[item[0]])
    return names


def test_a_full_lane_holds_up_no_other() -> None:
    assert taken(ready_turns()) == ["slow-1", "quick-1", "quick-2"]


def test_a_turn_that_is_over_makes_room_in_its_lane() -> None:
    ready = ready_turns()
    taken(ready)
    ready.finish((3, 0))
    assert taken(ready) == []
    ready.finish((0, 0))
    assert taken(ready) == ["slow-2"]


def test_turns_of_a_row_count_in_the_lane_of_their_agent() -> None:
    ready = ReadyTurns(["quick-1"], lane_of)
    for number in (3, 1, 2):
        ready.add((0, number))
    assert [ready.take(), ready.take(), ready.take()] == [(0, 1), (0, 2), None]


def test_what_is_dropped_is_not_taken() -> None:
    ready = ready_turns()
    assert (ready.drop(), len(ready), ready.take()) == (5, 0, None)
