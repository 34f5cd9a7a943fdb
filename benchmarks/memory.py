"""Peak memory of a run: with many concurrent turns, and after many ticks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import make_benchmark_org
from benchmarks.parallel import MANY_DELAY_S, make_slow_org
from benchmarks.processes import lemming_command, run_measured

FEW_AGENTS = 10
SHORT_TICKS, LONG_TICKS = 10, 300


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the peak resident memory of whole processes."""
    many_agents = max(options.agents)
    peaks_by_turns = {
        count: _measure_peak_mb(
            make_slow_org(options.folder / str(count), count, "nobody", MANY_DELAY_S, max_parallel=count)
        )
        for count in (FEW_AGENTS, many_agents)
    }
    yield _make_row(
        f"run-once, {many_agents:,} turns at once",
        peaks_by_turns[many_agents],
        peaks_by_turns[FEW_AGENTS],
        f"{FEW_AGENTS} turns at once",
    )
    if not options.ages:
        return
    base = make_benchmark_org(options.folder / "long", FEW_AGENTS, "one", model="scripted")
    ticks = {count: _measure_peak_mb(base, count) for count in (SHORT_TICKS, LONG_TICKS)}
    yield _make_row(
        f"run-forever, {LONG_TICKS} ticks of {FEW_AGENTS} agents",
        ticks[LONG_TICKS],
        ticks[SHORT_TICKS],
        f"{SHORT_TICKS} ticks",
    )


def _measure_peak_mb(base: Path, ticks: int = 1) -> float:
    return run_measured(
        lemming_command(base, "run-forever", "--max-ticks", str(ticks), "--interval", "0", "--quiet")
    ).peak_mb


def _make_row(case: str, value: float, floor: float, floor_is: str) -> Measurement:
    return Measurement.from_count(value, floor, case=case, figure="peak memory", unit="MB", floor_is=floor_is)
