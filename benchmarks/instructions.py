"""How many instructions a turn and a command take. A busy machine changes times; it does not change these.

Counted by valgrind, where there is one: those of the process itself, not those the kernel does for it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, WARM_TICKS, forget_models, make, running
from benchmarks.processes import LEMMING, PYTHON, YARDSTICK, lemming, run

AGENTS, SHORT, LONG = 100, 1, 9  # long enough that a collection of garbage more or less is no matter
FEW_AGENTS = 10
ENGINE = """
from pathlib import Path
from benchmarks.orgs import running
running(Path({place}), {ticks}, warm=0)()
"""
FLOOR = """
from pathlib import Path
from tempfile import mkdtemp
from benchmarks.floor import files_tmp
files_tmp(Path(mkdtemp(dir={place})), {agents}, {reading!r}, {ticks})()
"""


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the instructions of a turn and of whole commands; without valgrind nothing, and say so."""
    if not shutil.which("valgrind"):
        print("instructions: not counted, there is no valgrind here", file=sys.stderr)
        return
    for reading, readers in (("one", "read one neighbour"), ("all", "read all, more than an inbox takes")):
        yield _turn(options.place, options.place / "valgrind.txt", reading, readers)
    yield from _commands(options.place, options.place / "valgrind.txt")


def _turn(place: Path, report: Path, reading: str, readers: str) -> Measurement:
    """Count by the difference of a short and a long run, so that start and end do not count."""
    base = make(place / f"org-{reading}", AGENTS, reading, org={"durability": "off"})
    running(base, WARM_TICKS[reading], warm=0)()
    engine = [count_instructions(_python(ENGINE, base, ticks), report) for ticks in (SHORT, LONG)]
    floor = [count_instructions(_python(FLOOR, place, ticks, reading), report) for ticks in (SHORT, LONG)]
    turns = AGENTS * (LONG - SHORT)
    return Measurement.counted(
        (engine[1] - engine[0]) / turns / 1e3, (floor[1] - floor[0]) / turns / 1e3,
        case=f"{AGENTS} agents, {readers}, off", figure="instructions a turn", unit="thousand",
        floor_is="files_tmp", target="turn",
    )  # fmt: skip


def _commands(place: Path, report: Path) -> Iterator[Measurement]:
    base = forget_models(make(place / "idle", FEW_AGENTS, "one", schedule=NEVER, model="scripted"))
    commands = {
        "lemming --help": (*LEMMING, "--help"),
        "lemming status": lemming(base, "status"),
        "idle run-once": lemming(base, "run-once"),
    }
    floor = count_instructions(YARDSTICK, report)
    for case, command in commands.items():
        yield Measurement.counted(
            count_instructions(command, report) / 1e6, floor / 1e6,
            case=case, figure="instructions", unit="million", floor_is="import typer, pydantic",
        )  # fmt: skip


def _python(code: str, place: Path, ticks: int, reading: str = "") -> tuple[str, ...]:
    return (PYTHON, "-c", code.format(place=repr(str(place)), agents=AGENTS, ticks=ticks, reading=reading))


def count_instructions(command: Sequence[str], report: Path) -> int:
    """Return how many instructions a command takes; its second run, so that its modules are compiled.

    `report` is a file for valgrind to write.
    """
    counter = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={report}"]
    run(command)
    run(["env", "PYTHONHASHSEED=0", *counter, *command])
    found = re.search(r"Collected : (\d+)", report.read_text())
    assert found, "valgrind says at its end how many instructions it collected"
    return int(found.group(1))
