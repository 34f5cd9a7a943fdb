"""A program that may act runs at most once for each call; one that only prints text runs again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.errors import CircuitOpen, ConfigError, MayHaveActed, RequestRejected, Unavailable
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.llm.circuit_breaker import Circuits
from lemming.kernel.llm.rate_limit import Limits, RateLimiter
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Reply, Request, make_provider
from lemming.queries.org_validation import validate_config
from lemming.testing import FrozenClock, SkippingClock, journal_lines, make_org, resume

QUESTION = {
    "id": "0123456789ab", "tick": 1, "agent": "human", "kind": "request", "tags": [],
    "payload": {"text": "Tidy up.", "target": "ada", "conversation": "talk"}, "created_at": "2025-12-08T10:30:00Z",
}  # fmt: skip
FAILS = "echo ran >> ran; echo no luck >&2; exit 3"
ANSWERS = 'echo ran >> ran; echo \'{"notes": "tidied"}\''
BABBLES = "echo ran >> ran; echo '{\"outbox_entries\": 5}'"


def make(base: Path, script: str, *, effects: str = "", agent: dict[str, Any] | None = None, **keys: Any) -> Path:
    """Make an organisation whose model is a shell script that runs in the organisation's folder."""
    options = {"command": ["sh", "-c", script], "cwd": ".", **({"effects": effects} if effects else {})}
    models = {"scripted": {"provider": "cli", "prompt": "full", "options": options, **keys}}
    human = resume("human", model={"key": "human"})
    make_org(base, resume("ada", **(agent or {})), human, models=models | {"spare": scripted()})
    fs.write_atomic(base, f"agents/human/outbox/00000001_{QUESTION['id']}.json", dump_pretty(QUESTION))
    return base


def scripted() -> dict[str, Any]:
    return {"provider": "scripted", "prompt": "full", "options": {"file": "config/answers.jsonl"}}


def run(base: Path) -> TickReport:
    return run_once(base, clock=SkippingClock())


def failure(report: TickReport) -> tuple[str, str]:
    (turn,) = [turn for turn in report.turns if turn.agent == "ada"]
    return turn.error, turn.reason


def runs(base: Path) -> int:
    return len((base / "ran").read_text().splitlines())


def model_records(base: Path, tick: int = 1) -> list[str]:
    return [line["type"] for line in journal_lines(base, tick) if line["type"].startswith("model_")]


# --- a failure ---------------------------------------------------------------------------------


def test_a_program_that_failed_is_not_run_again_and_its_turn_says_why(base: Path) -> None:
    error, reason = failure(run(make(base, FAILS, attempts=4)))
    assert (error, runs(base)) == ("MayHaveActed", 1)
    assert "ended with exit status 3: no luck; it may have acted, and is not run again by itself" in reason
    assert 'set options.effects to "none" in config/models.json' in reason
    assert model_records(base) == ["model_started", "model_failed"]


def test_its_request_fails_and_the_next_turn_does_not_run_it_for_the_same_request(base: Path) -> None:
    make(base, FAILS, agent={"turn": {"take": "one"}, "schedule": {"wake": "addressed"}})
    run(base)
    run(base)
    assert runs(base) == 1


def test_a_program_that_only_prints_text_is_run_again(base: Path) -> None:
    error, _ = failure(run(make(base, FAILS, effects="none", attempts=4)))
    assert (error, runs(base)) == ("Unavailable", 4)
    assert model_records(base) == ["model_failed"]


def test_at_its_deadline_it_may_have_acted(base: Path) -> None:
    error, reason = failure(run_once(make(base, "sleep 600", deadline_s=0.3), clock=FrozenClock()))
    assert error == "MayHaveActed"
    assert "raise deadline_s in config/models.json" in reason


def test_a_program_that_cannot_be_started_has_not_acted(base: Path) -> None:
    make(base, FAILS)
    options = {"command": ["no-such-program"]}
    fs.write_atomic(base, "config/models.json", dump_pretty({"scripted": {"provider": "cli", "options": options}}))
    error, reason = failure(run(base))
    assert error == "Unusable"
    assert "acted" not in reason


def test_no_fallback_acts_on_the_same_question(base: Path) -> None:
    error, _ = failure(run(make(base, FAILS, agent={"model": {"key": "scripted", "fallback": ["spare"]}})))
    assert error == "MayHaveActed"
    make(base / "text", FAILS, effects="none", agent={"model": {"key": "scripted", "fallback": ["spare"]}})
    assert failure(run(base / "text"))[0] == ""


@pytest.mark.parametrize(("effects", "calls"), [("outside", 1), ("none", 3)])
def test_no_correction_is_asked_of_a_program_that_may_act(base: Path, effects: str, calls: int) -> None:
    error, _ = failure(run(make(base, BABBLES, effects=effects, agent={"turn": {"repairs": 2}})))
    assert (error, runs(base)) == ("ContractError", calls)
    assert len(list(replay_ticks(base, [1]))) == 1
    assert runs(base) == calls


def test_a_fallback_that_may_act_is_asked_for_no_correction_either(base: Path) -> None:
    make(base, BABBLES)
    models = load_config(Organisation(base)).models
    acting = {"provider": "cli", "prompt": "full", "options": models["scripted"].options}
    down = {**acting, "options": {"command": ["false"], "effects": "none"}}
    fs.write_atomic(base, "config/models.json", dump_pretty({"scripted": down, "acting": acting}))
    ada = resume("ada", model={"key": "scripted", "fallback": ["acting"]}, turn={"repairs": 2})
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(ada))
    assert failure(run(base))[0] == "ContractError"
    assert runs(base) == 1


def test_a_failed_call_is_replayed_without_the_program(base: Path) -> None:
    run(make(base, FAILS))
    assert len(list(replay_ticks(base, [1]))) == 1
    assert runs(base) == 1


# --- an engine that dies -----------------------------------------------------------------------

ENGINE = "import sys; from lemming.engine import run_once; run_once(sys.argv[1])"
WAITS = ANSWERS.replace("ran;", "ran; [ -p gate ] && cat gate;")


def kill_while_it_runs(base: Path) -> None:
    """Start an engine in a process of its own, and kill it while its program waits at the gate."""
    os.mkfifo(base / "gate")
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(base)])
    with open(base / "gate", "w"):  # opens once the program reads
        engine.kill()
        engine.wait(PATIENCE_S)
    (base / "gate").unlink()


def test_after_a_kill_the_program_is_not_run_again_for_the_call(base: Path) -> None:
    kill_while_it_runs(make(base, FAILS.replace("ran;", "ran; cat gate;")))
    assert model_records(base) == ["model_started"]
    error, reason = failure(run(base))
    assert (error, runs(base)) == ("MayHaveActed", 1)
    assert reason.startswith("config/models.json: the engine ended during a call of the model; it may have acted")
    assert model_records(base) == ["model_started", "model_failed"]
    assert len(list(replay_ticks(base, [1]))) == 1


@pytest.mark.long
@pytest.mark.parametrize("org", [{"durability": "tick"}, {"durability": "off"}, {"executor": "serial"}])
def test_whatever_the_settings_it_is_not_run_again_after_a_kill(base: Path, org: dict[str, Any]) -> None:
    make(base, FAILS.replace("ran;", "ran; cat gate;"))
    fs.write_atomic(base, "config/org.json", dump_pretty(org))
    kill_while_it_runs(base)
    assert failure(run(base))[0] == "MayHaveActed"
    assert runs(base) == 1


@pytest.mark.long
def test_a_program_that_only_prints_text_is_run_again_after_a_kill(base: Path) -> None:
    kill_while_it_runs(make(base, WAITS, effects="none"))
    assert failure(run(base))[0] == ""
    assert runs(base) > 1


@pytest.mark.long
def test_a_person_who_asks_again_has_it_run_again(base: Path) -> None:
    kill_while_it_runs(make(base, WAITS, agent={"turn": {"take": "one"}}))
    assert failure(run(base))[0] == "MayHaveActed"
    again = {**QUESTION, "id": "ba9876543210", "tick": 2}
    fs.write_atomic(base, f"agents/human/outbox/00000002_{again['id']}.json", dump_pretty(again))
    assert failure(run(base))[0] == ""
    assert runs(base) == 2


def test_a_program_that_fails_while_the_engine_is_to_stop_is_recorded(base: Path) -> None:
    make(base, f"cat gate; {FAILS}")
    os.mkfifo(base / "gate")
    stop = threading.Event()
    engine = threading.Thread(target=run_once, args=(base,), kwargs={"stop": stop})
    engine.start()
    with open(base / "gate", "w"):
        stop.set()
    engine.join(PATIENCE_S)
    assert model_records(base) == ["model_started", "model_failed"]
    assert runs(base) == 1


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_each_turn_announces_its_own_call_however_many_run_at_once(base: Path, executor: str) -> None:
    make(base, ANSWERS)
    for name in ("bob", "cyd"):
        fs.write_atomic(base, f"agents/{name}/resume.json", dump_pretty(resume(name, permissions={})))
    fs.write_atomic(base, "config/org.json", dump_pretty({"executor": executor}))
    run(base)
    records = [(line["agent"], line["type"]) for line in journal_lines(base, 1) if line["type"].startswith("model_")]
    for name in ("ada", "bob", "cyd"):
        assert [kind for agent, kind in records if agent == name] == ["model_started", "model_replied"]


# --- what is announced -------------------------------------------------------------------------


class Acting(Backend):
    """A backend that may act, and fails as it is told."""

    acts_outside = True

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.calls = error, 0

    def complete(self, request: Request) -> Reply:
        self.calls += 1
        if self.error:
            raise self.error
        return Reply("done")


def ask(backend: Backend, started: list[Request], **how: Any) -> Reply:
    request = Request("m", [{"role": "user", "content": "Go."}], agent="ada")
    sleep: Callable[[float], object] = lambda _: None  # noqa: E731

    def on_start(sent: Request, acts_outside: bool) -> None:
        assert acts_outside
        started.append(sent)

    return RetryingLLMProvider(backend, sleep=sleep, **how).complete(request, on_start=on_start)


def test_a_call_is_announced_before_it_starts_and_its_reply_says_that_it_may_have_acted() -> None:
    started: list[Request] = []
    assert ask(Acting(), started).acted
    assert [request.agent for request in started] == ["ada"]


def test_a_backend_that_failed_before_it_was_asked_is_asked_again() -> None:
    error = Unavailable("not reached")
    error.may_be_paid = False
    backend = Acting(error)
    with pytest.raises(Unavailable, match="not reached"):
        ask(backend, [], attempts=3)
    assert backend.calls == 3
    backend.error = Unavailable("lost")
    with pytest.raises(MayHaveActed, match="lost; it may have acted"):
        ask(backend, [], attempts=3)
    assert backend.calls == 4


def test_neither_behind_an_open_circuit_nor_while_it_waits_is_a_call_announced() -> None:
    started: list[Request] = []
    circuit = Circuits(None, FrozenClock()).get_circuit("acting")
    for _ in range(5):
        with pytest.raises(MayHaveActed):
            ask(Acting(Unavailable("down")), started, circuit=circuit)
    with pytest.raises(CircuitOpen):
        ask(Acting(), started, circuit=circuit)
    assert len(started) == 5
    stop = threading.Event()
    stop.set()
    limiter, limits = RateLimiter("acting"), Limits(max_concurrent=1)
    with (
        limiter.acquire(limits, Request("m", []), stop=threading.Event()),
        pytest.raises(Unavailable),
    ):
        ask(Acting(), started, rate_limiter=limiter, limits=limits, stop=stop)
    assert len(started) == 5


# --- its line ----------------------------------------------------------------------------------


def test_effects_are_none_or_outside() -> None:
    assert not make_provider("cli", {"command": ["cat"], "effects": "none"}).acts_outside
    assert make_provider("cli", {"command": ["cat"], "effects": "outside"}).acts_outside
    assert make_provider("cli", {"command": ["cat"]}).acts_outside
    with pytest.raises(ConfigError, match='option "effects"'):
        make_provider("cli", {"command": ["cat"], "effects": "no"})


@pytest.mark.parametrize(
    ("program", "provider"), [("claude", "claude-code"), ("/opt/bin/codex", "codex"), ("pi", "pi")]
)
def test_a_harness_is_named_with_the_provider_to_use(base: Path, program: str, provider: str) -> None:
    options = {"command": [program, "-p"], "effects": "none"}
    make_org(base, resume("ada"), models={"scripted": {"provider": "cli", "attempts": 1, "options": options}})
    problems = validate_config(Organisation(base), load_config(Organisation(base)))
    (problem,) = [problem for problem in problems if "harness" in problem.message]
    assert (problem.file, problem.pointer, problem.severity) == ("config/models.json", "/scripted", "warning")
    assert f'use provider "{provider}"' in problem.message
    told: list[str] = []
    run_once(base, clock=FrozenClock(), notify=lambda event: told.append(str(getattr(event, "problem", ""))))
    assert [text for text in told if f'use provider "{provider}"' in text]


def test_no_other_program_is_taken_for_a_harness() -> None:
    assert make_provider("cli", {"command": ["cat", "claude"]}).remark == ""
    with pytest.raises(RequestRejected, match="empty"):
        make_provider("cli", {"command": []}).complete(Request("m", []))
