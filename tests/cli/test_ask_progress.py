"""`lemming ask` on a terminal: the last line says who is at work, for how long, and with which tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.commands.progress import TurnProgress
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ModelAsked, ModelWrote
from lemming.kernel.journal.journal_records import ToolFinished, TurnEnded
from lemming.testing import make_org, resume, say


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(base: Path, script: list[dict[str, Any]], **blocks: Any) -> list[str]:
    """Return what the last line says after each event of a tick; each event takes a second."""
    make_org(base, resume("ada", **blocks), script=script)
    clock, lines = Clock(), list[str]()
    progress = TurnProgress(is_shown=False, clock=clock)

    def hear(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event, ModelAsked | ToolFinished | TurnEnded):
            lines.append(progress.format_line())
        clock.now += 1

    run_once(base, notify=hear)
    return lines


def test_the_line_names_the_agent_the_seconds_and_what_it_waits_for(base: Path) -> None:
    (asked, ended) = lines_of(base, [{"reply": say("done")}])
    assert asked.startswith("ada ")
    assert asked.endswith(" s: waiting for the model, 120 s limit")
    assert ended == ""


def test_tools_are_named_as_they_are_called(base: Path) -> None:
    calls = [{"tool": "memory_write", "args": {"key": f"k{number}", "value": 1}} for number in range(4)]
    script = [{"step": 0, "reply": say("first", tool_calls=calls)}, {"reply": say("done")}]
    lines = lines_of(base, script, turn={"max_steps": 2})
    assert lines[1].endswith(" s: called memory_write")
    assert lines[-2].endswith("(call 2), 120 s limit; called 4 tools, last memory_write, memory_write, memory_write")


def test_the_words_of_an_answer_are_shown_as_they_come(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("The ferry sails at nine.")}])
    progress, lines = TurnProgress(is_shown=False, clock=Clock()), list[str]()

    def hear(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event, ModelAsked):
            for text in ("The ferry\n", "sails ", "at nine. " * 20):
                progress.on_event(ModelWrote(agent="ada", call=0, text=text))
                lines.append(progress.format_line())

    run_once(base, notify=hear)
    assert lines[:2] == ["ada 0 s: writes (120 s limit): The ferry", "ada 0 s: writes (120 s limit): The ferry sails"]
    assert lines[2].startswith("ada 0 s: writes (120 s limit): … ")
    assert len(lines[2]) < 110
    assert progress.format_line() == ""


def test_of_a_reply_in_json_the_text_is_shown(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("done")}])
    progress, lines = TurnProgress(is_shown=False, clock=Clock()), list[str]()

    def hear(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event, ModelAsked):
            progress.on_event(ModelWrote(agent="ada", call=0, text='{"do": "answer", "text": "Paris is'))
            lines.append(progress.format_line())

    run_once(base, notify=hear)
    assert lines == ["ada 0 s: writes (120 s limit): Paris is"]


def test_words_that_come_fast_are_not_each_drawn(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = TurnProgress(is_shown=True, clock=clock)
    progress.set_workers(["ada"])
    progress.print_line("begins")
    capsys.readouterr()
    for _ in range(1000):
        progress.on_event(ModelWrote(agent="ada", call=0, text="word "))
    assert capsys.readouterr().err == ""
    clock.now += 1
    progress.on_event(ModelWrote(agent="ada", call=0, text="word "))
    assert capsys.readouterr().err != ""


def test_who_holds_a_question_that_another_engine_works_on_is_named_with_the_seconds() -> None:
    clock = Clock()
    progress = TurnProgress(is_shown=False, clock=clock)
    progress.set_workers(["ada", "bob"])
    clock.now += 434
    assert progress.format_line() == "ada, bob 434 s"


def test_a_line_of_its_own_stands_above_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TurnProgress(is_shown=True, clock=Clock())
    progress.set_workers(["ada"])
    progress.print_line("news")
    said = capsys.readouterr().err
    assert said.index("news\n") < said.index("  ada 0 s  …")


def test_nothing_of_it_is_said_where_nobody_looks(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("ada"),
        models={"human": {"provider": "human"}},
        script=[{"reply": say("yes", kind="response")}],
    )
    ran = lemming("ask", "ada", "ready?")
    assert (ran.status, ran.out) == (0, "yes\n")
    assert "waiting for the model" not in ran.err
    assert "\r" not in ran.err


def test_an_answer_is_shown_as_it_is_written_where_that_is_wanted(base: Path, lemming: Lemming) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("ada"),
        models={"human": {"provider": "human"}},
        script=[{"reply": say("yes", kind="response")}],
    )
    ran = lemming("ask", "ada", "ready?", "--watch")
    assert (ran.status, ran.out) == (0, "yes\n")
