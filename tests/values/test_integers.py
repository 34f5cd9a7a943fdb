"""Integers that come from outside have bounds, whatever they are written as."""

from __future__ import annotations

import pytest

from lemming.kernel.base.integers import LAST_TICK, MAX_INT, add_ticks, bounded_int, clamp_int, parse_int

HUGE = 10**4300 - 1


def repr_of(value: object) -> str:
    """Return the name of a parameter, which is no line of 4,300 digits."""
    return repr(value)[:20]


@pytest.mark.parametrize("value", [True, False, None, "7", 7.0, float("nan"), float("inf"), [7], {}])
def test_what_is_no_integer_is_none_for_every_accessor(value: object) -> None:
    assert (bounded_int(value), clamp_int(value)) == (None, None)


@pytest.mark.parametrize(
    ("value", "expected"), [(-1, None), (0, 0), (MAX_INT, MAX_INT), (MAX_INT + 1, None), (HUGE, None)], ids=repr_of
)
def test_an_integer_outside_its_bounds_is_none(value: int, expected: int | None) -> None:
    assert bounded_int(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(-1, None), (0, 0), (9, 9), (10, 9), (HUGE, 9), (-HUGE, None)], ids=repr_of
)
def test_an_integer_above_its_bound_is_clamped_to_it(value: int, expected: int | None) -> None:
    assert clamp_int(value, le=9) == expected


@pytest.mark.parametrize("text", ["", "-", "+1", " 1", "1 ", "1\n", "1_0", "1.0", "1e3", "0x10", "٣", "½", "1" * 20])
def test_a_text_that_is_no_bounded_integer_in_ascii_digits_is_none(text: str) -> None:
    assert parse_int(text) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("0042", 42), ("-0", 0), (b"12", 12), ("0" * 5000 + "1", 1)], ids=repr_of
)
def test_a_text_of_digits_is_read(text: str | bytes, expected: int) -> None:
    assert parse_int(text) == expected


def test_a_text_of_more_digits_than_python_reads_is_none() -> None:
    assert parse_int("9" * 5000) is None


def test_a_sum_of_ticks_ends_at_the_last_tick() -> None:
    assert add_ticks(5, HUGE) == LAST_TICK
