"""A tool whose effect lies outside the folder runs at most once, however the world ends."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from trial import EVERYTHING, Bill, folder, run

from lemming.journal import read_journal
from lemming.testing import make_org, resume, say
from lemming.testing.faults import ENDS, End, Image, Point, restore, watch
from lemming.tools import Tool, ToolRegistry, ToolResult

pytestmark = pytest.mark.crash

TICKS = 2


class Gong(Tool):
    """Something that cannot be taken back."""

    name = "gong"
    description = "Strikes the gong."
    struck: ClassVar[int] = 0

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        Gong.struck += 1
        return ToolResult(True, "struck")


def interrupted(base: Path) -> int:
    records = [record for tick in range(1, TICKS + 1) for record in read_journal(base, tick)]
    return sum("INTERRUPTED" in record.get("output", "") for record in records)


@pytest.mark.parametrize("end", ENDS)
def test_an_outside_effect_happens_at_most_once_and_is_shown_when_unknown(end: End, tmp_path: Path) -> None:
    ToolRegistry.register(Gong())
    reply = say("striking", tool_calls=[{"tool": "gong", "args": {}}])
    make_org(tmp_path / "org", resume("ada", permissions={"tools": ["gong"]}), script=[{"reply": reply}])
    found: list[tuple[Image, int]] = []

    def hear(point: Point) -> None:
        found.append((point.left, Gong.struck))

    Gong.struck = 0
    with watch(tmp_path / "org", end, hear, wanted=lambda number: EVERYTHING or number % 4 == 1):
        run(tmp_path / "org", TICKS, Bill())
    assert Gong.struck == TICKS
    for left, struck in found:
        Gong.struck = struck
        with folder() as base:
            restore(left, base)
            run(base, TICKS, Bill())
            assert TICKS - interrupted(base) <= Gong.struck <= TICKS
