"""Strategies in resumes: how each asks and acts in an organisation, and how its turns end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.ext import make_field
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.strategies import Steps, Turn, strategy
from lemming.testing import FrozenClock, SkippingClock, make_org, resume, say, tree

LIST = {"tool": "file_list", "args": {}}
AGAIN = {"reply": say("again", tool_calls=[LIST])}
DRAFT = {"reply": say("short")}


def turn_of(base: Path, *script: dict[str, Any], agents: tuple[dict[str, Any], ...] = (), **turn: Any) -> TurnReport:
    """Take one turn of ada, and return its report."""
    blocks = turn.pop("blocks", {})
    permissions = {"read_outboxes": ["*"], "tools": ["file_write", "file_list", "shell"]}
    ada = resume("ada", **{"permissions": permissions, **blocks}, turn=turn)
    make_org(base, ada, *agents, script=[*script])
    return run_once(base, clock=SkippingClock()).turns[0]


def texts(base: Path) -> list[str]:
    """Return what has left ada."""
    files = sorted(base.glob("agents/ada/outbox/*.json"))
    return [json.loads(file.read_text())["payload"]["text"] for file in files]


@dataclass(frozen=True)
class Loud:
    """Options of a strategy of a test's own."""

    times: int = make_field(2, "Replies.", ge=1)
    words: str = make_field("louder", "What is asked for.")


@pytest.fixture
def own() -> Any:
    """A strategy that a test brings."""

    @strategy("aloud", options=Loud)
    def aloud(turn: Turn) -> Steps:
        messages = turn.prompt
        for _ in range(turn.options.times):
            if turn.options.times == 9:
                raise KeyError("nine")
            reply = yield from turn.ask_reply(messages)
            messages += [{"role": "user", "content": turn.options.words}]
        yield from turn.act(reply)
        return "done" if turn.options.times < 8 else "finished"  # type: ignore[return-value]

    yield
    unregister("strategy", "aloud")


@pytest.mark.usefixtures("own")
def test_a_strategy_of_ones_own_has_options_that_are_checked(base: Path) -> None:
    turn = turn_of(base, DRAFT, strategy="aloud", options={"times": 3})
    assert (turn.calls, texts(base)) == (3, ["short"])
    assert run(["-C", str(base), "replay"]) == 0


@pytest.mark.usefixtures("own")
def test_without_the_plugin_a_tick_is_told_and_a_replay_says_what_is_missing(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn_of(base, DRAFT, strategy="aloud")
    unregister("strategy", "aloud")
    assert run(["-C", str(base), "tick", "1"]) == 0
    assert run(["-C", str(base), "replay"]) == 3
    assert 'there is no strategy "aloud"' in capsys.readouterr().err
    (turn,) = run_once(base, clock=FrozenClock()).turns
    assert (turn.status, turn.calls) == ("failed", 0)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("times", "why"), [(9, "KeyError"), (8, "finished")])
def test_a_strategy_that_breaks_fails_its_turn_and_no_other(base: Path, times: int, why: str) -> None:
    turn = turn_of(base, DRAFT, strategy="aloud", options={"times": times})
    assert (turn.status, turn.end, turn.error) == ("failed", "failed", "StrategyFailed")
    assert why in turn.reason
    assert texts(base) == []


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ({"strategy": "alound"}, ['mean "aloud"?']),
        ({"strategy": "plan_execute"}, ["it was removed; write the plan yourself"]),
        ({"strategy": "reflexion", "options": {"rounds": 2}}, ["it was removed", '"verify"']),
        ({"strategy": "react", "options": {"a": 1}}, ["has no options"]),
        ({"options": {"a": 1}}, ['requires "strategy"']),
        ({"strategy": "aloud", "options": {"times": 0}},
         ["/turn/options/times: turn.options.times", "expected a number of at least 1, got 0"]),
        ({"strategy": "aloud", "options": {"times": "2"}}, ['expected a whole number, got "2"', "write 2"]),
        ({"strategy": "aloud", "options": {"time": 1, "wrods": "a"}},
         ["/turn/options/time:", 'mean "times"?', "/turn/options/wrods:", 'mean "words"?']),
    ],
)  # fmt: skip
def test_validate_says_of_a_strategy_what_is_wrong_where_and_what_to_write(
    base: Path, capsys: pytest.CaptureFixture[str], turn: dict[str, Any], said: list[str]
) -> None:
    make_org(base, resume("ada", turn=turn))
    assert run(["-C", str(base), "validate"]) == 3
    told = "".join(capsys.readouterr())
    assert [words for words in said if words not in told] == []
    assert "Input should" not in told


def test_a_call_that_gives_the_same_again_and_again_is_hinted_at_and_then_ends_the_turn(base: Path) -> None:
    turn = turn_of(base, {"reply": say("again", tool_calls=[LIST])}, strategy="react")
    assert (turn.status, turn.end, turn.calls) == ("done", "repeats", 4)
    assert read_state(base, "ada").results == ()


def test_a_turn_that_has_done_the_same_again_and_again_may_take_the_hint(base: Path) -> None:
    took = {"contains": "has given the same three times", "reply": say("well then")}
    turn = turn_of(base, took, {"reply": say("again", tool_calls=[LIST])}, strategy="react")
    assert (turn.end, turn.calls) == ("done", 4)
    assert "well then" in texts(base)


def test_polling_that_gives_something_else_goes_on(base: Path) -> None:
    """Each look gives another list of files."""
    writes = [
        {
            "step": n,
            "reply": say("on", tool_calls=[{"tool": "file_write", "args": {"path": f"{n}", "content": "x"}}, LIST]),
        }
        for n in range(6)
    ]
    turn = turn_of(base, *writes, {"reply": say("over")}, strategy="react")
    assert (turn.end, turn.calls) == ("done", 7)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("end", "more", "turn"),
    [
        ("done", [], {}),
        ("repeats", [AGAIN], {}),
        ("step_limit", [AGAIN], {"max_steps": 2}),
        ("deadline", [*({"step": it, **AGAIN} for it in (0, 1)), {**AGAIN, "delay_s": 600}], {"deadline_s": 60}),
        ("bad_reply", [{"reply": "no contract"}], {}),
        ("no_answer", [{"error": "RequestRejected"}], {}),
    ],
)
def test_react_comes_to_each_end_and_replay_agrees(
    base: Path, end: str, more: list[dict[str, Any]], turn: dict[str, Any]
) -> None:
    last = [DRAFT] if end == "done" else []
    report = turn_of(base, *more, *last, strategy="react", **turn)
    assert report.end == end
    before = tree(base)
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0
    assert tree(base) == before


@pytest.mark.parametrize("credits", [1, 2, 3])
def test_credits_that_end_on_the_way_lose_nothing(base: Path, credits: int) -> None:
    blocks = {"credits": {"max_credits": credits}}
    more = {"contains": "Results of your", "reply": say("more", tool_calls=[{"tool": "memory_read", "args": {}}])}
    begins = {"reply": say("begin", tool_calls=[LIST])}
    report = turn_of(base, more, begins, strategy="react", blocks=blocks)
    assert (report.status, report.end, report.calls) == ("waiting", "out_of_credits", credits)
    assert run(["-C", str(base), "replay"]) == 0
