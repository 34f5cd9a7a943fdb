"""A tool whose effect lies outside the folder runs at most once, however the world ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from bill import Bill
from fault_injection import ENDS, CrashPoint, End, Image, restore_image, watch_crash_points
from peace import folder, run
from sampling import EVERYTHING

from lemming.engine import run_once
from lemming.journal_tools.repair.unknown_calls import find_unknown_calls, plan_retry, retry_call
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.operations.open_org import open_org
from lemming.testing import Crash, journal_lines, make_org, resume, say

pytestmark = pytest.mark.crash

TICKS = 2


class Gong(Tool):
    """Something that cannot be taken back."""

    name = "gong"
    description = "Strikes the gong."
    struck: ClassVar[int] = 0
    dies: ClassVar[bool] = False

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        if Gong.dies:
            raise Crash
        Gong.struck += 1
        return ToolResult(True, "struck")


class SlowGong(Gong):
    """One that is struck at once and sounds for longer than a tool may take."""

    timeout_s = 0.1
    sounding: ClassVar[threading.Event] = threading.Event()

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        """Sound until the next one is struck, so that one thread is left at most."""
        SlowGong.sounding.set()
        mine = SlowGong.sounding = threading.Event()
        super().execute(agent_name, base_path)
        mine.wait()
        return ToolResult(True, "late")


def unknown(base: Path) -> int:
    """Return of how many calls it is said that they may or may not have happened."""
    records = [record for tick in range(1, TICKS + 1) for record in journal_lines(base, tick)]
    return sum("may or may not have happened" in record.get("output", "") for record in records)


SLOW_ENDS: tuple[End, ...] = ("kill", "strict") if EVERYTHING else ("kill",)
GONGS = [*((Gong, end) for end in ENDS if end != "blocks"), *((SlowGong, end) for end in SLOW_ENDS)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("gong", "end"), GONGS)
def test_an_outside_effect_happens_at_most_once_and_is_shown_when_unknown(
    gong: type[Gong], end: End, tmp_path: Path
) -> None:
    ToolRegistry.register(gong())
    reply = say("striking", tool_calls=[{"tool": "gong", "args": {}}])
    make_org(tmp_path / "org", resume("ada", permissions={"tools": ["gong"]}), script=[{"reply": reply}])
    found: list[tuple[Image, int]] = []

    def hear(point: CrashPoint) -> None:
        found.append((point.image, Gong.struck))

    Gong.struck = 0
    with watch_crash_points(tmp_path / "org", end, hear, is_wanted=lambda number: EVERYTHING or number % 4 == 1):
        run(tmp_path / "org", TICKS, Bill())
    assert Gong.struck == TICKS
    for left, struck in found:
        Gong.struck = struck
        with folder() as base:
            restore_image(left, base)
            run(base, TICKS, Bill())
            assert TICKS - unknown(base) <= Gong.struck <= TICKS
            assert gong is Gong or unknown(base) == TICKS


@pytest.mark.sample(3)
@pytest.mark.parametrize("end", [end for end in ENDS if end != "blocks"])
def test_a_call_that_a_person_has_run_again_runs_once_however_the_world_ends(end: End, tmp_path: Path) -> None:
    base = with_an_unknown_call(tmp_path / "org")
    found: list[tuple[Image, int]] = []

    def hear(point: CrashPoint) -> None:
        found.append((point.image, Gong.struck))

    Gong.struck = 0
    with watch_crash_points(base, end, hear), open_org(base) as runtime:
        retry_call(runtime, plan_retry(runtime, "1/ada/0"))
    assert Gong.struck == 1
    assert {struck for _, struck in found} == {0, 1}
    for left, struck in found:
        with folder() as copy:
            unknown = find_unknown_calls(restore_image(left, copy), journal_ticks(copy))
            is_told = not unknown or unknown[0].was_retried
            assert is_told or not struck, "what may have happened twice is said to the person"
            assert unknown or struck, "only what has run is settled"
            run_once(copy)
    assert Gong.struck == 1, "nothing runs it again but a person"


def with_an_unknown_call(base: Path) -> Path:
    """Make an organisation that was killed as ada's one call ran, and has gone on since."""
    ToolRegistry.register(Gong())
    reply = say("striking", tool_calls=[{"tool": "gong", "args": {}}])
    make_org(
        base, resume("ada", permissions={"tools": ["gong"]}), script=[{"tick": 1, "reply": reply}, {"reply": say("")}]
    )
    Gong.dies = True
    try:
        with pytest.raises(Crash):
            run_once(base)
    finally:
        Gong.dies = False
    run_once(base)
    return base


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_turn_that_is_given_up_tells_the_agent_what_its_tools_did(attempts: int, tmp_path: Path) -> None:
    base = with_a_second_call_that_kills(tmp_path / "org", attempts)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.error, turn.tools) == (
        "failed",
        "Interrupted",
        [{"tool": "gong", "success": True, "outcome": "ok"}],
    )
    run_once(base)
    prompt = prompt_of(base, 2)
    assert '"tool": "gong"' in prompt
    assert '"output": "struck"' in prompt
    assert Gong.struck == 1


def test_a_turn_that_is_given_up_while_a_call_is_unknown_says_so_to_agent_and_person(tmp_path: Path) -> None:
    base = with_a_second_call_that_kills(tmp_path / "org", 3)
    journal = base / "logs/ticks/00000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    cut = next(number for number, line in enumerate(lines) if b'"tool_finished"' in line)
    journal.write_bytes(b"".join(lines[:cut]))
    for _ in range(3):  # killed each time before the call's unknown end is recorded
        with pytest.raises(Crash), fs.observe_changes(die_at_the_second_record()):
            run_once(base)
    (turn,) = run_once(base).turns
    assert turn.remarks == ["gong: INTERRUPTED: the engine stopped while this ran; it may or may not have happened"]
    assert [call.id for call in find_unknown_calls(base, [1])] == ["1/ada/0"]
    run_once(base)
    assert "INTERRUPTED" in prompt_of(base, 2)
    assert Gong.struck == 1


def with_a_second_call_that_kills(base: Path, attempts: int) -> Path:
    """Make an organisation whose engine dies as ada's model is asked after her tool ran: in every attempt."""
    ToolRegistry.register(Gong())
    make_org(
        base,
        resume("ada", permissions={"tools": ["gong"]}, turn={"max_steps": 2}),
        script=[
            {"tick": 1, "step": 0, "reply": say("striking", tool_calls=[{"tool": "gong", "args": {}}])},
            {"reply": say("")},
        ],
        org={"max_attempts": attempts},
    )
    Gong.struck = 0

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.call == 1:
            raise Crash

    for _ in range(attempts + 1):  # the first one got further than the ones that resume it
        with pytest.raises(Crash):
            run_once(base, notify=die)
    return base


def die_at_the_second_record() -> Callable[[str, str], None]:
    """Return an observer that ends the world after one record: that the turn has been resumed."""
    records: list[str] = []

    def die(operation: str, path: str) -> None:
        if operation == "append" and path.startswith("logs/ticks/"):
            records.append(path)
            if len(records) == 2:
                raise Crash

    return die


def prompt_of(base: Path, tick: int) -> str:
    (started,) = (record for record in journal_lines(base, tick) if record["type"] == "turn_started")
    return str(started["prompt"][-1]["content"])
