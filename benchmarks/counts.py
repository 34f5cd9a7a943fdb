"""Exact counts, independent of machine load: flushes, files, bytes, system calls, modules."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.counting import count_writes
from benchmarks.floor import FilesTmp
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, WARM_TICKS, make_benchmark_org
from benchmarks.processes import LEMMING, PYTHON, YARDSTICK, child_environment, lemming_command, run_measured

COUNTED_TICKS = 10
IDLE_TICKS = 100
TRACED_AGENTS, TRACED_TICKS = 10, (2, 12)
CHANGED_KEYS_PER_TURN = 1  # memory keys that change in each turn


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the counts of a turn, an idle tick and a command."""
    for agents in options.agents:
        for durability in options.durability:
            yield from _measure_writes(options, agents, durability)
    yield from _measure_idle(options)
    if shutil.which("strace"):
        yield from _measure_system_calls(options)
    yield from _measure_modules(options)


def _measure_writes(options: Options, agents: int, durability: str) -> Iterator[Measurement]:
    base = make_benchmark_org(options.folder / f"{agents}-{durability}", agents, "one", org={"durability": durability})
    counts = count_writes(base, WARM_TICKS["one"], COUNTED_TICKS)
    turns = agents * COUNTED_TICKS
    case = f"{agents:,} agents, read one neighbour, {durability}"
    rows = (
        ("flushes a tick", "flushes", COUNTED_TICKS, "flushes per tick" if durability == "tick" else ""),
        ("files created a turn", "agents' files created", turns, ""),
        ("other files created a tick", "other files created", COUNTED_TICKS, ""),
        ("files appended to a turn", "files appended to", turns, ""),
        ("files replaced a turn and changed key", "agents' files replaced", turns * CHANGED_KEYS_PER_TURN, "replaced"),
        ("other files replaced a tick", "other files replaced", COUNTED_TICKS, ""),
    )
    for figure, key, number, target in rows:
        yield Measurement.from_count(counts[key] / number, case=case, figure=figure, target=target)
    if durability == "turn" and agents > 1:
        single_agent_org = make_benchmark_org(
            options.folder / f"alone-{agents}", 1, "one", org={"durability": durability}
        )
        flushes = counts["flushes"] - count_writes(single_agent_org, WARM_TICKS["one"], COUNTED_TICKS)["flushes"]
        yield Measurement.from_count(
            flushes / (turns - COUNTED_TICKS), case=case, figure="flushes for each further turn",
            target="flushes per turn",
        )  # fmt: skip
    yield Measurement.from_count(
        counts["bytes written"] / turns, _count_floor_bytes(options.folder / f"floor-{agents}-{durability}", agents),
        case=case, figure="bytes written a turn", floor_is="files_tmp", unit="B", target="bytes",
    )  # fmt: skip


def _count_floor_bytes(folder: Path, agents: int) -> float:
    floor = FilesTmp(folder, agents, "one")
    for _ in range(COUNTED_TICKS):
        floor.tick()
    return floor.written_bytes / COUNTED_TICKS / agents


def _measure_idle(options: Options) -> Iterator[Measurement]:
    agents = max(options.agents)
    base = make_benchmark_org(options.folder / "idle", agents, "one", schedule=NEVER)
    counts = count_writes(base, 1, IDLE_TICKS)
    case = f"{agents:,} agents, nobody due, {IDLE_TICKS} ticks"
    for key in sorted(counts):
        yield Measurement.from_count(counts[key] / IDLE_TICKS, case=case, figure=f"{key}, an idle tick")


def _measure_system_calls(options: Options) -> Iterator[Measurement]:
    """Yield system calls per turn from the difference of a short and a long run, which cancels startup and
    exit.
    """
    base = make_benchmark_org(options.folder / "traced", TRACED_AGENTS, "one", model="scripted")
    run_measured(_run_forever_command(base, WARM_TICKS["one"]))
    short_run, long_run = (
        _count_system_calls(_run_forever_command(base, count), options.folder / "strace") for count in TRACED_TICKS
    )
    turns = TRACED_AGENTS * (TRACED_TICKS[1] - TRACED_TICKS[0])
    calls = {name: (long_run[name] - short_run[name]) / turns for name in long_run}
    case = f"{TRACED_AGENTS} agents, read one neighbour, turn"
    yield Measurement.from_count(sum(calls.values()), case=case, figure="system calls a turn")
    for name, count in sorted(calls.items(), key=lambda item: -item[1]):
        if count >= 1:
            yield Measurement.from_count(count, case=case, figure=f"system calls a turn: {name}")


def _run_forever_command(base: Path, count: int) -> tuple[str, ...]:
    return lemming_command(base, "run-forever", "--max-ticks", str(count), "--interval", "0", "--quiet")


def _count_system_calls(command: Sequence[str], report: Path) -> Counter[str]:
    run_measured(["strace", "-f", "-c", "-U", "name,calls", "-o", str(report), *command])
    rows = [line.split() for line in report.read_text().splitlines()]
    return Counter({row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit() and row[0] != "total"})


def _measure_modules(options: Options) -> Iterator[Measurement]:
    base = make_benchmark_org(options.folder / "modules", TRACED_AGENTS, "one", schedule=NEVER)
    floor = count_modules(YARDSTICK)
    for name, command in (("--help", (*LEMMING, "--help")), ("idle run-once", lemming_command(base, "run-once"))):
        yield Measurement.from_count(
            count_modules(command), floor,
            case=f"lemming {name}" if name == "--help" else name, figure="modules imported",
            floor_is="import typer, pydantic",
        )  # fmt: skip


def count_modules(command: Sequence[str]) -> int:
    """Return the number of modules imported by a Python command line."""
    timed = [PYTHON, "-X", "importtime", *command[1:]]
    completed = subprocess.run(timed, capture_output=True, text=True, check=True, env=child_environment())
    lines = [line for line in completed.stderr.splitlines() if line.startswith("import time:")]
    return len(lines) - 1  # the first is the heading
