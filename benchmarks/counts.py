"""What is counted exactly, and so needs no quiet machine: flushes, files, bytes, system calls, modules."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.counting import count_writing
from benchmarks.floor import FilesTmp
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, WARM_TICKS, make
from benchmarks.processes import LEMMING, PYTHON, YARDSTICK, environment, lemming, run

COUNTED_TICKS = 10
IDLE_TICKS = 100
TRACED_AGENTS, TRACED_TICKS = 10, (2, 12)
KEYS_CHANGED = 1  # memory keys that change in each turn


def measure(options: Options) -> Iterator[Measurement]:
    """Yield what a turn, an idle tick and a command do, in numbers."""
    for agents in options.agents:
        for durability in options.durability:
            yield from _writing(options, agents, durability)
    yield from _idle(options)
    if shutil.which("strace"):
        yield from _system_calls(options)
    yield from _modules(options)


def _writing(options: Options, agents: int, durability: str) -> Iterator[Measurement]:
    base = make(options.place / f"{agents}-{durability}", agents, "one", org={"durability": durability})
    counts = count_writing(base, WARM_TICKS["one"], COUNTED_TICKS)
    turns = agents * COUNTED_TICKS
    case = f"{agents:,} agents, read one neighbour, {durability}"
    rows = (
        ("flushes a tick", "flushes", COUNTED_TICKS, "flushes per tick" if durability == "tick" else ""),
        ("files created a turn", "agents' files created", turns, ""),
        ("other files created a tick", "other files created", COUNTED_TICKS, ""),
        ("files appended to a turn", "files appended to", turns, ""),
        ("files replaced a turn and changed key", "agents' files replaced", turns * KEYS_CHANGED, "replaced"),
        ("other files replaced a tick", "other files replaced", COUNTED_TICKS, ""),
    )
    for figure, what, number, target in rows:
        yield Measurement.counted(counts[what] / number, case=case, figure=figure, target=target)
    if durability == "turn" and agents > 1:
        alone = make(options.place / f"alone-{agents}", 1, "one", org={"durability": durability})
        flushes = counts["flushes"] - count_writing(alone, WARM_TICKS["one"], COUNTED_TICKS)["flushes"]
        yield Measurement.counted(
            flushes / (turns - COUNTED_TICKS), case=case, figure="flushes for each further turn",
            target="flushes per turn",
        )  # fmt: skip
    yield Measurement.counted(
        counts["bytes written"] / turns, _floor_bytes(options.place / f"floor-{agents}-{durability}", agents),
        case=case, figure="bytes written a turn", floor_is="files_tmp", unit="B", target="bytes",
    )  # fmt: skip


def _floor_bytes(folder: Path, agents: int) -> float:
    floor = FilesTmp(folder, agents, "one")
    for _ in range(COUNTED_TICKS):
        floor.tick()
    return floor.written / COUNTED_TICKS / agents


def _idle(options: Options) -> Iterator[Measurement]:
    agents = max(options.agents)
    base = make(options.place / "idle", agents, "one", schedule=NEVER)
    counts = count_writing(base, 1, IDLE_TICKS)
    case = f"{agents:,} agents, nobody due, {IDLE_TICKS} ticks"
    for what in sorted(counts):
        yield Measurement.counted(counts[what] / IDLE_TICKS, case=case, figure=f"{what}, an idle tick")


def _system_calls(options: Options) -> Iterator[Measurement]:
    """Count by the difference of a short and a long run, so that start and end do not count."""
    base = make(options.place / "traced", TRACED_AGENTS, "one", model="scripted")
    run(_forever(base, WARM_TICKS["one"]))
    short, long = (_traced(_forever(base, count), options.place / "strace") for count in TRACED_TICKS)
    turns = TRACED_AGENTS * (TRACED_TICKS[1] - TRACED_TICKS[0])
    calls = {name: (long[name] - short[name]) / turns for name in long}
    case = f"{TRACED_AGENTS} agents, read one neighbour, turn"
    yield Measurement.counted(sum(calls.values()), case=case, figure="system calls a turn")
    for name, count in sorted(calls.items(), key=lambda item: -item[1]):
        if count >= 1:
            yield Measurement.counted(count, case=case, figure=f"system calls a turn: {name}")


def _forever(base: Path, count: int) -> tuple[str, ...]:
    return lemming(base, "run-forever", "--max-ticks", str(count), "--interval", "0", "--quiet")


def _traced(command: Sequence[str], report: Path) -> Counter[str]:
    run(["strace", "-f", "-c", "-U", "name,calls", "-o", str(report), *command])
    rows = [line.split() for line in report.read_text().splitlines()]
    return Counter(
        {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and row[0] != "total"}
    )


def _modules(options: Options) -> Iterator[Measurement]:
    base = make(options.place / "modules", TRACED_AGENTS, "one", schedule=NEVER)
    floor = count_modules(YARDSTICK)
    for name, command in (("--help", (*LEMMING, "--help")), ("idle run-once", lemming(base, "run-once"))):
        yield Measurement.counted(
            count_modules(command), floor,
            case=f"lemming {name}" if name == "--help" else name, figure="modules imported",
            floor_is="import typer, pydantic",
        )  # fmt: skip


def count_modules(command: Sequence[str]) -> int:
    """Return how many modules a Python command line imports."""
    timed = [PYTHON, "-X", "importtime", *command[1:]]
    ran = subprocess.run(timed, capture_output=True, text=True, check=True, env=environment())
    lines = [line for line in ran.stderr.splitlines() if line.startswith("import time:")]
    return len(lines) - 1  # the first is the heading
