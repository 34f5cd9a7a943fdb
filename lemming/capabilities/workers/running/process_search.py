"""Find and kill processes by their HOME, for workers that run without a sandbox, and those of a killed engine."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.integers import to_int

_TIMEOUT_S = 10.0


def end_processes(home: Path) -> int:
    """Kill the processes whose environment has this HOME, also daemons, until none is there. Return their number.

    Repeatable. Raises `TimeoutError` if processes are still there after ten seconds. Linux only: elsewhere 0.
    """
    marker, ended, deadline = f"HOME={home}".encode(), set[int](), Deadline(_TIMEOUT_S)
    # A process may start another between the listing and its end: the search ends when one finds nothing.
    while processes := _find_processes(marker):
        if deadline.has_passed:
            raise TimeoutError(f"processes of {home} must end, got {sorted(processes)} still there")
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        ended |= processes
    return len(ended)


def _find_processes(marker: bytes) -> set[int]:
    processes = set()
    for entry in Path("/proc").glob("[0-9]*") if os.path.isdir("/proc/1") else ():
        with contextlib.suppress(OSError):  # it ended, or is another user's
            process = to_int(entry.name)
            if marker in (entry / "environ").read_bytes().split(b"\0") and process != os.getpid():
                processes.add(process)
    return processes
