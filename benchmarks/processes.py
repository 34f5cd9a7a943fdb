"""Measurement of whole processes from outside, from the first to the last instruction."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON = sys.executable
LEMMING = (PYTHON, "-m", "lemming")
YARDSTICK = (PYTHON, "-c", "import typer, pydantic")


@dataclass(frozen=True)
class ProcessUsage:
    """Resources used by a process."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def lemming_command(base: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command line for a command in the organisation at `base`."""
    return (*LEMMING, "-C", str(base), *arguments)


def run_measured(command: Sequence[str], *, any_status: bool = False) -> ProcessUsage:
    """Run a command to the end and return the used resources.

    Raises: CalledProcessError on failure, unless `any_status` is True.
    """
    start_time = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=child_environment())
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start_time
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 and not any_status:
        raise subprocess.CalledProcessError(process.returncode, command)
    peak = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return ProcessUsage(usage.ru_utime + usage.ru_stime, wall, peak)


def child_environment() -> dict[str, str]:
    """Return this process's environment with bytecode caching enabled, as on a user's machine."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
