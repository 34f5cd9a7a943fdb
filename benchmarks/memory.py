"""How much memory a run needs at most: with many turns at once, and when it has run for long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import make
from benchmarks.parallel import MANY_DELAY_S, waiting
from benchmarks.processes import lemming, run

FEW = 10
SHORT, LONG = 10, 300


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the peak resident memory of whole processes."""
    many = max(options.agents)
    at_once = {
        count: _peak(waiting(options.place / str(count), count, "nobody", MANY_DELAY_S, max_parallel=count))
        for count in (FEW, many)
    }
    yield _row(f"run-once, {many:,} turns at once", at_once[many], at_once[FEW], f"{FEW} turns at once")
    if not options.ages:
        return
    base = make(options.place / "long", FEW, "one", model="scripted")
    ticks = {count: _peak(base, count) for count in (SHORT, LONG)}
    yield _row(f"run-forever, {LONG} ticks of {FEW} agents", ticks[LONG], ticks[SHORT], f"{SHORT} ticks")


def _peak(base: Path, ticks: int = 1) -> float:
    return run(lemming(base, "run-forever", "--max-ticks", str(ticks), "--interval", "0", "--quiet")).peak_mb


def _row(case: str, value: float, floor: float, floor_is: str) -> Measurement:
    return Measurement.counted(value, floor, case=case, figure="peak memory", unit="MB", floor_is=floor_is)
