"""Turns at once that a crash, a full disk or an interrupt caught half-way: nobody pays for somebody else."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
from collections import Counter
from pathlib import Path
from threading import get_ident

import pytest
from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.tick.turn_threads import TurnLock
from lemming.operations.turns.parallel_turns import run_turns
from lemming.operations.turns.turn_dependencies import TurnWaits
from lemming.testing import Crash, FrozenClock, journal_lines, make_org, resume, say

SHARED = {"allow_read": ["./shared"], "allow_write": ["./shared"]}


def test_a_turn_that_was_begun_is_waited_for_as_its_resume_is_now(base: Path) -> None:
    writer = {"permissions": {"tools": ["file_write"], "file_access": SHARED}}
    reader = {"permissions": {"file_access": SHARED}, "context": [{"file": "./shared/x"}]}
    write = {"tool": "file_write", "args": {"path": "shared/x", "content": "NEW"}}
    make_org(
        base,
        resume("a", permissions={}),
        resume("b", **reader),
        script=[{"agent": "a", "reply": say("", tool_calls=[write]), "delay_s": 0.05}, {"reply": say("")}],
        org={"max_parallel": 1},
    )
    fs.write_atomic(base, "shared/x", b"OLD")

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked):
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)
    fs.write_atomic(base, "agents/a/resume.json", dump_pretty(resume("a", **writer)))
    fs.write_atomic(base, "config/org.json", dump_pretty({"max_parallel": 8}))
    run_once(base)
    prompts = {r["agent"]: r["prompt"] for r in journal_lines(base, 1) if r["type"] == "turn_started"}
    assert "NEW" in prompts["b"][-1]["content"]


def test_a_turn_that_ends_the_engine_takes_no_other_with_it(base: Path) -> None:
    make_org(base, *(resume(name, permissions={}) for name in "abc"), org={"max_parallel": 3})

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == "b":
            raise Crash

    def die_together(event: Event) -> None:
        if isinstance(event, ModelAsked):
            raise Crash

    for deadly in (die_together, die_together, *[die] * 6):
        with contextlib.suppress(Crash):
            report = run_once(base, notify=deadly, clock=FrozenClock())
            break
    assert {turn.agent: turn.status for turn in report.turns} == {"a": "done", "b": "failed", "c": "done"}


def test_a_held_turn_is_committed_once_whatever_the_disk_does(base: Path) -> None:
    make_org(base, resume("x"), resume("y"), org={"durability": "tick"})
    refused: list[str] = []

    def refuse(operation: str, path: str) -> None:
        if "agents/y/outbox" in path and operation == "rename" and not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, "no space left")

    with fs.observe_changes(refuse), pytest.raises(DiskError):
        run_once(base)
    run_once(base)
    ends = [record["agent"] for record in journal_lines(base, 1) if record["type"] == "turn_committed"]
    assert Counter(ends) == {"x": 1, "y": 1}


def test_a_journal_without_a_line_and_a_counter_behind_it_are_no_riddle(base: Path) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "tick.json", b'{"current_tick": 4}')
    fs.write_atomic(base, "logs/ticks/00000005.jsonl", b"")
    assert run_once(base).tick == 5


class Register:
    """Counts turns like a batch would."""

    def __init__(self) -> None:
        self.running = 0

    def add_turns(self, turns: int = 1) -> None:
        self.running += turns

    def remove_turn(self) -> None:
        self.running -= 1


@pytest.mark.parametrize("heard_by", ["the thread that waits", "another"])
def test_an_interrupt_signs_everybody_off(heard_by: str) -> None:
    """What another thread hears ends no wait, like a signal that comes just before the wait."""
    stop, register, turn_lock = threading.Event(), Register(), TurnLock()
    stopped: list[bool] = []

    def work(name: str) -> None:
        if name == "third":
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main if heard_by == "the thread that waits" else get_ident(), signal.SIGINT)
        with turn_lock.waiting:
            stopped.append(stop.wait(PATIENCE_S))

    names = ["first", "second", "third", "fourth"]
    waits = dict.fromkeys(names, TurnWaits())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_turns(names, waits, work, max_parallel=3, turn_lock=turn_lock, stop=stop, batcher=register)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (register.running, stopped) == (0, [True] * 3)


def test_a_system_without_more_threads_ends_the_turns_that_were_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, register, turn_lock = threading.Event(), Register(), TurnLock()
    ended: list[str] = []

    def work(name: str) -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with turn_lock.waiting:
            assert stop.wait(PATIENCE_S)
        ended.append(name)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = [f"n{number}" for number in range(1000)]
    waits = dict.fromkeys(names, TurnWaits())
    with pytest.raises(RuntimeError, match="new thread"):
        run_turns(names, waits, work, max_parallel=1000, turn_lock=turn_lock, stop=stop, batcher=register)
    assert 0 < len(ended) < len(names)
    assert register.running == 0
