"""Instruction counts of a turn and a command, independent of machine load.

Counted by valgrind, if installed: instructions of the process, without the kernel's.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, WARM_TICKS, make_benchmark_org, remove_models, running
from benchmarks.processes import LEMMING, PYTHON, YARDSTICK, lemming_command, run_measured

AGENTS, SHORT_TICKS, LONG_TICKS = (100, 1, 9)  # long enough that a collection of garbage more or less is no matter
FEW_AGENTS = 10
ENGINE_CODE = """
from pathlib import Path
from benchmarks.orgs import running
running(Path({place}), {ticks}, warm=0)()
"""
FLOOR_CODE = """
from pathlib import Path
from tempfile import mkdtemp
from benchmarks.floor import files_tmp
files_tmp(Path(mkdtemp(dir={place})), {agents}, {reading!r}, {ticks})()
"""


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the instructions of a turn and of whole commands.

    Without valgrind print a note and yield nothing.
    """
    if not shutil.which("valgrind"):
        print("instructions: not counted, there is no valgrind here", file=sys.stderr)
        return
    for reading, readers in (("one", "read one neighbour"), ("all", "read all, more than an inbox takes")):
        yield _measure_turn(options.folder, options.folder / "valgrind.txt", reading, readers)
    yield from _measure_commands(options.folder, options.folder / "valgrind.txt")


def _measure_turn(folder: Path, report: Path, reading: str, readers: str) -> Measurement:
    """Measure a turn by the difference of a short and a long run, which cancels startup and exit."""
    base = make_benchmark_org(folder / f"org-{reading}", AGENTS, reading, org={"durability": "off"})
    running(base, WARM_TICKS[reading], warm=0)()
    engine = [
        count_instructions(_make_python_command(ENGINE_CODE, base, ticks), report)
        for ticks in (SHORT_TICKS, LONG_TICKS)
    ]
    floor = [
        count_instructions(_make_python_command(FLOOR_CODE, folder, ticks, reading), report)
        for ticks in (SHORT_TICKS, LONG_TICKS)
    ]
    turns = AGENTS * (LONG_TICKS - SHORT_TICKS)
    return Measurement.from_count(
        (engine[1] - engine[0]) / turns / 1e3, (floor[1] - floor[0]) / turns / 1e3,
        case=f"{AGENTS} agents, {readers}, off", figure="instructions a turn", unit="thousand",
        floor_is="files_tmp", target="turn",
    )  # fmt: skip


def _measure_commands(folder: Path, report: Path) -> Iterator[Measurement]:
    base = remove_models(make_benchmark_org(folder / "idle", FEW_AGENTS, "one", schedule=NEVER, model="scripted"))
    commands = {
        "lemming --help": (*LEMMING, "--help"),
        "lemming status": lemming_command(base, "status"),
        "idle run-once": lemming_command(base, "run-once"),
    }
    floor = count_instructions(YARDSTICK, report)
    for case, command in commands.items():
        yield Measurement.from_count(
            count_instructions(command, report) / 1e6, floor / 1e6,
            case=case, figure="instructions", unit="million", floor_is="import typer, pydantic",
        )  # fmt: skip


def _make_python_command(code: str, folder: Path, ticks: int, reading: str = "") -> tuple[str, ...]:
    return (PYTHON, "-c", code.format(place=repr(str(folder)), agents=AGENTS, ticks=ticks, reading=reading))


def count_instructions(command: Sequence[str], report: Path) -> int:
    """Return the instruction count of a command's second run, with compiled modules.

    `report` is a file for valgrind's output.
    """
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={report}"]
    run_measured(command)
    run_measured(["env", "PYTHONHASHSEED=0", *counter, *command])
    match = re.search(r"Collected : (\d+)", report.read_text())
    assert match, "valgrind says at its end how many instructions it collected"
    return int(match.group(1))
