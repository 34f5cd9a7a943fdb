"""A tool of one's own that takes too long is left behind: it holds neither tick nor engine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.journal_tools.repair.unknown_calls import find_unknown_calls, plan_retry, retry_call
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread, wait_slices
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.operations.open_org import open_org
from lemming.testing import journal_lines, make_org, resume, say


class Slow(Tool):
    """Waits until the test is over."""

    name = "slow"
    description = "Waits."
    timeout_s = 0.05
    calls: ClassVar[int] = 0
    begun: ClassVar[queue.SimpleQueue[str]]
    released: ClassVar[threading.Event]

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        """Wait."""
        Slow.calls += 1
        Slow.begun.put(self.name)
        Slow.released.wait()
        return ToolResult(True, "late")


class Patient(Slow):
    """As slow, and may be run again; the organisation says how long it may take."""

    name = "patient"
    repeatable = True
    timeout_s = None


class Endless(Slow):
    """As slow, and may take all the time there is."""

    name = "endless"
    timeout_s = 86_400


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the tools of this file while a test runs, and let their threads end after it."""
    Slow.calls, Slow.begun, Slow.released = 0, queue.SimpleQueue(), threading.Event()
    for tool in (Slow(), Patient(), Endless()):
        ToolRegistry.register(tool)
    yield
    Slow.released.set()
    for name in ("slow", "patient", "endless"):
        ToolRegistry.unregister(name)


def org(base: Path, tool: str, **settings: Any) -> Path:
    reply = say("waiting", tool_calls=[{"tool": tool, "args": {}}])
    return make_org(
        base,
        resume("ada", permissions={"tools": [tool]}),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        script=[{"agent": "ada", "tick": 1, "reply": reply}, {"reply": say("hello")}],
        org=settings,
    )


def test_a_call_that_takes_too_long_is_left_behind_and_told_as_unknown(base: Path) -> None:
    ada, bob = run_once(org(base, "slow")).turns
    text = "INTERRUPTED: it took longer than 0.05 s and was left behind; it may or may not have happened"
    assert (ada.status, ada.remarks, bob.status) == ("waiting", [f"slow: {text}"], "done")
    assert [result["output"] for result in read_state(base, "ada").results] == [text]
    assert [call.id for call in find_unknown_calls(base, [1])] == ["1/ada/0"]


def test_what_it_gives_later_is_not_looked_at_and_it_is_not_run_again(base: Path) -> None:
    run_once(org(base, "slow"))
    Slow.released.set()
    run_once(base)
    (finished,) = (record for record in journal_lines(base, 1) if record["type"] == "tool_finished")
    assert finished["output"].startswith("INTERRUPTED")
    Slow.begun.get(timeout=PATIENCE_S)  # its thread may begin late
    assert Slow.calls == 1


def test_a_person_may_have_it_run_again_and_it_stays_unknown_while_it_gives_nothing(base: Path) -> None:
    run_once(org(base, "slow"))
    with open_org(base) as runtime:
        result = retry_call(runtime, plan_retry(runtime, "1/ada/0"))
    assert result.output.startswith("INTERRUPTED")
    (call,) = find_unknown_calls(base, [1])
    for _ in range(2):
        Slow.begun.get(timeout=PATIENCE_S)  # their threads may begin late
    assert (call.was_retried, Slow.calls) == (True, 2)


def test_the_organisation_says_how_long_a_tool_may_take_that_does_not(base: Path) -> None:
    ada, _ = run_once(org(base, "patient", tool_timeout_s=0.02)).turns
    assert ada.remarks == []
    (result,) = read_state(base, "ada").results
    assert result["output"] == "patient: it took longer than 0.02 s and was left behind"


@pytest.mark.long
def test_an_engine_that_is_to_end_does_not_wait_for_a_tool_that_hangs(base: Path) -> None:
    org(base, "endless")
    stop = threading.Event()

    def end_as_it_runs() -> None:
        Slow.begun.get()
        stop.set()

    threading.Thread(target=end_as_it_runs, daemon=True).start()
    report = run_once(base, stop=stop)
    assert not report.is_complete
    assert [record["type"] for record in journal_lines(base, 1)][-1] == "turn_stopped"
    ada, bob = run_once(base).turns
    unknown = {"tool": "endless", "success": False, "outcome": "interrupted", "code": "LMG-606"}
    assert (ada.tools, bob.status) == ([unknown], "done")
    assert "INTERRUPTED" in read_state(base, "ada").results[0]["output"]
    assert Slow.calls == 1


def test_work_on_a_thread_ends_as_it_would_here() -> None:
    def fail() -> None:
        raise TimeoutError("of its own")

    assert run_on_thread(lambda: 7, Deadline(60), name="test") == 7
    with pytest.raises(TimeoutError, match="of its own"):
        run_on_thread(fail, Deadline(60), name="test")


def test_work_that_is_under_way_when_the_engine_is_to_end_has_a_moment_left() -> None:
    stop, go = threading.Event(), threading.Event()
    stop.set()
    assert next(wait_slices(Deadline(60), stop)) > 0
    assert [*wait_slices(Deadline(60), stop, grace_s=0)] == []
    with pytest.raises(WorkAbandoned):
        run_on_thread(go.wait, Deadline(0), name="test", stop=stop)
    go.set()
    assert run_on_thread(go.wait, Deadline(60), name="test", stop=stop)


def test_a_tool_without_time_is_refused_at_registration() -> None:
    class Never(Slow):
        """May take no time at all."""

        timeout_s = 0

    with pytest.raises(TypeError, match="more than 0"):
        ToolRegistry.register(Never())
