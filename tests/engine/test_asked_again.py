"""A model that was asked more than once: how often, and why, is on disk; and what an error's code is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.errors import AnswerTooLarge, AuthenticationFailed, ProviderError, RateLimited
from lemming.kernel.files.field_types import Json
from lemming.kernel.providers import LLMProvider, Message, register_provider
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

EARLIER = [{"code": "LMG-502", "error": "RateLimited", "message": "box: slow down"}] * 2


class Flaky(LLMProvider):
    """Fails as often as it has errors, and then answers."""

    errors: ClassVar[list[ProviderError]] = []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return json.dumps(say("at last"))


@pytest.fixture
def flaky(base: Path) -> Path:
    register_provider("flaky", Flaky)
    models = {"flaky": {"provider": "flaky", "attempts": 3}}
    Flaky.errors[:] = [RateLimited("slow down", where="box", retry_after_s=0.0) for _ in range(2)]
    return make_org(base, resume("ada", model={"key": "flaky"}), models=models)


def record_of(base: Path, kind: str) -> Json:
    return next(record for record in journal_lines(base, 1) if record["type"] == kind)


def last_line(file: Path, event: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found: dict[str, Any] = next(line for line in reversed(lines) if line["event"] == event)
    return found


def test_a_retry_leaves_a_trace_in_the_journal_and_in_the_log(flaky: Path) -> None:
    assert run_once(flaky, clock=FrozenClock()).turns[0].status == "done"
    replied = record_of(flaky, "model_replied")
    assert (replied["attempts"], replied["earlier"]) == (3, EARLIER)
    told = last_line(flaky / "logs/engine.log", "model_asked_again")
    assert (told["agent"], told["call"], told["attempts"], told["earlier"]) == ("ada", 0, 3, EARLIER)
    assert [replayed.tick for replayed in replay_ticks(flaky, [1])] == [1]


def test_an_answer_at_once_leaves_none(flaky: Path) -> None:
    Flaky.errors.clear()
    run_once(flaky, clock=FrozenClock())
    assert {"attempts", "earlier"} & record_of(flaky, "model_replied").keys() == set()
    assert "model_asked_again" not in (flaky / "logs/engine.log").read_text()


def test_a_call_without_an_answer_has_its_code_wherever_it_is_told(flaky: Path) -> None:
    Flaky.errors.append(AuthenticationFailed("wrong key", where="box", hint="mend it"))
    report = run_once(flaky, clock=FrozenClock())
    failed = record_of(flaky, "model_failed")
    assert (failed["code"], failed["attempts"], failed["earlier"]) == ("LMG-504", 3, EARLIER)
    assert report.turns[0].as_json()["code"] == "LMG-504"
    assert record_of(flaky, "turn_committed")["code"] == "LMG-504"
    assert last_line(flaky / "agents/ada/logs/activity.log", "agent_failed")["code"] == "LMG-504"
    assert last_line(flaky / "logs/engine.log", "turn")["code"] == "LMG-504"


def test_an_answer_that_is_thrown_away_for_its_size_is_charged_and_counts_against_the_limit(base: Path) -> None:
    register_provider("flaky", Flaky)
    prices = {"per_call": 1.0, "per_1k_output_tokens": 10.0, "max_output_tokens": 500}
    models = {"flaky": {"provider": "flaky", **prices}}
    ada = resume("ada", model={"key": "flaky"}, credits={"max_credits": 6.5})
    Flaky.errors[:] = [AnswerTooLarge("the answer is longer than 16 MiB")] * 2
    make_org(base, ada, models=models)
    turn = run_once(base, clock=FrozenClock()).turns[0]
    assert (turn.status, turn.error, turn.calls, turn.credits) == ("failed", "AnswerTooLarge", 1, 6.0)
    replied = record_of(base, "model_replied")
    assert (replied["finish"], replied["text"], replied["output_tokens"]) == ("too_large", "", 500)
    assert replied["is_estimated"] is True
    assert [replayed.tick for replayed in replay_ticks(base, [1])] == [1]
    assert run_once(base, clock=FrozenClock()).turns[0].error == "OutOfCredits"
    assert len(Flaky.errors) == 1
