"""The lock of an engine that was killed while it started a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lemming.operations.engine_lock import acquire_lock

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
