"""`lemming status --watch`: the organisation in one terminal screen."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from looked_at import newsdesk, ran
from patience import PATIENCE_S
from terminal import PROGRAM, REPOSITORY, Lemming

from lemming.commands.watch import build_screen_data, render_screen
from lemming.engine import run_once
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, tree


@pytest.fixture
def desk(base: Path) -> Path:
    return ran(newsdesk(base), 2)


def test_into_a_pipe_it_prints_once_what_it_would_show(desk: Path, lemming: Lemming) -> None:
    before = tree(desk, without=())
    lines = lemming("watch").out.splitlines()
    assert lines[0].startswith("org  tick 3 not running: no engine runs")
    assert lines[1].startswith("0 waiting for you · 6 credits, $0.0")
    assert next(line for line in lines if line.startswith("  poet")).split()[1] == "failing"
    assert any(line.split()[:3] == ["2", "checker", "response"] for line in lines)
    assert tree(desk, without=()) == before


def test_json_is_what_the_page_is_sent(desk: Path, lemming: Lemming) -> None:
    (shown,) = lemming("watch", "--json").objects
    assert shown["header"]["tick"] == 3
    assert {row["name"] for row in shown["agents"]["rows"]} == {"checker", "editor", "human", "poet"}
    assert shown["feed"]["entries"][0]["tick"] == 2


@pytest.mark.parametrize(("width", "lines"), [(200, 60), (80, 24), (30, 10), (5, 4)])
def test_a_screen_is_no_larger_than_the_terminal(desk: Path, width: int, lines: int) -> None:
    screen = render_screen(build_screen_data(Organisation(desk), lines), width, lines)
    assert len(screen) <= lines
    assert max(map(len, screen)) <= max(width, 40)


def test_money_of_calls_without_a_price_is_not_said_to_be_none(desk: Path) -> None:
    shown = build_screen_data(Organisation(desk), 10)
    shown["header"]["spent"] |= {"dollars": 0.0, "unpriced": 2}
    assert "credits, no price" in render_screen(shown, 160, 10)[1]


def test_what_is_broken_is_said_in_the_head(desk: Path, lemming: Lemming) -> None:
    (desk / "config/org.json").write_text("{")
    ran = lemming("watch")
    assert ran.status == 0
    assert "broken" in ran.out.splitlines()[0]


@contextmanager
def on_a_terminal(desk: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start `lemming status --watch` on a terminal of 24 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"}
    words = [*PROGRAM, "-C", str(desk), "watch"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def seen_until(terminal: int, words: str) -> str:
    heard = b""
    while words.encode() not in heard:
        heard += os.read(terminal, 65536)
    return heard.decode()


@pytest.mark.long
def test_on_a_terminal_it_follows_what_happens_until_q_and_gives_the_screen_back(desk: Path) -> None:
    with on_a_terminal(desk) as (process, terminal):
        assert "\033[?1049h" in seen_until(terminal, "tick 3")
        run_once(desk, clock=FrozenClock())
        seen_until(terminal, "tick 4")
        os.write(terminal, b"q")
        assert seen_until(terminal, "\033[?1049l")
        assert process.wait(timeout=PATIENCE_S) == 0


@pytest.mark.long
def test_a_signal_gives_the_screen_back_too(desk: Path) -> None:
    with on_a_terminal(desk) as (process, terminal):
        seen_until(terminal, "tick 3")
        process.terminate()
        assert seen_until(terminal, "\033[?1049l")
        assert process.wait(timeout=PATIENCE_S) == 0
