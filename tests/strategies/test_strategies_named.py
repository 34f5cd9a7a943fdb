"""Strategies in resumes: how each asks and acts in an organisation, and how its turns end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.libraries.memory_files import save_memory
from lemming.strategies import Steps, Turn, strategy
from lemming.testing import FrozenClock, SkippingClock, make_org, resume, say, tree

LIST = {"tool": "file_list", "args": {}}
AGAIN = {"reply": say("again", tool_calls=[LIST])}
PLAN = {"contains": "First make a plan", "reply": {"goal": "see", "steps": ["look", "tell"]}}
STEPS = [
    {"contains": "take step 1,", "reply": say("looked")},
    {"contains": "take step 2,", "reply": say("told")},
    {"contains": "Sum up", "reply": say("the end")},
]
BAD = {"contains": "Judge the draft", "reply": {"passes": False, "reason": "too short"}}
BETTER = {"contains": "A critic wants", "reply": say("a longer one")}
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


def test_a_plan_is_made_its_steps_are_taken_and_only_the_sum_up_leaves(base: Path) -> None:
    turn = turn_of(base, PLAN, *STEPS, strategy="plan_execute")
    assert (turn.status, turn.end, turn.calls) == ("done", "done", 4)
    assert texts(base) == ["the end"]
    plan = load_memory(base, "ada", "plan")
    assert [(step["step"], step["status"], step["result"]) for step in plan["steps"]] == [
        ("look", "done", "looked"),
        ("tell", "done", "told"),
    ]


def test_a_plan_goes_on_in_the_next_turn_as_a_person_has_left_it(base: Path) -> None:
    wakes = {"schedule": {"wake": "changed"}}
    script = (PLAN, {"contains": '"say": 1', "reply": say("no")}, *STEPS)
    turn = turn_of(base, *script, strategy="plan_execute", max_steps=1, blocks=wakes)
    assert (turn.status, turn.end) == ("waiting", "step_limit")
    assert turn.reason == "step 2 of 2 of your plan is to go on"
    plan = load_memory(base, "ada", "plan")
    save_memory(base, "ada", "plan", {**plan, "steps": [*plan["steps"][:1]]})
    assert [(turn.end, turn.calls) for turn in run_once(base, clock=FrozenClock()).turns] == [("done", 1)]
    assert texts(base) == ["the end"]


@pytest.mark.parametrize(
    ("value", "why"),
    [("nothing", "not a valid plan"), ({"goal": "g", "steps": [{"stp": "x"}]}, "steps/0"), ({"goal": "g"}, "steps")],
)
def test_a_plan_that_a_person_broke_is_told_and_stays(base: Path, value: Any, why: str) -> None:
    make_org(base, resume("ada", turn={"strategy": "plan_execute"}), script=[PLAN, *STEPS])
    save_memory(base, "ada", "plan", value)
    (turn,) = run_once(base, clock=FrozenClock()).turns
    assert turn.status == "failed"
    assert "agents/ada/memory/plan.json" in turn.reason
    assert why in turn.reason
    assert load_memory(base, "ada", "plan") == value


def test_a_step_that_fails_is_planned_around_so_often_and_then_summed_up(base: Path) -> None:
    failing = {"contains": "Now take step", "reply": say("FAILED: no way")}
    again = {"contains": "Plan again", "reply": {"goal": "see", "steps": ["try", "rest"]}}
    script = ({"contains": "Sum up", "reply": say("it did not work")}, again, PLAN, failing)
    turn = turn_of(base, *script, strategy="plan_execute", options={"replans": 1})
    assert (turn.end, turn.calls, texts(base)) == ("done", 5, ["it did not work"])
    statuses = [step["status"] for step in load_memory(base, "ada", "plan")["steps"]]
    assert statuses == ["failed", "failed", "skipped"]


def test_a_step_that_takes_too_many_replies_has_failed(base: Path) -> None:
    looking = {"contains": "Now take step", "reply": say("hm", tool_calls=[LIST])}
    more = {
        "contains": "Results of your tool calls",
        "reply": say("hm", tool_calls=[{"tool": "memory_read", "args": {}}]),
    }
    script = (PLAN, looking, more, {"contains": "Sum up", "reply": say("over")})
    turn = turn_of(base, *script, strategy="plan_execute", options={"replans": 0, "step_replies": 2})
    assert (turn.end, texts(base)) == ("done", ["over"])
    assert load_memory(base, "ada", "plan")["steps"][0]["result"] == "FAILED: it took 2 replies"


def test_a_draft_is_judged_and_revised_and_only_the_last_text_leaves(base: Path) -> None:
    turn = turn_of(base, BAD, BETTER, DRAFT, strategy="reflexion")
    assert (turn.end, turn.calls, texts(base)) == ("done", 3, ["a longer one"])


def test_a_good_draft_ends_the_rounds(base: Path) -> None:
    good = {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}}
    turn = turn_of(base, good, DRAFT, strategy="reflexion", options={"rounds": 3})
    assert (turn.calls, texts(base)) == (2, ["short"])


def test_another_agents_resume_judges_and_its_turn_is_none(base: Path) -> None:
    critic = resume("critic", instructions="Only poems are good.", schedule={"wake": "addressed"})
    turn_of(base, BAD, BETTER, DRAFT, agents=(critic,), strategy="reflexion", options={"agent": "critic"})
    assert texts(base) == ["a longer one"]
    assert read_state(base, "ada").credits == 3
    assert read_state(base, "critic").credits == 0


def test_a_command_judges_what_it_is_given_as_its_input(base: Path) -> None:
    options = {"command": ["grep", "-q", "longer"]}
    turn = turn_of(base, BETTER, DRAFT, strategy="reflexion", options=options)
    assert (turn.calls, texts(base)) == (2, ["a longer one"])
    assert [(use["tool"], use["success"]) for use in turn.tools] == [("shell", False)]


@pytest.mark.parametrize(
    ("script", "options", "blocks", "remark"),
    [
        ([{"contains": "Judge", "error": "RequestRejected"}, DRAFT], {}, {}, "the script says so"),
        ([{"contains": "Judge", "reply": "hm"}, DRAFT], {}, {}, "the draft left as it was"),
        ([DRAFT], {}, {"credits": {"max_credits": 1}}, "out of credits"),
        ([DRAFT], {"command": ["true"]}, {"permissions": {"tools": []}}, "the critic could not run"),
        ([DRAFT], {"model": "gone"}, {}, "gone"),
    ],
)
def test_a_critic_that_gives_no_verdict_costs_no_draft(
    base: Path, script: list[dict[str, Any]], options: dict[str, Any], blocks: dict[str, Any], remark: str
) -> None:
    turn = turn_of(base, *script, strategy="reflexion", options=options, blocks=blocks)
    assert (turn.status, texts(base)) == ("done", ["short"])
    assert any(remark in said for said in turn.remarks)


@dataclass(frozen=True)
class Loud:
    """Options of a strategy of a test's own."""

    times: int = 2


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
            messages += [{"role": "user", "content": "louder"}]
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


@pytest.mark.parametrize(
    ("turn", "blocks", "said"),
    [
        ({"strategy": "reflexon"}, {}, "reflexion"),
        ({"strategy": "reflexion", "options": {"round": 1}}, {}, "rounds"),
        ({"strategy": "reflexion", "options": {"rounds": 0}}, {}, "rounds"),
        ({"strategy": "reflexion", "options": {"agent": "a", "model": "b"}}, {}, "one of"),
        ({"strategy": "reflexion", "options": {"agent": "ada2"}}, {}, "ada"),
        ({"strategy": "reflexion", "options": {"model": "scriptd"}}, {}, "scripted"),
        ({"strategy": "reflexion", "options": {"command": ["true"]}}, {"permissions": {}}, "shell"),
        ({"strategy": "react", "options": {"a": 1}}, {}, "has no options"),
        ({"options": {"a": 1}}, {}, 'requires "strategy"'),
    ],
)
def test_validate_names_what_is_wrong_with_a_strategy(
    base: Path, capsys: pytest.CaptureFixture[str], turn: dict[str, Any], blocks: dict[str, Any], said: str
) -> None:
    make_org(base, resume("ada", turn=turn, **blocks))
    assert run(["-C", str(base), "validate"]) == 3
    told = capsys.readouterr()
    assert said in told.out + told.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 0}, ["/turn/options/rounds: turn.options.rounds", "expected a number of at least 1, got 0"]),
        ({"rounds": "2"}, ['expected a whole number, got "2"', "write 2"]),
        ({"rounds": 0, "model": 7}, ["/turn/options/rounds", "/turn/options/model", "expected text, got 7"]),
        ({"agent": "a", "model": "b"}, ["turn.options of strategy", "the critic must be one of"]),
        ({"round": 1, "agnet": "a"}, ["/turn/options/round:", "/turn/options/agnet:", 'mean "agent"?']),
    ],
)
def test_validate_says_of_options_what_is_wrong_where_and_what_to_write(
    base: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any], said: list[str]
) -> None:
    make_org(base, resume("ada", turn={"strategy": "reflexion", "options": options}))
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
@pytest.mark.parametrize("name", ["react", "plan_execute", "reflexion"])
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
def test_each_strategy_comes_to_each_end_and_replay_agrees(
    base: Path, name: str, end: str, more: list[dict[str, Any]], turn: dict[str, Any]
) -> None:
    good = {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}}
    last = [*STEPS, DRAFT] if end == "done" else []
    plan = [PLAN] if end != "no_answer" else []
    report = turn_of(base, good, *plan, *more, *last, strategy=name, **turn)
    assert report.end == end
    before = tree(base)
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0
    assert tree(base) == before


@pytest.mark.parametrize("name", ["react", "plan_execute", "reflexion"])
@pytest.mark.parametrize("credits", [1, 2, 3])
def test_credits_that_end_on_the_way_lose_nothing(base: Path, name: str, credits: int) -> None:
    blocks = {"credits": {"max_credits": credits}}
    more = {"contains": "Results of your", "reply": say("more", tool_calls=[{"tool": "memory_read", "args": {}}])}
    begins = {"reply": say("begin", tool_calls=[LIST])}
    report = turn_of(base, BAD, PLAN, more, begins, strategy=name, blocks=blocks)
    assert (report.status, report.end, report.calls) == ("waiting", "out_of_credits", credits)
    assert (load_memory(base, "ada", "plan") is not None) == (name == "plan_execute")
    assert run(["-C", str(base), "replay"]) == 0
