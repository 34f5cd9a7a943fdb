"""How much of a long conversation a prompt holds: a window of the newest, a summary of the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from lemming.capabilities.context_window.context_window_capability import build_summary_message
from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.journal_records import ModelReplied, TurnStarted
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.kernel.providers import Message
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_loop import take_turn
from lemming.kernel.turn.turn_values import Answer, AnswerSource
from lemming.libraries.memory_files import save_memory
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

sys.path.insert(0, str(Path(__file__).parents[1] / "requests"))

from asked import PEOPLE, ask, person

LONG = "about the harvest of apples and what became of it " * 3
SUMS = {"contains": "Write the new summary", "reply": "They talked of the harvest."}


def conversing(base: Path, memory: dict[str, Any] | None, *script: dict[str, Any], **more: Any) -> Path:
    agent = resume("ada", schedule={"wake": "addressed"}, **({"memory": memory} if memory else {}), **more)
    make_org(base, person(), agent, models=PEOPLE, script=[*script, {"reply": say("noted", kind="response")}])
    return base


def talk(base: Path, times: int) -> None:
    for number in range(times):
        ask(base, "ada", f"{number}: {LONG}")
        run_once(base, clock=FrozenClock())


def turn_of_ada(base: Path) -> TurnReport:
    (turn,) = (it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "ada")
    return turn


def shown(base: Path, tick: int) -> list[list[Message]]:
    """Return what ada's model was shown in a tick, call by call, as it follows from the record."""

    class Recorded:
        """The answers of the record."""

        def __init__(self) -> None:
            self.asked: list[list[Message]] = []

        def has_call(self, index: int) -> bool:
            """Return False: no tool was called."""
            return False

        def take_urgent(self, *_: Any) -> dict[str, str]:
            """Return nothing: nobody said anything meanwhile."""
            return {}

        def ask(
            self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None
        ) -> Answer:
            """Return what the model said."""
            self.asked.append([*messages])
            replied = [it for it in records if isinstance(it, ModelReplied)]
            return Answer(replied[call].text, replied[call].at)

    records = load_tick_record(base, tick).turn_records("ada")
    (started,) = (it for it in records if isinstance(it, TurnStarted))
    answers = Recorded()
    take_turn(from_record(started, tick, ""), cast(AnswerSource, answers))
    return answers.asked


def told(base: Path, tick: int) -> str:
    (started,) = (it for it in journal_lines(base, tick) if it["type"] == "turn_started")
    return str(started["prompt"][-1]["content"])


def test_a_window_keeps_the_newest_and_says_how_many_are_left_out(base: Path) -> None:
    conversing(base, {"max_tokens": 300})
    talk(base, 5)
    prompt = told(base, 5)
    assert "Said before in this conversation, oldest first; 3 older ones are left out" in prompt
    assert f"3: {LONG}" in prompt
    assert f"1: {LONG}" not in prompt


def test_without_the_key_nothing_is_left_out_and_nothing_is_said_of_it(base: Path) -> None:
    conversing(base, None)
    talk(base, 4)
    assert "left out" not in told(base, 4)
    assert f"0: {LONG}" in told(base, 4)
    (started,) = (it for it in journal_lines(base, 4) if it["type"] == "turn_started")
    assert "given" not in started


def test_what_falls_out_is_summed_up_once_and_the_summary_is_a_memory(base: Path) -> None:
    conversing(base, {"strategy": "summary", "max_tokens": 320}, SUMS)
    talk(base, 5)
    asked = [tick for tick in range(1, 6) for it in journal_lines(base, tick) if "windows" in it.get("given", {})]
    assert asked == [4]
    calls = [len([it for it in journal_lines(base, 4) if it["type"] == "model_replied"])]
    assert calls == [2]
    kept = load_memory(base, "ada", "summary.human.talk")
    assert kept["text"] == "They talked of the harvest."
    later = told(base, 5)
    assert "# Said before that, summed up by you" in later
    assert "They talked of the harvest." in later
    assert "summary.human.talk" not in later
    assert f"0: {LONG}" not in later
    assert all(replayed.turns == 1 for replayed in replay_ticks(base, range(1, 6)))


def test_the_turn_for_which_it_was_made_is_shown_the_summary(base: Path) -> None:
    conversing(base, {"strategy": "summary", "max_tokens": 320}, SUMS)
    talk(base, 4)
    assert shown(base, 4)[1][-2] == build_summary_message("They talked of the harvest.")
    assert shown(base, 4)[0][-1]["content"].startswith("# Said since then, oldest first")


def test_a_person_may_edit_the_summary(base: Path) -> None:
    conversing(base, {"strategy": "summary", "max_tokens": 320}, SUMS)
    talk(base, 4)
    kept = load_memory(base, "ada", "summary.human.talk")
    save_memory(base, "ada", "summary.human.talk", {**kept, "text": "They talked of pears."})
    talk(base, 1)
    assert "They talked of pears." in told(base, 5)


@pytest.mark.parametrize("failure", [{"error": "AuthenticationFailed"}, {"reply": " "}])
def test_a_summary_that_cannot_be_had_leaves_a_window_and_costs_no_turn(base: Path, failure: dict[str, Any]) -> None:
    conversing(
        base,
        {"strategy": "summary", "max_tokens": 320},
        {**SUMS, **failure} if "reply" in failure else {"contains": SUMS["contains"], **failure},
    )
    talk(base, 3)
    ask(base, "ada", f"3: {LONG}")
    turn = turn_of_ada(base)
    assert turn.status == "done"
    assert any("what was said before is not summed up" in it for it in turn.remarks)
    assert load_memory(base, "ada", "summary.human.talk") is None
    assert [replayed.turns for replayed in replay_ticks(base, [4])] == [1]


def test_credits_that_end_after_the_summary_leave_the_request_as_it_was(base: Path) -> None:
    conversing(base, {"strategy": "summary", "max_tokens": 320}, SUMS, credits={"max_credits": 4})
    talk(base, 3)
    ask(base, "ada", f"3: {LONG}")
    turn = turn_of_ada(base)
    assert (turn.status, turn.error, turn.calls) == ("failed", "OutOfCredits", 1)


def test_an_inbox_is_a_window_too(base: Path) -> None:
    make_org(
        base,
        resume("ada", memory={"max_tokens": 100}, permissions={"read_outboxes": ["bob"]}),
        resume("bob"),
        script=[{"agent": "bob", "reply": say(LONG)}, {"reply": say("seen")}],
    )
    for _ in range(4):
        run_once(base, clock=FrozenClock())
    started = [it for it in journal_lines(base, 4) if it["type"] == "turn_started"]
    text = next(it for it in started if it["agent"] == "ada")["prompt"][-1]["content"]
    assert "older ones are left out" in text
