"""What a kill costs: runs killed at a random moment and started again, and what was asked of their models."""

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

from benchmarks.processes import environment

TICKS = 6
LIMIT_S = 300
Command = Callable[..., Sequence[str]]


@dataclass
class Toll:
    """`repeated`: calls that were answered and made again. `lost`: answers that are in no message at the end.

    `failed`: starts after a kill that did not come to an end, each with what it ended with.
    """

    kills: int = 0
    repeated: int = 0
    lost: int = 0
    failed: list[str] = field(default_factory=list)


def toll(command: Command, place: Path, kills: int) -> Toll:
    """Kill a run as often as asked, each at a moment of its own, and have another process end it.

    `command` returns the command line for a folder and further arguments.
    """
    place.mkdir()
    moments = random.Random(0)  # the same for every side, as shares of what a whole run takes
    found = Toll()
    whole = _ended(_start(command, place / "whole"), place / "whole")["wall_s"]
    while found.kills < kills:
        share, folder = moments.random(), place / str(found.kills)
        while not _is_killed(command, folder, share * whole):
            shutil.rmtree(folder)  # it was quicker this time
            _log(folder).unlink()
            share /= 2
        _add(command, folder, found)
    return found


def _is_killed(command: Command, folder: Path, after_s: float) -> bool:
    """Run, and kill after so long; False when it had come to its end."""
    process = _start(command, folder)
    time.sleep(after_s)
    process.kill()
    said, _ = process.communicate()
    return not said.strip()


def _add(command: Command, folder: Path, found: Toll) -> None:
    """Start again what was killed in a folder, and add up what that cost."""
    found.kills += 1
    try:
        messages = _ended(_start(command, folder), folder)["messages"]
    except RuntimeError as error:
        found.failed.append(str(error))
        messages = []
    calls = [line.split() for line in _log(folder).read_text().splitlines()]
    given = [(agent, number, mark) for what, agent, number, mark in calls if what == "given"]
    kept = {message.split()[-1] for message in messages}
    found.repeated += sum(times - 1 for times in Counter(call[:2] for call in given).values())
    found.lost += sum(mark not in kept for _, _, mark in given)


def _log(folder: Path) -> Path:
    return folder.with_suffix(".log")


def _start(command: Command, folder: Path) -> subprocess.Popen[str]:
    """Start a run, and return once its first tick is done."""
    arguments = command(folder, "--until", str(TICKS), "--log", str(_log(folder)))
    with folder.with_suffix(".errors").open("w") as errors:
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
        )
    assert process.stdout is not None, "opened as a pipe"
    process.stdout.readline()  # under way
    return process


def _ended(process: subprocess.Popen[str], folder: Path) -> Any:
    """Return what a run says at its end."""
    limit = threading.Timer(LIMIT_S, process.kill)
    limit.start()
    said, _ = process.communicate()
    limit.cancel()
    if process.returncode != 0:
        lines = folder.with_suffix(".errors").read_text().strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"ended with {process.returncode}")
    return json.loads(said)
