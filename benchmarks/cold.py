"""Startup cost of a command, against an interpreter with typer and pydantic imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, make_aged_org, make_benchmark_org, remove_models, write_resumes
from benchmarks.processes import LEMMING, YARDSTICK, lemming_command, run_measured

AGENTS = 10
YOUNG_TICKS = 20
MANY_AGENTS, MANY_ENTRIES = 1000, 100
TARGETS = {"lemming --help": "start", "idle run-once": "start", "run-once, 4 turns": "start with turns"}


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of whole processes, without the first run, which compiles the modules."""
    young = _make_idle_org(options, YOUNG_TICKS)
    commands = {
        "import typer, pydantic": YARDSTICK,
        "lemming --help": (*LEMMING, "--help"),
        "lemming status": lemming_command(young, "status"),
        "idle run-once": lemming_command(young, "run-once"),
        "run-once, 4 turns": lemming_command(_make_busy_org(options.folder / "busy"), "run-once"),
    }
    aged_ones = {
        f"idle run-once, after {age:,} ticks": lemming_command(_make_idle_org(options, age), "run-once")
        for age in options.ages
        if age > YOUNG_TICKS
    }
    large = {}
    if options.agents and max(options.agents) >= MANY_AGENTS and any(options.entries):
        base = make_benchmark_org(options.folder / "large", MANY_AGENTS, "one", schedule=NEVER, entries=MANY_ENTRIES)
        large = {"idle run-once, 1,000 agents, 100,000 entries": lemming_command(remove_models(base), "run-once")}
    times = _time_commands({**commands, **aged_ones, **large}, options.rounds)
    yardstick = next(iter(commands))
    for command in [*commands, *aged_ones, *large][1:]:
        yield _make_row(command, times, yardstick, TARGETS.get(command, ""))
    for command in aged_ones:
        yield _make_row(command, times, "idle run-once", "history")


def _time_commands(commands: dict[str, tuple[str, ...]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            times[name].append(run_measured(command).cpu_s)
    return {name: series[1:] for name, series in times.items()}


def _make_row(command: str, times: dict[str, list[float]], floor: str, target: str) -> Measurement:
    return Measurement.from_pairs(
        times[command], times[floor],
        scale=1e3, unit="ms", case=command, figure="CPU", floor_is=floor, target=target,
    )  # fmt: skip


def _make_busy_org(base: Path) -> Path:
    """Make an organisation with four agents and a turn of each in every tick."""
    return remove_models(make_benchmark_org(base, 4, "one", model="scripted"))


def _make_idle_org(options: Options, age: int) -> Path:
    """Make an organisation of the given age with no further agent due."""
    base = make_aged_org(options, AGENTS, age)
    write_resumes(base, AGENTS, "one", NEVER, model="scripted")
    return remove_models(base)
