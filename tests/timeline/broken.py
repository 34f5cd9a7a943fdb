"""Organisations to which something has happened, for the tests of `lemming repair`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from terminal import Ran

from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.testing import Crash, make_org, resume, say

Repair = Callable[..., Ran]


def make(base: Path, *, ticks: int = 3) -> Path:
    """Make an organisation of two agents and run it."""
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("news")}])
    for _ in range(ticks):
        run_once(base)
    return base


def journal(base: Path, tick: int) -> Path:
    """Return the place of a tick's journal."""
    return base / f"logs/ticks/{tick:08d}.jsonl"


def damage(file: Path, line: int) -> bytes:
    """Change a letter of one line of a file (from 1), and return what the file was before."""
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"e", b"E", 1)
    file.write_bytes(b"".join(lines))
    return before


def interrupt(base: Path, agent: str = "bob") -> None:
    """Begin a tick and die when this agent's model is asked."""

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == agent:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)
