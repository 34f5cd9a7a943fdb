"""`run-forever`, and how both runs are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from terminal import Lemming, read_until, start

from lemming.engine import load_tick
from lemming.testing import make_org, resume, say

STOP_SIGNALS = [
    pytest.param(signal.SIGINT, 130, id="ctrl-c"),
    pytest.param(signal.SIGTERM, 143, id="sigterm"),
    pytest.param(signal.SIGQUIT, 131, id="ctrl-backslash"),
    pytest.param(signal.SIGHUP, 129, id="sighup"),
]


def test_max_ticks_ends_it(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("run-forever", "--max-ticks", "3", "--interval", "0")
    assert ran.status == 0
    assert load_tick(base) == 4
    assert ran.err.count("1 done") == 3


def test_max_ticks_with_a_failed_turn_ends_with_1(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), script=[{"tick": 1, "reply": "no"}, {"reply": say("hi")}])
    assert lemming("run-forever", "--max-ticks", "2", "--interval", "0", "-q").status == 1


def test_a_signal_in_a_pause_ends_it_at_once_with_0(base: Path) -> None:
    make_org(base, resume("ada"))
    with start("-C", str(base), "run-forever", "--interval", "3600") as process:
        read_until(process.stderr, "next is tick 2")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert load_tick(base) == 2


@pytest.mark.sample(3)
@pytest.mark.parametrize(("number", "status"), STOP_SIGNALS)
def test_the_first_signal_lets_the_running_turn_end(base: Path, number: int, status: int) -> None:
    answer = _org_that_waits_for_an_answer(base)
    with start("-C", str(base), "run-once", "--trust") as process:
        with answer.open("w") as model:  # opens when the model is asked
            process.send_signal(number)
            read_until(process.stderr, "stopping after the running turns")
            model.write(json.dumps(say("done in time")))
        heard = read_until(process.stderr, "is unfinished")
        assert process.wait(PATIENCE_S) == status
    assert "done in time" in heard
    assert "tick 1 is unfinished (bob to go); the next run continues it" in heard
    assert load_tick(base) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_while_it_starts_ends_it_with_0(base: Path, number: int) -> None:
    make_org(base, resume("ada"))
    words = [sys.executable, "-X", "importtime", "-m", "lemming", "-C", str(base), "run-forever"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    with process:
        read_until(process.stderr, "lemming.commands.signals")
        read_until(process.stderr, "lemming.cli")
        process.send_signal(number)
        assert process.stderr is not None
        process.stderr.read()
        assert process.wait(PATIENCE_S) == 0


SIGNALLED_AT_ONCE = """
import os, signal
from lemming.commands.signals import stop_on_signals

install = signal.signal


def signalled(number, handler):
    former = install(number, handler)
    if number == signal.SIGTERM:
        os.kill(os.getpid(), number)
    return former


signal.signal = signalled
with stop_on_signals(quiet=True) as switch:
    signal.signal = install
    switch.stop.wait()
print(switch.signal)
"""


def test_a_signal_that_comes_as_its_handler_is_installed_stops_too() -> None:
    command = [sys.executable, "-c", SIGNALLED_AT_ONCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert int(done.stdout) == signal.SIGTERM


def test_a_closing_terminal_may_send_its_signal_twice(base: Path) -> None:
    answer = _org_that_waits_for_an_answer(base)
    with start("-C", str(base), "run-once", "--trust") as process:
        with answer.open("w") as model:
            for _ in range(2):
                process.send_signal(signal.SIGHUP)
            read_until(process.stderr, "stopping after the running turns")
            model.write(json.dumps(say("done in time")))
        assert "done in time" in read_until(process.stderr, "is unfinished")
        assert process.wait(PATIENCE_S) == 129


def test_who_asked_that_hanging_up_be_ignored_is_not_stopped_by_it(base: Path) -> None:
    make_org(base, resume("ada"))
    words = ("-C", str(base), "run-forever", "--interval", "3600")
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does: children inherit it
    try:
        process = start(*words)
    finally:
        signal.signal(signal.SIGHUP, ignored)
    with process:
        read_until(process.stderr, "next is tick 2")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert "stopped" in read_until(process.stderr, "stopped")
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize(("number", "status"), STOP_SIGNALS[:-1])
def test_the_second_signal_ends_it_at_once(base: Path, number: int, status: int) -> None:
    answer = _org_that_waits_for_an_answer(base)
    with start("-C", str(base), "run-once", "--trust") as process, answer.open("w"):
        process.send_signal(number)
        read_until(process.stderr, "stopping after the running turns")
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == status


def test_a_stopped_tick_is_told_in_json_and_continued_by_the_next_run(base: Path, lemming: Lemming) -> None:
    answer = _org_that_waits_for_an_answer(base)
    with start("-C", str(base), "run-forever", "--trust", "--json") as process:
        with answer.open("w") as model:
            process.send_signal(signal.SIGINT)
            read_until(process.stderr, "stopping after the running turns")
            model.write(json.dumps(say("done in time")))
        last = read_until(process.stdout, "tick_stopped").splitlines()[-1]
        assert process.wait(PATIENCE_S) == 0
    assert json.loads(last)["is_complete"] is False
    assert lemming("status", "--json").objects[0]["is_interrupted"] is True
    assert "tick 1 was interrupted" in lemming("status").out
    assert "already done in this tick" in lemming("run-once", "--dry-run").out
    _answer_with_a_script(base)
    ran = lemming("run-once", "--json")
    assert [event["agent"] for event in ran.objects if event["type"] == "model_asked"] == ["bob"]
    assert load_tick(base) == 2


def _org_that_waits_for_an_answer(base: Path) -> Path:
    """Make an organisation whose model answers what is written into the pipe that is returned."""
    make_org(base, resume("ada"), resume("bob"), models={"scripted": _program("cat", "answer")})
    os.mkfifo(base / "answer")
    return base / "answer"


def _answer_with_a_script(base: Path) -> None:
    make_org(base)


def _program(*command: str) -> dict[str, Any]:
    return {"provider": "cli", "options": {"command": list(command), "effects": "none", "cwd": "."}}


def test_no_signal_is_left_caught(base: Path, lemming: Lemming) -> None:
    before = signal.getsignal(signal.SIGTERM)
    make_org(base, resume("ada"))
    lemming("run-once", "-q")
    assert signal.getsignal(signal.SIGTERM) is before
    assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.long
def test_a_sleeping_engine_is_woken_by_a_message_long_before_its_interval(base: Path, lemming: Lemming) -> None:
    script = [{"agent": "ada", "contains": "good morning", "reply": say("seen")}, {"reply": say("nothing")}]
    make_org(base, resume("ada", schedule={"wake": "changed"}), resume("human", model={"key": "human"}), script=script)
    with start("-C", str(base), "run-forever", "--interval", "600", "--wake-on-change") as process:
        asleep = read_until(process.stderr, "sleeping until something changes")
        assert "at most for 10 min, until tick 2 (ada)" in asleep
        lemming("send", "good morning")
        heard = read_until(process.stderr, "next is tick 3")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert "woken: agents/human/outbox changed" in heard
    assert "seen" in heard
    assert load_tick(base) == 3


def test_json_says_until_when_it_sleeps_and_why_it_woke(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 4}))
    ran = lemming("run-forever", "--interval", "0.05", "--wake-on-change", "--until-tick", "4", "--json").objects
    kinds = [event["type"] for event in ran if event["type"] in ("sleeping", "woken", "tick_committed")]
    assert kinds == ["tick_committed", "sleeping", "woken", "tick_committed"]
    sleeping = next(event for event in ran if event["type"] == "sleeping")
    woken = next(event for event in ran if event["type"] == "woken")
    assert (sleeping["next_tick"], sleeping["until_tick"], sleeping["due"]) == (2, 4, ["ada"])
    assert (woken["why"], woken["slept_through"], woken["next_tick"], woken["changed"]) == ("time", 2, 4, [])


def test_it_says_which_ticks_were_slept_through(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 4}))
    words = ("run-forever", "--interval", "0.05", "--wake-on-change", "--until-tick", "4")
    assert "slept through ticks 2 to 3\n" in lemming(*words).err
