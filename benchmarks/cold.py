"""What a command costs before it does anything, beside an interpreter that imports typer and pydantic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, aged, forget_models, make, write_resumes
from benchmarks.processes import LEMMING, YARDSTICK, lemming, run

AGENTS = 10
YOUNG = 20
MANY_AGENTS, MANY_ENTRIES = 1000, 100
TARGET_OF = {"lemming --help": "start", "idle run-once": "start", "run-once, 4 turns": "start with turns"}


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of whole processes; the first run of each, which compiles, is not counted."""
    young = _idle(options, YOUNG)
    commands = {
        "import typer, pydantic": YARDSTICK,
        "lemming --help": (*LEMMING, "--help"),
        "lemming status": lemming(young, "status"),
        "idle run-once": lemming(young, "run-once"),
        "run-once, 4 turns": lemming(_busy(options.place / "busy"), "run-once"),
    }
    aged_ones = {
        f"idle run-once, after {age:,} ticks": lemming(_idle(options, age), "run-once")
        for age in options.ages
        if age > YOUNG
    }
    large = {}
    if options.agents and max(options.agents) >= MANY_AGENTS and any(options.entries):
        base = make(options.place / "large", MANY_AGENTS, "one", schedule=NEVER, entries=MANY_ENTRIES)
        large = {"idle run-once, 1,000 agents, 100,000 entries": lemming(forget_models(base), "run-once")}
    times = _interleave({**commands, **aged_ones, **large}, options.rounds)
    plain = next(iter(commands))
    for command in [*commands, *aged_ones, *large][1:]:
        yield _row(command, times, plain, TARGET_OF.get(command, ""))
    for command in aged_ones:
        yield _row(command, times, "idle run-once", "history")


def _interleave(commands: dict[str, tuple[str, ...]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            times[name].append(run(command).cpu_s)
    return {name: found[1:] for name, found in times.items()}


def _row(command: str, times: dict[str, list[float]], floor: str, target: str) -> Measurement:
    return Measurement.paired(
        times[command], times[floor],
        scale=1e3, unit="ms", case=command, figure="CPU", floor_is=floor, target=target,
    )  # fmt: skip


def _busy(base: Path) -> Path:
    """Return an organisation whose four agents take a turn in every tick."""
    return forget_models(make(base, 4, "one", model="scripted"))


def _idle(options: Options, age: int) -> Path:
    """Return an organisation that has run for so long and in which nobody is due any more."""
    base = aged(options, AGENTS, age)
    write_resumes(base, AGENTS, "one", NEVER, model="scripted")
    return forget_models(base)
