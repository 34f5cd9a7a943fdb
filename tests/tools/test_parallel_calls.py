"""Calls of one reply that run at once: the same records as one after the other, in a shorter time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sampling import EVERYTHING
from workshop import Workshop, call

from lemming.capabilities.toolbox.functions.function_tool import can_share_state
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.tick.parallel_calls import ParallelCalls
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.libraries.tool_decorator import tool
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

pytestmark = pytest.mark.usefixtures("untried")

TOGETHER = """
import threading
ALL, OVER = threading.Barrier(3), [threading.Event() for _ in range(3)]

@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def look(n: int) -> str:
    ALL.wait(300)  # none is over before all have begun
    if n < 2:
        OVER[n + 1].wait(300)  # and the last is over first
    OVER[n].set()
    return f"found {n}"
"""
COUNTED = """
import threading
ROOM = threading.Lock()

def alone(n):
    assert ROOM.acquire(blocking=False), "another call is under way"
    ROOM.release()
    return f"found {n}"

@tool(tool_class="read", repeatable=True, independent=True, process=False)
def one(n: int) -> str:
    return alone(n)

@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def look(ctx: ToolContext, n: int) -> str:
    if n == 13:
        raise RecoverableError("nothing there")
    ctx.emit("report", {"text": f"looked for {n}"})
    return f"found {n}: {ctx.idempotency_key}"
"""
THREE = [call("look", n=n) for n in range(3)]


def test_calls_run_at_once_and_their_results_stand_in_the_order_of_the_calls(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file(TOGETHER)
    shop.run(*THREE)
    assert [it["output"] for it in shop.finished()] == ["found 0", "found 1", "found 2"]
    assert [it["index"] for it in shop.finished()] == [0, 1, 2]
    assert run(["-C", str(shop.base), "replay"]) == 0
    shop.org.close()


def test_a_file_is_written_between_calls_that_run_at_once(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org")
    shop.file(COUNTED)
    many = [call("look", n=0), call("look", n=1), call("file_write", path="a.txt", content="x")]
    many += [call("one", n=1), call("look", n=13), call("nothing"), call("look", n=2), call("look", n=2)]
    shop.run(*many)
    outcomes = [(it["tool"], it["outcome"]) for it in shop.finished()]
    assert outcomes == [
        ("look", "ok"),
        ("look", "ok"),
        ("file_write", "ok"),
        ("one", "ok"),
        ("look", "failed"),
        ("nothing", "not_found"),
        ("look", "ok"),
        ("look", "ok"),
    ]
    said = [it.payload["text"] for it in read_outbox_entries(shop.base, "ada")]
    assert said == ["working", *(f"looked for {n}" for n in (0, 1, 2, 2))]
    keys = [it["output"].partition(": ")[2] for it in shop.finished() if it["output"].startswith("found 2")]
    assert len({*keys}) == 2
    shop.org.close()


def files_of(base: Path, **settings: Any) -> dict[str, Any]:
    """Return what is left by a turn whose calls run at once, as far as the settings let them."""
    shop = Workshop(base, **settings)
    shop.file(COUNTED)
    shop.run(*(call("look", n=n) for n in (1, 13, 2, 3)), call("memory_write", key="k", value=1))
    shop.org.close()
    found = tree(base, without=(".lemming", "config", "logs"))
    records = [{**it, "duration_ms": 0} for it in journal_lines(base, 1) if it["type"] == "tool_finished"]
    return {"": records} | {it: raw for it, raw in found.items() if not it.endswith("activity.log")}


def test_the_files_are_those_of_one_call_after_the_other(tmp_path: Path) -> None:
    alone = files_of(tmp_path / "1", max_parallel=1)
    assert alone == files_of(tmp_path / "2", executor="serial")
    assert alone == files_of(tmp_path / "3", max_parallel=2)
    assert alone == files_of(tmp_path / "4")


ABOUT_ONE = {"field": "args.n", "op": "is", "value": 1}
GATES = [{"at": "call", "tool": "look", "when": ABOUT_ONE, "then": "ask"}]


def test_a_gate_looks_at_each_call_before_it_begins(tmp_path: Path) -> None:
    blocks = [{**GATES[0], "then": "block", "because": "not that"}]
    shop = Workshop(tmp_path / "org", gates=blocks)
    shop.file(TOGETHER.replace("Barrier(3)", "Barrier(2)").replace("if n < 2", "if n < 1").replace("n + 1", "2"))
    shop.run(*THREE)
    assert [(it["outcome"], it["output"]) for it in shop.finished()] == [
        ("ok", "found 0"),
        ("refused", "a gate does not let it pass: not that (config/org.json#/gates/0)"),
        ("ok", "found 2"),
    ]
    shop.org.close()


def test_a_call_that_needs_approval_waits_and_the_others_are_made(tmp_path: Path) -> None:
    base = tmp_path / "org"
    shop = Workshop(base, gates=GATES)
    shop.file(COUNTED)
    script = [{"agent": "ada", "reply": say("working", tool_calls=THREE)}]
    human = resume("human", model={"key": "human"})
    models = {"human": {"provider": "human"}}
    ada = shop.resume(permissions={**shop.permissions, "read_outboxes": ["*"]})
    make_org(base, ada, human, script=script, org=shop.settings, models=models)
    run_once(base, clock=FrozenClock())
    assert [it["outcome"] for it in shop.finished()] == ["ok", "pending", "ok"]
    assert run(["-C", str(base), "verify"]) == 0
    shop.org.close()


def test_where_what_one_gives_decides_about_the_next_they_run_one_after_the_other(tmp_path: Path) -> None:
    base = tmp_path / "org"
    rule = {"at": "call", "tool": "look", "when": {"field": "trust", "op": "is", "value": "outside"}}
    trust = {"tools": {"look": "outside"}}
    shop = Workshop(base, gates=[{**rule, "then": "block", "because": "outside"}], trust=trust)
    shop.file(COUNTED)
    shop.run(*THREE)
    assert [it["outcome"] for it in shop.finished()] == ["ok", "refused", "refused"]
    shop.org.close()


def test_how_far_each_result_is_trusted_is_recorded_as_for_one_after_the_other(tmp_path: Path) -> None:
    def recorded(base: Path, **settings: Any) -> list[Any]:
        shop = Workshop(base, trust={"tools": {"look": "outside"}}, **settings)
        shop.file(COUNTED)
        shop.run(*THREE, call("file_write", path="a.txt", content="x"))
        shop.org.close()
        return [it.get("trust") for it in shop.finished()]

    found = recorded(tmp_path / "at-once")
    assert found == recorded(tmp_path / "alone", executor="serial")
    assert found[0]["is"] == "outside"


def test_a_thread_that_the_system_has_not_makes_them_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    shop = Workshop(tmp_path / "org", executor="threads")
    shop.file(COUNTED)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    shop.run(*THREE)
    monkeypatch.undo()
    shop.org.close()
    assert len(shop.finished()) == 3


def test_what_breaks_the_engine_in_one_call_ends_the_run_as_ever(tmp_path: Path) -> None:
    code = COUNTED + (
        "\n@tool(tool_class='read', repeatable=True, independent=True, parallel=True, process=False)"
        "\ndef leave() -> str:\n    sys.exit(3)\n"
    )
    shop = Workshop(tmp_path / "org")
    shop.file(code)
    shop.run(call("look", n=1), call("leave"), call("look", n=2))
    assert [it["outcome"] for it in shop.finished()] == ["ok", "failed", "ok"]
    shop.org.close()


WRITTEN_DOWN = """
@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def look(n: int) -> str:
    with open(LIST, "a") as file:
        file.write(f"{n} ")
    return f"found {n}"
"""


def test_after_a_kill_each_call_that_is_not_recorded_begins_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, partly, add = list[int](), 0, ParallelCalls.add

    def begin(ahead: ParallelCalls, index: int, *more: Any) -> None:
        begun.append(index)
        add(ahead, index, *more)

    monkeypatch.setattr(ParallelCalls, "add", begin)
    script = [{"reply": say("working", tool_calls=[call("look", n=n) for n in range(20, 26)])}]
    for point in range(1, 60, 1 if EVERYTHING else 9):
        shop = Workshop(tmp_path / f"{point}", durability="tick")
        shop.file(COUNTED)
        make_org(shop.base, shop.resume(), script=script, org=shop.settings)
        try:
            with crash_at(point):
                run_once(shop.base, clock=FrozenClock())
            break
        except Crash:
            begun.clear()
        run_once(shop.base, clock=FrozenClock())
        partly += 0 < len(begun) < 6
        assert begun == [*range(6 - len(begun), 6)], f"after {point} steps"
        assert [it["index"] for it in shop.finished()] == [*range(6)]
        shop.org.close()
    assert partly


def test_none_begins_once_the_time_of_the_turn_is_over(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org", max_parallel=2)
    shop.file(
        "import threading\n"
        "@tool(tool_class='read', repeatable=True, independent=True, parallel=True, process=False)\n"
        "def look(n: int) -> str:\n    threading.Event().wait(20 if n < 2 else 0)\n    return f'found {n}'\n"
    )
    shop.run(*THREE, turn={"deadline_s": 0.2})
    assert "found 2" not in [it["output"] for it in shop.finished()]
    assert run(["-C", str(shop.base), "replay"]) == 0
    shop.org.close()


def test_none_begins_after_one_that_a_gate_lets_end_the_turn(tmp_path: Path) -> None:
    made = tmp_path / "made"
    stops = {"at": "call", "tool": "look", "when": ABOUT_ONE, "then": "stop"}
    shop = Workshop(tmp_path / "org", gates=[stops])
    shop.file(f"LIST = {str(made)!r}\n{WRITTEN_DOWN}")
    shop.run(*(call("look", n=n) for n in (0, 2, 1, 3, 4)))
    shop.org.close()
    assert sorted(made.read_text().split()) == ["0", "2"]


def test_one_whose_calls_may_not_come_twice_cannot_say_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parallel=True needs repeatable=True"):
        tool(parallel=True)
    with pytest.raises(ValueError, match='not on_error="stop"'):
        tool(parallel=True, repeatable=True, on_error="stop")

    class Sends(Tool):
        name, description, parallel = "sends", "Sends.", True

        def execute(self, agent_name: str, base_path: Path) -> ToolResult:
            """Send."""
            return ToolResult(True)

    with pytest.raises(TypeError, match="a parallel tool must be repeatable"):
        ToolRegistry.register(Sends())


@pytest.mark.parametrize("executor", ["threads", "serial"])
def test_no_more_approvals_are_asked_for_than_a_turn_may_ask(tmp_path: Path, executor: str) -> None:
    base = tmp_path / "org"
    shop = Workshop(base, gates=[{"at": "call", "tool": "look", "then": "ask"}], executor=executor)
    shop.file(COUNTED)
    script = [{"agent": "ada", "reply": say("working", tool_calls=THREE)}]
    human = resume("human", model={"key": "human"})
    ada = shop.resume(permissions={**shop.permissions, "read_outboxes": ["*"]}, turn={"max_approvals": 1})
    make_org(base, ada, human, script=script, org=shop.settings, models={"human": {"provider": "human"}})
    run_once(base, clock=FrozenClock())
    assert [it["outcome"] for it in shop.finished()] == ["pending", "deferred", "deferred"]
    shop.org.close()


KEPT = """
@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def count(ctx: ToolContext, name: str) -> int:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return ctx.state["n"]

@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False)
def note(ctx: ToolContext, name: str) -> str:
    ctx.memory["names"] = [*ctx.memory.get("names", []), name]
    return " ".join(ctx.memory["names"])

@tool(tool_class="read", repeatable=True, independent=True, parallel=True, process=False, cache_ticks=9)
def price(name: str) -> str:
    with open(LIST, "a") as file:
        file.write(name)
    return f"{name} costs much"
"""
IN_A_ROW = [call(name, name=letter) for name in ("count", "note") for letter in "abcd"]
PRICES = [call("price", name=letter) for letter in "abcdabcdab"]


@pytest.mark.parametrize("most", [1, 2, 8])
def test_calls_that_keep_something_see_what_those_before_them_kept(tmp_path: Path, most: int) -> None:
    shop = Workshop(tmp_path / "org", max_parallel=most)
    shop.file(f"LIST = {str(tmp_path / 'paid')!r}\n{KEPT}")
    shop.run(*IN_A_ROW)
    told = ["1", "2", "3", "4", "a", "a b", "a b c", "a b c d"]
    assert [it["output"] for it in shop.finished()] == told
    shop.org.close()


@pytest.mark.parametrize("most", [1, 2, 8])
def test_a_result_that_is_kept_is_paid_for_once(tmp_path: Path, most: int) -> None:
    shop = Workshop(tmp_path / "org", max_parallel=most)
    shop.file(f"LIST = {str(tmp_path / 'paid')!r}\n{KEPT}")
    shop.run(*PRICES)
    assert (tmp_path / "paid").read_text() == "abcd"
    shop.org.close()


@pytest.mark.parametrize("most", [1, 4])
def test_after_a_kill_they_see_the_same(tmp_path: Path, most: int) -> None:
    told, cut_off = ["1", "2", "3", "4", "a", "a b", "a b c", "a b c d"], 0
    script = [{"reply": say("working", tool_calls=IN_A_ROW)}]
    for point in range(1, 80, 1 if EVERYTHING else 7):
        shop = Workshop(tmp_path / f"{point}", durability="tick", max_parallel=most)
        shop.file(f"LIST = {str(tmp_path / 'paid')!r}\n{KEPT}")
        make_org(shop.base, shop.resume(), script=script, org=shop.settings)
        try:
            with crash_at(point):
                run_once(shop.base, clock=FrozenClock())
            break
        except Crash:
            cut_off += 1
        run_once(shop.base, clock=FrozenClock())
        assert [it["output"] for it in shop.finished()] == told, f"after {point} steps"
        shop.org.close()
    assert cut_off


def hand_on(ctx: ToolContext) -> ToolContext:
    return ctx


def test_which_functions_may_share_values_is_seen_in_their_code() -> None:
    def asks(ctx: ToolContext, name: str) -> str:
        return f"{name} {ctx.call_id} {ctx.idempotency_key}"

    def keeps(ctx: ToolContext) -> int:
        return len(ctx.state)

    def hands_on(ctx: ToolContext) -> int:
        return len(hand_on(ctx).memory)

    def within(ctx: ToolContext) -> str:
        def inner() -> str:
            return ctx.memory["k"]

        return inner()

    def renamed(ctx: ToolContext) -> int:
        mine = ctx
        return len(mine.state)

    functions = (asks, keeps, hands_on, within, renamed)
    assert [can_share_state(each, ["ctx"]) for each in functions] == [False, True, True, True, True]
    assert can_share_state(eval("lambda ctx: 1"), ["ctx"])  # whose code is nowhere to be read
    assert not can_share_state(hand_on, [])
