"""The lock of an engine that was killed while it started a program."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.line import run_tick
from lemming.operations.engine_lock import acquire_lock
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume

PLAIN = {"provider": "scripted", "prompt": "values", "attempts": 1, "options": {"file": "config/answers.jsonl"}}

KILLED_ENGINE = """
import os, signal, sys, time
from pathlib import Path
from lemming.operations.engine_lock import acquire_lock, format_holder
lock = acquire_lock(Path(sys.argv[1]))
lock.write_holder(format_holder(since="2026-01-01", command="run-once", epoch=1))
if os.fork() == 0:  # not its program yet, so it still has the descriptor of the lock
    time.sleep(0.2)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_is_not_its_program_yet_is_waited_for(tmp_path: Path) -> None:
    engine = subprocess.run([sys.executable, "-c", KILLED_ENGINE, str(tmp_path)], check=False)
    assert engine.returncode == -9
    acquire_lock(tmp_path).release()


@pytest.mark.parametrize("run", [run_once, run_tick])
def test_a_kill_while_the_lock_is_described_repeats_no_number_of_a_start(
    base: Path, run: Callable[..., object]
) -> None:
    make_org(base, resume("ada"), models={"scripted": PLAIN})
    run(base)
    with contextlib.suppress(Crash), crash_at(3) as changes:  # emptied, and not described yet
        run(base)
    assert changes == ["open .lemming/lock", "truncate .lemming/lock"]
    assert (base / ".lemming/lock").read_bytes() == b""
    run(base)
    assert [{line["epoch"] for line in journal_lines(base, tick)} for tick in (1, 2)] == [{1}, {2}]
