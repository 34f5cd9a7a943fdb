"""Whole processes, measured from outside: what a command costs from its first instruction to its last."""

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
class Ended:
    """What a process used."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def lemming(base: Path, *arguments: str) -> tuple[str, ...]:
    """Return the command line of a command of the organisation at `base`."""
    return (*LEMMING, "-C", str(base), *arguments)


def run(command: Sequence[str], *, any_status: bool = False) -> Ended:
    """Run a command to its end; raise `CalledProcessError` when it fails, unless `any_status` will do."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 and not any_status:
        raise subprocess.CalledProcessError(process.returncode, command)
    peak = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Ended(usage.ru_utime + usage.ru_stime, wall, peak)


def environment() -> dict[str, str]:
    """Return this process's environment; modules are compiled once, as on a user's machine."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
