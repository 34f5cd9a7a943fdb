"""What a turn costs in an organisation that uses nothing beyond it: calls are counted, nothing is timed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.orgs import WARM_TICKS, make, running

AGENTS, TICKS = 20, 2
MOST_CALLS = {"one": 1420, "all": 1740}
"""So many calls of functions, those of Python itself among them, may a turn make, by whom the agents read.

When it is more, something that most organisations do not use is looked at in every turn.
"""


def calls_of_a_turn(base: Path, reading: str) -> float:
    """Return how many calls an engine makes for a turn, once it knows the organisation."""
    org = make(base, AGENTS, reading, org={"durability": "off"})
    work, count = running(org, TICKS, warm=WARM_TICKS[reading]), 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count / AGENTS / TICKS


@pytest.mark.parametrize("reading", MOST_CALLS)
def test_a_turn_makes_no_more_calls_than_it_did(tmp_path: Path, reading: str) -> None:
    calls = calls_of_a_turn(tmp_path / "org", reading)
    assert MOST_CALLS[reading] / 2 < calls <= MOST_CALLS[reading]
