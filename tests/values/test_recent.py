"""Values that came up lately: each is new once, and however many come, only the newest are kept."""

from __future__ import annotations

import sys

from lemming.kernel.base.problems import MAX_VALUES, RecentValues


def test_a_value_is_new_once() -> None:
    recent = RecentValues()
    assert [recent.add(word) for word in ("a", "b", "a")] == [True, True, False]


def test_ten_times_as_many_values_take_no_more_room() -> None:
    rooms = []
    for count in (MAX_VALUES, 10 * MAX_VALUES):
        recent = RecentValues()
        for number in range(count):
            recent.add(f"wrong in tick {number}")
        rooms.append(sys.getsizeof(recent._values))
        assert len(recent._values) == MAX_VALUES
    assert rooms[1] <= 2 * rooms[0]


def test_the_oldest_values_are_forgotten_first() -> None:
    recent = RecentValues()
    for number in range(MAX_VALUES + 1):
        recent.add(number)
    assert not recent.add(1)
    assert recent.add(0)
