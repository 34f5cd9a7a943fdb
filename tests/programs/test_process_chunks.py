"""Processes that share work end with the one that shares it, also if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from patience import until

HANG_S = 600


def hang(folder: str, items: Sequence[int]) -> Iterator[int]:
    """Leave a file with the number of this process, and never end."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(HANG_S)
    yield from items


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys; from functools import partial; os.sched_getaffinity = lambda _: {0, 1}; "
        "from lemming.libraries.concurrency.process_chunks import map_chunks; from test_process_chunks import hang; "
        "list(map_chunks(partial(hang, sys.argv[1]), range(4), in_processes=True, size=1))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, *sys.path)))}
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
    until(lambda: len([*tmp_path.iterdir()]) == 2)
    numbers = [int(file.name) for file in tmp_path.iterdir()]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    until(lambda: not any(map(runs, numbers)))


def runs(number: int) -> bool:
    """Return True while a process exists."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
