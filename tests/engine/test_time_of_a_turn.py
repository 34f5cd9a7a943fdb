"""`turn.deadline_s`: the time of a whole turn, what becomes of it when it is over, and that replays agree."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.errors import TimedOut
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.llm.rate_limit import Limits, RateLimiter
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.providers import Backend, Reply, Request
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import SkippingClock, journal_lines, make_org, resume, say

LOOK = say("looking", tool_calls=[{"tool": "memory_read", "args": {"key": "k"}}])
SLOW = {"reply": say("late"), "delay_s": 600}


def turn_of(base: Path) -> TurnReport:
    (turn,) = run_once(base, clock=SkippingClock()).turns
    return turn


def timed(base: Path, *script: dict[str, Any], **more: Any) -> Path:
    """Return an organisation of one agent whose turn has a minute."""
    turn = {"deadline_s": 60, "max_steps": 3, **more.pop("turn", {})}
    return make_org(base, resume("ada", turn=turn, **more), script=[*script])


def asked_in_vain(base: Path, tick: int = 1) -> list[tuple[str, str]]:
    lines = [line for line in journal_lines(base, tick) if line["type"] == "model_failed"]
    return [(line["error"], line["message"]) for line in lines]


OVER = ("TurnTooLong", "the turn's time, 60 s, is over")


def test_an_answer_under_way_is_broken_off_and_what_the_turn_has_come_to_is_kept(base: Path) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")  # commands that look need it
    timed(base, {"tick": 1, "step": 0, "reply": LOOK}, {"tick": 1, **SLOW}, {"reply": say("in time")})
    turn = turn_of(base)
    assert (turn.status, turn.end, turn.reason, turn.calls) == ("waiting", "deadline", OVER[1], 1)
    assert asked_in_vain(base) == [OVER]
    assert [it.payload["text"] for it in read_outbox_entries(base, "ada")] == ["looking"]
    assert turn_of(base).status == "done"
    assert "memory_read" in str(journal_lines(base, 2)[1])  # the result of the call is shown in its next turn
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0


def test_what_became_of_it_is_told(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")  # commands that look need it
    timed(base, {"step": 0, "reply": LOOK}, SLOW)
    turn_of(base)
    for command, said in ((["tick", "1"], OVER[1]), (["status"], "waiting, deadline (1)")):
        assert run(["-C", str(base), *command]) == 0
        assert said in capsys.readouterr().out
    assert run(["-C", str(base), "why", read_outbox_entries(base, "ada")[0].id]) == 0
    assert f"in an interrupted turn ({OVER[1]})" in capsys.readouterr().out


def test_who_looks_is_led_to_the_time_that_ran_out(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed(base, SLOW)
    turn_of(base)
    assert run(["-C", str(base), "tick", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "raise turn.deadline_s in the resume" in shown
    assert "config/models.json" not in shown


def test_a_turn_without_an_answer_has_failed_and_is_taken_again(base: Path) -> None:
    timed(base, {"tick": 1, **SLOW}, {"reply": say("in time")})
    turn = turn_of(base)
    assert (turn.status, turn.end, turn.error, turn.reason) == ("failed", "no_answer", *OVER)
    assert turn_of(base).status == "done"


@pytest.mark.parametrize(
    ("calls", "ends", "why"),
    [
        (0, ["no_answer", "no_answer", "done"], OVER[1]),
        # The same call in each turn is a loop, and the fourth breaks it.
        (1, ["deadline", "deadline", "deadline", "repeats"], "again and again"),
    ],
)
def test_a_request_whose_turns_have_too_little_time_is_given_up(
    base: Path, calls: int, ends: list[str], why: str
) -> None:
    pytest.importorskip("lemming.capabilities.requests.requests_capability")
    look = {"outbox_entries": [], "tool_calls": [{"tool": "memory_read", "args": {"key": "k"}}]}
    script = [{"step": step, "reply": look} for step in range(calls)]
    turn = {"deadline_s": 60, "max_steps": 50, "take": "one"}
    ada = resume("ada", turn=turn, schedule={"wake": "addressed"})
    eve, people = resume("eve", model={"key": "human"}), {"human": {"provider": "human"}}
    make_org(base, ada, eve, models=people, script=[*script, SLOW])
    asked = {"text": "how much?", "target": "ada"}
    write_person_entry(base, "eve", tick=1, kind="request", payload=asked, tags=[], created_at="")
    ran = [turn for _ in range(5) for turn in run_once(base, clock=SkippingClock()).turns]
    taken = [turn.end for turn in ran if turn.agent == "ada" and turn.end]
    assert taken == ends
    (answer,) = read_outbox_entries(base, "ada")
    assert answer.payload["status"] == "failed"
    assert why in answer.payload["text"]


def test_nobody_else_is_asked_then(base: Path) -> None:
    away = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}}
    model = {"key": "away", "fallback": ["scripted"]}
    ada = resume("ada", model=model, turn={"deadline_s": 60})
    make_org(base, ada, models={"away": away}, script=[SLOW])
    assert turn_of(base).error == "TurnTooLong"
    assert asked_in_vain(base) == [OVER]


def test_a_correction_and_a_critic_have_no_more_time_than_the_turn(base: Path) -> None:
    pytest.importorskip("lemming.capabilities.strategies.strategies_capability")
    timed(base / "corrected", {"step": 0, "reply": "no"}, SLOW, turn={"repairs": 3})
    assert turn_of(base / "corrected").status == "failed"
    assert asked_in_vain(base / "corrected") == [OVER]
    strategy = {"strategy": "reflexion"}
    timed(base / "judged", {"step": 0, "reply": say("a draft")}, SLOW, turn=strategy)
    turn = turn_of(base / "judged")
    assert (turn.status, len(turn.entries)) == ("done", 1)
    assert any(OVER[1] in remark for remark in turn.remarks)
    assert run(["-C", str(base / "judged"), "replay"]) == 0


def test_on_a_skipping_clock_the_pauses_between_attempts_take_no_time(base: Path) -> None:
    models = {"away": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 5}}
    make_org(base, resume("ada", model={"key": "away"}), models=models, script=[{"error": "Unavailable"}])
    clock, began = SkippingClock(), time.perf_counter()
    (turn,) = run_once(base, clock=clock).turns
    assert turn.error == "Unavailable"
    assert clock.monotonic() - (time.perf_counter() - began) > 7  # 1, 2, 4 and 8 s, each at least half


class Clock:
    """A clock that goes by what is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, _: threading.Condition, seconds: float | None) -> None:
        self.now += seconds or 0.0


class Answers(Backend):
    """A provider that answers at once."""

    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        """Say how much time there was."""
        return Reply(f"{request.deadline_s:g}")


def test_waiting_for_room_is_part_of_a_turns_time_and_not_of_an_answers() -> None:
    clock = Clock()
    pace, limits = RateLimiter(clock=clock, wait=clock.wait), Limits(requests_per_minute=1)
    provider = RetryingLLMProvider(Answers(), attempts=1, rate_limiter=pace, limits=limits, clock=clock)
    request = Request("m", [], deadline_s=5.0)
    assert provider.complete(request).text == "5"
    assert provider.complete(request).waited_s == 60.0
    assert provider.complete(request._replace(turn_s=62.0)).text == "2"
    with pytest.raises(TimedOut, match="the turn's time leaves no room") as late:
        provider.complete(request._replace(turn_s=3.0))
    assert clock.now == 123.0
    assert not late.value.may_be_paid
