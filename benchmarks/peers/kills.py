"""Cost of kills: runs killed at random moments and restarted, with a count of repeated and lost model calls."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import child_environment

TICKS_PER_RUN = 6
LIMIT_S = 300
Command = Callable[..., Sequence[str]]


@dataclass
class KillCosts:
    """Costs of kills. `repeated`: answered calls made again. `lost`: answers missing in the final messages.

    `failed`: errors of restarts after a kill.
    """

    kills: int = 0
    repeated: int = 0
    lost: int = 0
    failed: list[str] = field(default_factory=list)


def measure_kills(command: Command, folder_of_runs: Path, kills: int) -> KillCosts:
    """Kill a run repeatedly at random moments, and let another process finish each run.

    `command` returns the command line for a folder and further arguments.
    """
    folder_of_runs.mkdir()
    rng = random.Random(0)  # the same for every side, as shares of what a whole run takes
    costs = KillCosts()
    full_run_s = _finish_run(_start_run(command, folder_of_runs / "whole"), folder_of_runs / "whole")["wall_s"]
    while costs.kills < kills:
        share, folder = rng.random(), folder_of_runs / str(costs.kills)
        while not _run_and_kill(command, folder, share * full_run_s):
            shutil.rmtree(folder)  # it was quicker this time
            _log_path(folder).unlink()
            share /= 2
        _restart_and_count(command, folder, costs)
    return costs


def _run_and_kill(command: Command, folder: Path, after_s: float) -> bool:
    """Run and kill after some seconds. Return False if the run had already ended."""
    process = _start_run(command, folder)
    time.sleep(after_s)
    process.kill()
    output, _ = process.communicate()
    return not output.strip()


def _restart_and_count(command: Command, folder: Path, costs: KillCosts) -> None:
    """Restart a killed run and add its costs."""
    costs.kills += 1
    try:
        messages = _finish_run(_start_run(command, folder), folder)["messages"]
    except RuntimeError as error:
        costs.failed.append(str(error))
        messages = []
    calls = [line.split() for line in _log_path(folder).read_text().splitlines()]
    answered = [(agent, number, mark) for event, agent, number, mark in calls if event == "given"]
    stored_marks = {message.split()[-1] for message in messages}
    costs.repeated += sum(count_of_calls - 1 for count_of_calls in Counter(call[:2] for call in answered).values())
    costs.lost += sum(mark not in stored_marks for _, _, mark in answered)


def _log_path(folder: Path) -> Path:
    return folder.with_suffix(".log")


def _start_run(command: Command, folder: Path) -> subprocess.Popen[str]:
    """Start a run, and return after the first tick."""
    arguments = command(folder, "--until", str(TICKS_PER_RUN), "--log", str(_log_path(folder)))
    with folder.with_suffix(".errors").open("w") as errors:
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, text=True, env=child_environment())
    assert process.stdout is not None, "opened as a pipe"
    process.stdout.readline()  # under way
    return process


def _finish_run(process: subprocess.Popen[str], folder: Path) -> Any:
    """Wait for the end of a run and return its printed result."""
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    output, _ = process.communicate()
    limit.cancel()
    if process.returncode != 0:
        lines = folder.with_suffix(".errors").read_text().strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"ended with {process.returncode}")
    return json.loads(output)
