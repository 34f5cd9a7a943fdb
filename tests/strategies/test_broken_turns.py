"""The edge of a turn: what breaks it is its agent's failed turn, recorded as such, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.tools import EngineTool, ToolRegistry, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.strategies import Act, Steps, StrategyInputs, Turn, TurnReply, strategy
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

ONE = {"take": "one"}


def put(base: Path, author: str, kind: str, payload: dict[str, Any], tick: int = 0) -> None:
    """Write an entry by hand."""
    entry = {"id": "0123456789ab", "tick": tick, "agent": author, "kind": kind, "payload": payload}
    file = base / f"agents/{author}/outbox/{tick:08}_0123456789ab.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**entry, "tags": [], "created_at": ""}))


def turns(base: Path) -> dict[str, TurnReport]:
    """Run a tick, and return its turns by agent."""
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}


@pytest.fixture
def brittle() -> Iterator[dict[str, Any]]:
    """A strategy that raises `given` before a turn begins, and `called` within it; `end` is how it ends."""
    breaks: dict[str, Any] = {}

    def given(_: StrategyInputs) -> dict[str, Any]:
        if "given" in breaks:
            raise breaks["given"]
        return {}

    @strategy("brittle", given=given)
    def steps(turn: Turn) -> Steps:
        if "called" in breaks:
            raise breaks["called"]
        return _steps(turn, breaks.get("end", "done"))

    yield breaks
    unregister("strategy", "brittle")


def _steps(turn: Turn, end: Any) -> Steps:
    reply = yield from turn.ask_reply(turn.prompt)
    yield from turn.act(reply)
    return end  # type: ignore[no-any-return]


def org_of(base: Path, **turn: Any) -> Path:
    """Make an organisation in which ada thinks in the brittle way, between two who do not."""
    ada = resume("ada", turn={"strategy": "brittle", **turn})
    return make_org(base, resume("aaron"), ada, resume("zed"), script=[{"reply": say("hi")}])


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("place", ["given", "called"])
def test_what_breaks_a_turn_fails_it_alone_and_the_next_one_goes_on(
    base: Path, brittle: dict[str, Any], place: str, at_once: int
) -> None:
    org_of(base)
    (base / "config/org.json").write_text(json.dumps({"max_parallel": at_once}))
    brittle[place] = TypeError("unhashable type: 'list'")
    for _ in range(2):
        found = turns(base)
        assert {name: turn.status for name, turn in found.items()} == {
            "aaron": "done", "ada": "failed", "zed": "done",
        }  # fmt: skip
        assert found["ada"].error == "TurnBroke"
        assert "TypeError: unhashable type: 'list', at tests/strategies/test_broken_turns.py:" in found["ada"].reason
    brittle.clear()
    assert turns(base)["ada"].status == "done"
    assert [len(verify_org(base).findings), *(it.tick for it in replay_ticks(base, [1, 2, 3]))] == [0, 1, 2, 3]


def test_a_turn_that_breaks_after_its_answer_has_spent_it_and_wrote_nothing(
    base: Path, brittle: dict[str, Any]
) -> None:
    org_of(base)
    brittle["end"] = ["done"]
    found = turns(base)["ada"]
    assert (found.status, found.error, found.calls, found.credits) == ("failed", "TurnBroke", 1, 1.0)
    assert read_state(base, "ada").credits == 1.0
    assert not [*base.glob("agents/ada/outbox/*")]
    assert [it.not_repeatable for it in replay_ticks(base, [1])] == [("ada",)]


def test_a_request_whose_turns_break_fails_after_three(base: Path, brittle: dict[str, Any]) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")
    org_of(base, **ONE)
    put(base, "zed", "request", {"text": "what?", "target": "ada"})
    brittle["end"] = ["done"]
    assert [turns(base)["ada"].error for _ in range(4)] == ["TurnBroke", "TurnBroke", "TurnBroke", ""]
    (answer,) = [json.loads(file.read_text()) for file in base.glob("agents/ada/outbox/*")]
    assert answer["payload"]["status"] == "failed"
    assert answer["payload"]["text"] == "3 turns came to nothing"


@pytest.mark.parametrize("place", ["given", "called"])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_what_says_nothing_about_a_text_ends_the_run(
    base: Path, brittle: dict[str, Any], place: str, error: Exception
) -> None:
    org_of(base)
    brittle[place] = error
    with pytest.raises(type(error)):
        run_once(base, clock=FrozenClock())
    brittle.clear()
    assert {turn.status for turn in turns(base).values()} == {"done"}


REFERENCES = {
    "a list": ["0123456789ab"],
    "a list of lists": [["0123456789ab"]],
    "an object": {"id": "0123456789ab"},
    "5,000 digits": f"zed/{'9' * 5000}_0123456789ab",
    "a number": 7,
    "nothing": "",
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["message", "status", "response", "request"])
@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_a_reference_that_names_nothing_stops_nobody(
    base: Path, capsys: pytest.CaptureFixture[str], kind: str, reference: Any
) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")
    quiet = {"wake": "addressed"}
    make_org(base, resume("ada", turn=ONE), resume("bob", schedule=quiet), resume("zed"))
    keys = ("reply_to", "parent", "hands_on", "cancels", "owed_to", "path", "conversation")
    put(base, "zed", kind, {**dict.fromkeys(keys, reference), "text": "x", "target": ["ada", "bob"]})
    for _ in range(2):
        assert [(it.agent, it.reason) for it in turns(base).values() if it.status == "failed"] == []
    for command in ("status", "requests", "findings", "doctor"):
        assert run(["-C", str(base), command]) < 10, capsys.readouterr().err


def test_who_answers_in_a_list_has_answered_for_turns_and_views_alike(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")
    answer = say("here", kind="response")
    answer["outbox_entries"][0]["payload"]["reply_to"] = ["0123456789ab"]
    make_org(
        base, resume("ada", turn=ONE), resume("zed"), script=[{"agent": "ada", "reply": answer}, {"reply": say("hi")}]
    )
    put(base, "zed", "request", {"text": "what?", "target": "ada"})
    turns(base)
    assert run(["-C", str(base), "requests", "--json"]) == 0
    assert '"end":"answered"' in capsys.readouterr().out.replace(" ", "")
    assert turns(base)["ada"].request == ""


ENDS_OF_THE_CALENDAR = ("9999-12-31T23:59:00-05:00", "0001-01-01T00:00:00+05:00", "9999-12-31", "9999-12-31 9:00")


@pytest.mark.parametrize("at", ENDS_OF_THE_CALENDAR)
def test_a_moment_at_an_end_of_the_calendar_is_none(base: Path, capsys: pytest.CaptureFixture[str], at: str) -> None:
    pytest.importorskip("lemming.capabilities.gates.gate_format")
    gate = {"at": "call", "tool": "remind_me", "when": {"field": "own", "op": "is", "value": False}}
    call = {"tool": "remind_me", "args": {"text": "x", "at": at}}
    person = resume("human", model={"key": "human"})
    ada = resume("ada", permissions={"tools": ["remind_me"]}, gates=[{**gate, "then": "block"}])
    script = [{"reply": say("hi", tool_calls=[call])}]
    make_org(base, ada, person, script=script, models={"human": {"provider": "human"}})
    assert turns(base)["ada"].tools[0]["outcome"] == "failed"
    assert run(["-C", str(base), "send", "ada", "hello", "--at", at]) == 2
    assert "expected a time" in capsys.readouterr().err
    put(base, "human", "message", {"text": "x", "not_before": at})
    assert turns(base)["ada"].status in ("done", "waiting")


class Breaks(EngineTool):
    """A tool whose planning breaks."""

    name, description, tool_class = "breaks", "Breaks.", "write"

    def plan(self, context: ToolContext) -> ToolResult:
        """Break."""
        raise OverflowError("date value out of range")


def test_a_call_that_breaks_as_gates_look_at_it_is_a_failed_call(base: Path) -> None:
    pytest.importorskip("lemming.capabilities.gates.gate_format")
    gate = {"at": "call", "tool": "breaks", "when": {"field": "own", "op": "is", "value": False}}
    ada = resume("ada", permissions={"tools": ["breaks"]}, gates=[{**gate, "then": "block"}])
    call = {"tool": "breaks", "args": {}}
    make_org(
        base, ada, resume("zed"), script=[{"agent": "ada", "reply": say("hi", tool_calls=[call])}, {"reply": say("hi")}]
    )
    ToolRegistry.register(Breaks())
    try:
        found = turns(base)
    finally:
        ToolRegistry.unregister("breaks")
    assert [turn.status for turn in found.values()] == ["waiting", "done"]
    assert [tool["outcome"] for tool in found["ada"].tools] == ["failed"]
    (line,) = (it for it in journal_lines(base, 1) if it["type"] == "tool_finished")
    assert line["output"] == "breaks failed: OverflowError: date value out of range"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Act(TurnReply()), "the strategy must ask for an answer before it acts"),
        ("hello", "the strategy must yield Ask or Act, got str"),
    ],
)
def test_a_strategy_that_yields_what_it_must_not_says_so(base: Path, step: Any, why: str) -> None:
    @strategy("brittle")
    def steps(_: Turn) -> Steps:
        yield step
        return "done"

    try:
        turn = turns(org_of(base))["ada"]
    finally:
        unregister("strategy", "brittle")
    assert (turn.status, turn.error, turn.calls) == ("failed", "StrategyFailed", 0)
    assert why in turn.reason
