"""A `lemming` to type into: in this process, or in one of its own where signals and pipes matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import pytest

from lemming.cli import run

PROGRAM = [sys.executable, "-c", "from lemming.cli import main; main()"]
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Lemming(Protocol):
    """Runs one command on the organisation in `base`."""

    def __call__(self, *words: str) -> Ran: ...


def typed_at(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """Return a `lemming` that works on the organisation in a folder."""

    def run_it(*words: str) -> Ran:
        status = run(["-C", str(base), *words])
        printed = capsys.readouterr()
        return Ran(status, printed.out, printed.err)

    return run_it


def start(*words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start `lemming` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [*PROGRAM, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_hear_interrupts,
    )


def _hear_interrupts() -> None:
    """Undo what a shell does to programs it starts in the background, lest Ctrl-C be ignored in a test."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(stream: IO[str] | None, words: str) -> str:
    """Return what a process says up to and including the line that holds these words."""
    assert stream is not None
    heard = ""
    for line in stream:
        heard += line
        if words in line:
            return heard
    raise AssertionError(f"{words!r} was never said: {heard}")
