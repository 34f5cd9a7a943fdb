"""Calls of one reply that bring further results along: each is made once, under a key of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sampling import EVERYTHING
from workshop import Workshop, call

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.turn.turn_results import CallNumbers
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

pytestmark = pytest.mark.usefixtures("untried")

CODE = """
@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def look(ctx: ToolContext, name: str) -> str:
    with open(MADE, "a") as file:
        file.write(f"{name} {ctx.idempotency_key}\\n")
    if name == "a":
        ctx.emit("report", {"text": "secret", "not_before": "soon"})
    return f"{name} {ctx.call_id}"
"""
ABC = [call("look", name=name) for name in "abc"]
SCRIPT = [
    {"agent": "ada", "step": 0, "reply": say("working", tool_calls=ABC)},
    {"agent": "ada", "step": 1, "reply": say("done", tool_calls=[call("look", name="d")])},
]
BLOCKS = {"at": "out", "then": "block", "deny": ["secret"]}
ASKS = {"at": "out", "then": "ask", "when": {"field": "text", "op": "is", "value": "secret"}}
HUMAN = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
MODELS = {"human": {"provider": "human"}}


class Desk:
    """An organisation in which `ada` calls a, b and c at once, then d; `made`: what was called, with keys."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.shop, self.list = Workshop(base, **settings), base.parent / f"{base.name}-made"
        self.base = base
        self.shop.file(f"MADE = {str(self.list)!r}\n{CODE}")
        ada = self.shop.resume(turn={"max_steps": 2})
        ada["permissions"] = {**ada["permissions"], "read_outboxes": ["human"]}
        make_org(base, ada, HUMAN, script=SCRIPT, org=self.shop.settings, models=MODELS)

    def run(self) -> None:
        run_once(self.base, clock=FrozenClock())
        self.shop.org.close()

    @property
    def made(self) -> list[str]:
        return self.list.read_text().splitlines()

    @property
    def files(self) -> dict[str, Any]:
        found = tree(self.base, without=(".lemming", "config", "logs", "tools"))
        of_run = {"duration_ms": 0, "epoch": 0, "check": ""}
        records = [{**it, **of_run} for it in journal_lines(self.base, 1) if "index" in it]
        return {"": records} | {it: raw for it, raw in found.items() if not it.endswith("activity.log")}


@pytest.mark.parametrize(
    ("gates", "names"), [([], "abcd"), ([BLOCKS], "abcd"), ([ASKS], "abc")], ids=["moment", "refused", "waits"]
)
def test_what_a_call_brings_along_changes_no_number_of_those_after_it(
    tmp_path: Path, gates: list[Any], names: str
) -> None:
    desks = [Desk(tmp_path / f"{most}", gates=gates, max_parallel=most) for most in (1, 2, 8)]
    for desk in desks:
        desk.run()
    alone = desks[0]
    assert [line[0] for line in alone.made] == [*names]
    assert len({line[2:] for line in alone.made}) == len(names)
    for desk in desks[1:]:
        assert sorted(desk.made) == alone.made
        assert desk.files == alone.files
        assert run(["-C", str(desk.base), "replay"]) == 0


def test_nothing_that_waits_has_the_number_of_a_call(tmp_path: Path) -> None:
    asks_for_b = {"at": "call", "tool": "look", "when": {"field": "args.name", "op": "is", "value": "b"}}
    desk = Desk(tmp_path / "org", gates=[ASKS, {**asks_for_b, "then": "ask"}])
    desk.run()
    requests = [it.payload for it in read_outbox_entries(desk.base, "ada") if it.kind == "request"]
    assert sorted(it["call"]["id"] for it in requests) == ["1/ada/1", "1/ada/3"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("most", [1, 2, 8])
def test_wherever_the_engine_is_killed_each_call_keeps_its_key(tmp_path: Path, most: int) -> None:
    calm = Desk(tmp_path / "calm", max_parallel=1, durability="tick")
    calm.run()
    cut_off = 0
    for point in range(1, 200, 1 if EVERYTHING else 7):
        desk = Desk(tmp_path / f"{point}", max_parallel=most, durability="tick")
        try:
            with crash_at(point):
                run_once(desk.base, clock=FrozenClock())
            break
        except Crash:
            desk.run()
        cut_off += 1
        assert {*desk.made} == {*calm.made}, f"after {point} steps"
        assert desk.files == calm.files, f"after {point} steps"
    assert cut_off


class Numbers(CallNumbers):
    """Numbers of calls, with as many results beside them as a test says."""

    def __init__(self, *recorded: int) -> None:
        self.results = list[dict[str, Any]]()
        super().__init__({*recorded}.__contains__, self.results)

    def with_results(self, count: int) -> Numbers:
        self.results[:] = [{}] * count
        return self

    def made(self, index: int, results: int) -> int:
        self.begin_call(self.get_reply_number(index))
        return self.with_results(results).assign()


def test_a_journal_of_the_time_when_places_were_numbers_goes_on_by_them() -> None:
    numbers = Numbers(0, 2)
    numbers.begin_reply(3)
    assert numbers.made(0, 0) == 0
    # The first call brought a result along.
    assert numbers.with_results(2).get_recorded_number(numbers.get_reply_number(1)) == 2
    assert numbers.made(1, 2) == 2
    assert numbers.made(2, 3) == 3
    numbers.with_results(4).begin_reply(1)
    assert numbers.get_reply_number(0) == 4


def test_a_number_that_is_taken_beside_calls_is_none_of_theirs() -> None:
    numbers = Numbers()
    numbers.begin_reply(2)
    numbers.made(0, 0)
    assert numbers.with_results(1).reserve() == 2
    assert numbers.made(1, 2) == 1
    numbers.with_results(3).begin_reply(1)
    assert numbers.get_reply_number(0) == 3


def test_what_waits_beside_calls_has_a_number_that_none_of_them_gets() -> None:
    numbers = Numbers()
    numbers.begin_reply(3)
    taken = [numbers.reserve()]
    made = [numbers.made(0, 0)]
    taken.append(numbers.with_results(1).reserve())
    made += [numbers.made(place, place) for place in (1, 2)]
    assert (made, taken) == ([0, 1, 2], [3, 4])


def test_a_call_that_results_stand_before_has_no_number_of_theirs() -> None:
    numbers = Numbers().with_results(3)
    assert numbers.next_free() == 3
    numbers.begin_call(None)
    assert numbers.assign() == 3
    assert numbers.with_results(2).next_free() == 4
